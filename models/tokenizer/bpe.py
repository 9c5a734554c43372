"""Byte-level byte-pair encoding: text to token ids and back, compatible with GPT-2."""

import codecs
import hashlib
import json
from collections import Counter
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from operator import index

from models.tokenizer import compiled
from models.tokenizer.base import MOST_IDS, BaseTokenizer
from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID, ID_FROM_BYTE
from models.tokenizer.pretokenize import bytes_of, pieces, text_from
from models.tokenizer.special_tokens import END_OF_TEXT, checked_special_tokens, permitted, split_at
from models.tokenizer.training import byte_numbers, in_gpt2_order, learn_merges
from models.tokenizer.unicode_classes import UNICODE_VERSION

FINGERPRINT_VERSION = 1

# Each merge can double the length of a token, so that a few lines could ask for more bytes than there are.
MOST_BYTES = 1 << 28

# Bounds on what a tokenizer remembers; neither changes any result.
CACHE_PIECES = 1 << 16
CACHE_PIECE_CHARACTERS = 64


class Tokenizer(BaseTokenizer):
    """A byte-level BPE vocabulary.

    Merges work on ranks: 0 to 255 are the single bytes in GPT-2's order, 256 + k is what merge k makes. A rank is
    also its token's id, and the special tokens follow in the order given, unless `ids` numbers them otherwise.
    Every byte string can be encoded, and decoding gives exactly those bytes back.
    """

    def __init__(self, merges, special_tokens=(END_OF_TEXT,), ids=None):
        """Build from merges [(left rank, right rank), ...], special tokens and, if not the ranks, the ids by rank.

        `special_tokens` are texts, which are numbered after all other ids, or {text: id}. Raises ValueError for a
        merge of ranks that do not exist yet, a repeated merge, merges that make MOST_BYTES in all, special tokens that
        are empty, repeated or not strings, and ids that are repeated, not one for each rank, or not small integers from
        0 on.
        """
        self._merges = {}
        token_bytes, size = [bytes([byte]) for byte in BYTE_FROM_ID], 0
        for left, right in (map(index, pair) for pair in merges):
            merged = len(token_bytes)
            if not (0 <= left < merged and 0 <= right < merged) or (left, right) in self._merges:
                place = f"Merge {merged - 256} ({left}, {right})"
                raise ValueError(f"{place} is repeated or joins what no merge before it made.")
            self._merges[left, right] = merged
            size += len(token_bytes[left]) + len(token_bytes[right])
            if size > MOST_BYTES:
                place = f"Merge {merged - 256} ({left}, {right})"
                raise ValueError(f"{place} makes the tokens longer than {MOST_BYTES:,} bytes in all.")
            token_bytes.append(token_bytes[left] + token_bytes[right])
        ranks = list(range(len(token_bytes)))
        ids = ranks if ids is None else list(ids)
        if len(ids) != len(ranks) or len(set(ids)) < len(ids):
            raise ValueError(f"The ids by rank must be {len(ranks)} different numbers.")
        self._id_from_rank = None if ids == ranks else ids
        super().__init__(dict(zip(ids, token_bytes, strict=True)), special_tokens)
        self._cache = {}

    @classmethod
    def train(cls, text, vocab_size, special_tokens=(END_OF_TEXT,), tie_break="gpt2"):
        """Learn a vocabulary of `vocab_size` ids from a str or UTF-8 bytes, such as a memory map of a file.

        `vocab_size` counts the 256 bytes, the merges and the special tokens. Special tokens in the text separate
        documents: no merge crosses them and they are not counted. When the text offers fewer pairs to merge, the
        vocabulary is smaller than asked; `vocab_size` of the result tells. Equally frequent pairs are merged in the
        order of their ids; with `tie_break` "bytes", single bytes are compared by value instead. Raises ValueError
        when `vocab_size` has no room for the bytes and special tokens.
        """
        special_tokens = checked_special_tokens(special_tokens)
        smallest = 256 + len(special_tokens)
        if vocab_size < smallest:
            raise ValueError(
                f"A vocabulary of {vocab_size} ids is too small: 256 bytes and {len(special_tokens)} special tokens "
                f"need {smallest}. Ask for more, e.g. vocab_size=1024."
            )
        limit, numbers = min(vocab_size, MOST_IDS) - smallest, byte_numbers(tie_break)
        if compiled.is_worth_it(text):
            merges = compiled.learn_merges(text, special_tokens, limit, numbers)
        else:
            counts = Counter()
            for document in split_at(special_tokens, text_from(text))[::2]:
                counts.update(pieces(document))
            merges = learn_merges({bytes_of(piece): count for piece, count in counts.items()}, limit, numbers)
        return cls(in_gpt2_order(merges, numbers), special_tokens)

    def with_special_tokens(self, tokens):
        """A copy with more special tokens, numbered from `vocab_size` on; those it has already keep their ids."""
        return Tokenizer(self.merges, self._more_special_tokens(tokens), self._id_from_rank)

    @property
    def merges(self):
        """The merges in order, a list of (left rank, right rank)."""
        return list(self._merges)

    @property
    def ids(self):
        """Id of each rank, a list; None where each rank is its own id."""
        return self._id_from_rank and list(self._id_from_rank)

    @cached_property
    def fingerprint(self):
        """SHA-256, in hex, of everything that decides how text is encoded."""
        content = [FINGERPRINT_VERSION, UNICODE_VERSION, self.merges, self.special_tokens_as_given]
        content += [self._id_from_rank] if self._id_from_rank else []
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode("ascii")).hexdigest()

    def encode_to_numpy(self, text, *, allowed_special=(), disallowed_special="all"):
        """As `encode`, for a str or bytes of any length, into int32[tokens]."""
        if not compiled.is_worth_it(text):
            return super().encode_to_numpy(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        data = compiled.utf8(text)
        allowed = permitted(self._special_ids, data, allowed_special, disallowed_special)
        return self._encoder.encode(data, {token: self._special_ids[token] for token in allowed})

    @cached_property
    def _encoder(self):
        return compiled.encoder(self.merges, self._id_from_rank)

    def _ids(self, text, allowed_special, disallowed_special):
        if not compiled.is_worth_it(text):
            return super()._ids(text, allowed_special, disallowed_special)
        ids = self.encode_to_numpy(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        return ids.tolist()

    def _ordinary(self, text):
        ranks = chain.from_iterable(map(self._piece_ranks, pieces(text)))
        return map(self._id_from_rank.__getitem__, ranks) if self._id_from_rank else ranks

    def _piece_ranks(self, piece):
        ranks = self._cache.get(piece)
        if ranks is None:
            ranks = apply_merges([ID_FROM_BYTE[byte] for byte in bytes_of(piece)], self._merges)
            if len(piece) <= CACHE_PIECE_CHARACTERS:
                if len(self._cache) >= CACHE_PIECES:
                    self._cache.clear()
                self._cache[piece] = ranks
        return ranks


class StreamDecoder:
    """Turns ids that arrive one at a time into text, holding back a character until all its bytes are there.

    The texts returned by `push` and finally `finish`, joined, equal `tokenizer.decode` of all the ids.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id):
        """The text that became complete with this id, perhaps empty. Raises ValueError for an unknown id."""
        return self._utf8.decode(self._tokenizer.token_bytes(token_id))

    def finish(self):
        """What is left: U+FFFD for a character cut short, else nothing. The decoder can then start afresh."""
        return self._utf8.decode(b"", final=True)


def apply_merges(symbols, merges):
    """Apply {(left, right): merged} to a list of ids, lowest merged id first and leftmost among equals.

    Ids of merges ascend in the order they were learned. A queue of candidates keeps this at n log n steps for
    a piece of n bytes, so a long run without a blank does no harm.
    """
    end = len(symbols)
    previous, following = list(range(-1, end - 1)), list(range(1, end + 1))
    queue = [(merges[pair], position) for position, pair in enumerate(pairwise(symbols)) if pair in merges]
    heapify(queue)
    while queue:
        merged, position = heappop(queue)
        neighbour = following[position]
        if neighbour == end or merges.get((symbols[position], symbols[neighbour])) != merged:
            continue
        before, after = previous[position], following[neighbour]
        symbols[position], symbols[neighbour] = merged, None
        following[position] = after
        if before >= 0 and (candidate := merges.get((symbols[before], merged))) is not None:
            heappush(queue, (candidate, before))
        if after < end:
            previous[after] = position
            if (candidate := merges.get((merged, symbols[after]))) is not None:
                heappush(queue, (candidate, position))
    return [symbol for symbol in symbols if symbol is not None]

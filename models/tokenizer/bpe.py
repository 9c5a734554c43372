"""Byte-level byte-pair encoding: text to token ids and back, compatible with GPT-2."""

import codecs
import hashlib
import json
import re
from collections import Counter
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from models.files import replacing
from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID, ID_FROM_BYTE, read_gpt2_files
from models.tokenizer.pretokenize import bytes_of, pieces, text_from
from models.tokenizer.training import learn_merges
from models.tokenizer.unicode_classes import UNICODE_VERSION

END_OF_TEXT = "<|endoftext|>"
FILE_FORMAT = "euler_ir byte-level BPE"
FILE_VERSION = 1

# Bounds on what a tokenizer remembers; neither changes any result.
CACHE_PIECES = 1 << 16
CACHE_PIECE_CHARACTERS = 64


class Tokenizer:
    """A byte-level BPE vocabulary.

    Ids 0 to 255 are the single bytes in GPT-2's order, id 256 + k is merge k, and the special tokens follow in
    the order given. Every byte string can be encoded, and decoding gives exactly those bytes back.
    """

    def __init__(self, merges, special_tokens=(END_OF_TEXT,)):
        """Build from merges [(left id, right id), ...] and special token texts.

        Raises ValueError for a merge of ids that do not exist yet, a repeated merge, or special tokens that are
        empty, repeated or not strings.
        """
        self._merges = {}
        self._bytes_from_id = [bytes([byte]) for byte in BYTE_FROM_ID]
        for left, right in merges:
            merged = len(self._bytes_from_id)
            if not (0 <= left < merged and 0 <= right < merged) or (left, right) in self._merges:
                raise ValueError(f"Merge {merged - 256} ({left}, {right}) is repeated or joins an id not made before it.")
            self._merges[left, right] = merged
            self._bytes_from_id.append(self._bytes_from_id[left] + self._bytes_from_id[right])
        self._special_ids = {}
        for token in _checked_special_tokens(special_tokens):
            self._special_ids[token] = len(self._bytes_from_id)
            self._bytes_from_id.append(token.encode("utf-8"))
        self._cache = {}

    @classmethod
    def train(cls, text, vocab_size, special_tokens=(END_OF_TEXT,)):
        """Learn a vocabulary of `vocab_size` ids from a str or UTF-8 bytes.

        `vocab_size` counts the 256 bytes, the merges and the special tokens. Special tokens in the text separate
        documents: no merge crosses them and they are not counted. When the text offers fewer pairs to merge, the
        vocabulary is smaller than asked; `vocab_size` of the result tells. Raises ValueError when `vocab_size`
        has no room for the bytes and special tokens.
        """
        special_tokens = _checked_special_tokens(special_tokens)
        smallest = 256 + len(special_tokens)
        if vocab_size < smallest:
            raise ValueError(
                f"A vocabulary of {vocab_size} ids is too small: 256 bytes and {len(special_tokens)} special tokens "
                f"need {smallest}. Ask for more, e.g. vocab_size=1024."
            )
        counts = Counter()
        for document in _split_at(special_tokens, text_from(text))[::2]:
            counts.update(pieces(document))
        counts_from_bytes = {bytes_of(piece): count for piece, count in counts.items()}
        return cls(learn_merges(counts_from_bytes, vocab_size - smallest), special_tokens)

    @classmethod
    def from_gpt2_files(cls, encoder_json, vocab_bpe):
        """Read GPT-2's own vocabulary files, `encoder.json` and `vocab.bpe`; ValueError if they disagree."""
        return cls(*read_gpt2_files(encoder_json, vocab_bpe))

    @classmethod
    def load(cls, path):
        """Read a file written by `save`.

        Raises FileNotFoundError, or ValueError for a file that is something else, newer, or damaged.
        """
        try:
            document = json.loads(Path(path).read_bytes())
        except ValueError:
            document = None
        if not isinstance(document, dict) or document.get("format") != FILE_FORMAT:
            raise ValueError(f"{path} is not a tokenizer file. Expected a file written by Tokenizer.save.")
        version, unicode_version = document.get("version"), document.get("unicode")
        if (version, unicode_version) != (FILE_VERSION, UNICODE_VERSION):
            raise ValueError(
                f"{path} has version {version} for Unicode {unicode_version}, this program reads version "
                f"{FILE_VERSION} for Unicode {UNICODE_VERSION}. Use the program that wrote it, or train again."
            )
        merges, special_tokens = document.get("merges"), document.get("special_tokens")
        if document.get("checksum") != _fingerprint(merges, special_tokens):
            raise ValueError(f"{path} is damaged: its checksum does not fit its content. Restore it or train again.")
        return cls(merges, special_tokens)

    def save(self, path):
        """Write the vocabulary as JSON; an existing file is replaced in one step."""
        document = {
            "format": FILE_FORMAT,
            "version": FILE_VERSION,
            "unicode": UNICODE_VERSION,
            "checksum": self.fingerprint,
            "special_tokens": list(self._special_ids),
            "merges": self.merges,
        }
        with replacing(path) as file:
            file.write((json.dumps(document) + "\n").encode("utf-8"))

    @property
    def merges(self):
        """The merges in order, a list of (left id, right id)."""
        return list(self._merges)

    @property
    def vocab_size(self):
        """The number of ids: 256 bytes + merges + special tokens."""
        return len(self._bytes_from_id)

    @property
    def special_tokens(self):
        """Id of each special token, {text: id}, in id order."""
        return dict(self._special_ids)

    @property
    def end_of_text_id(self):
        """Id of `<|endoftext|>`, or None in a vocabulary without it."""
        return self._special_ids.get(END_OF_TEXT)

    @cached_property
    def fingerprint(self):
        """SHA-256, in hex, of everything that decides how text is encoded."""
        return _fingerprint(self.merges, list(self._special_ids))

    def encode(self, text, *, allowed_special=(), disallowed_special="all"):
        """Ids, a list of int, of a str that may contain special tokens. The contract is tiktoken's:

        special tokens in `allowed_special` (a set, or "all") become their ids, the longest one first; finding one
        in `disallowed_special` (by default all that are not allowed) raises ValueError; any other is ordinary
        text. Naming a special token this vocabulary does not have as allowed raises ValueError too.
        """
        return list(self._ids(text, allowed_special, disallowed_special))

    def encode_to_numpy(self, text, *, allowed_special=(), disallowed_special="all"):
        """As `encode`, for a str or bytes of any length, into int32[tokens]."""
        return np.fromiter(self._ids(text, allowed_special, disallowed_special), np.int32)

    def encode_ordinary(self, text):
        """Ids of a str in which special tokens have no meaning. Use it for everything a user wrote."""
        return list(self._ids(text, (), ()))

    def encode_bytes(self, data):
        """Ids of any bytes, as ordinary text; bytes that are not UTF-8 survive the round trip."""
        return list(self._ids(memoryview(data).tobytes(), (), ()))

    def token_bytes(self, token_id):
        """The bytes one id stands for; a special token stands for its text. Raises ValueError for an unknown id."""
        return self.decode_bytes([token_id])

    def decode_bytes(self, ids):
        """The bytes a sequence or 1-D integer array of ids stands for. Raises ValueError for an unknown id."""
        ids = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        for token_id in ids:
            # A negative index would silently count from the end.
            if not 0 <= token_id < self.vocab_size:
                raise ValueError(f"Token id {token_id} is not in this vocabulary of {self.vocab_size} ids.")
        return b"".join(map(self._bytes_from_id.__getitem__, ids))

    def decode(self, ids, errors="replace"):
        """The text of ids, special tokens included; `errors` says what to do with bytes that are not UTF-8."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def _ids(self, text, allowed_special, disallowed_special):
        allowed = set(self._special_ids if allowed_special == "all" else allowed_special)
        if unknown := allowed - self._special_ids.keys():
            raise ValueError(
                f"{sorted(unknown)[0]!r} is not a special token of this vocabulary, which has "
                f"{list(self._special_ids)}. Pass a set of these, or 'all'."
            )
        disallowed = set(self._special_ids) - allowed if disallowed_special == "all" else set(disallowed_special)
        text = text_from(text)
        if found := _split_at(disallowed, text, maxsplit=1)[1:2]:
            raise ValueError(
                f"The text contains the special token {found[0]!r}. To encode it as its own id, pass "
                f"allowed_special={{{found[0]!r}}}; to encode it as ordinary text, pass disallowed_special=(), "
                "or call encode_ordinary to do so for every special token."
            )
        parts = _split_at(allowed, text)
        runs = ((self._special_ids[part],) if index % 2 else self._ordinary(part) for index, part in enumerate(parts))
        return chain.from_iterable(runs)

    def _ordinary(self, text):
        return chain.from_iterable(map(self._piece_ids, pieces(text)))

    def _piece_ids(self, piece):
        ids = self._cache.get(piece)
        if ids is None:
            ids = _apply_merges([ID_FROM_BYTE[byte] for byte in bytes_of(piece)], self._merges)
            if len(piece) <= CACHE_PIECE_CHARACTERS:
                if len(self._cache) >= CACHE_PIECES:
                    self._cache.clear()
                self._cache[piece] = ids
        return ids


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
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


def _apply_merges(symbols, merges):
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


def _checked_special_tokens(special_tokens):
    tokens = [special_tokens] if isinstance(special_tokens, str) else list(special_tokens)
    for token in tokens:
        if not isinstance(token, str) or not token or token != text_from(token):
            raise ValueError(f"Special token {token!r} must be a non-empty string of valid Unicode.")
    if len(set(tokens)) < len(tokens):
        raise ValueError(f"Special tokens {tokens} repeat one another. Name each once.")
    return tokens


def _split_at(tokens, text, maxsplit=0):
    """[text, token, text, token, ..., text], preferring the longest of tokens that begin at one place."""
    if not tokens:
        return [text]
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text, maxsplit=maxsplit)


def _fingerprint(merges, special_tokens):
    content = json.dumps([FILE_VERSION, UNICODE_VERSION, merges, special_tokens], separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()

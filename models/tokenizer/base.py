"""What all tokenizers do alike: special tokens, entry points for text and bytes, and the way back from ids."""

from functools import cached_property
from itertools import chain

import numpy as np

from models.tokenizer.byte_table import ByteTable, row_of_ids
from models.tokenizer.pretokenize import byte_view, text_from
from models.tokenizer.special_tokens import END_OF_TEXT, checked_special_tokens, permitted, split_at

# Every id below the highest takes a row in a model's embedding, so a larger one can only be a mistake.
MOST_IDS = 1 << 24


class BaseTokenizer:
    """A vocabulary: the bytes that each id stands for, and the special tokens among them.

    A subclass gives `_ordinary(text)`, the ids of a text without special tokens, and `fingerprint`.
    """

    def __init__(self, bytes_from_id, special_tokens):
        """Build from {id: bytes} and special tokens, as texts that are numbered after all other ids or {text: id}.

        Raises ValueError for special tokens that are empty, repeated or not strings, and for ids that are taken, not
        integers, negative or absurdly large.
        """
        self._bytes_from_id = dict(bytes_from_id)
        texts = checked_special_tokens(special_tokens)
        following = {text: self._first_free_id() + index for index, text in enumerate(texts)}
        ids = special_tokens if isinstance(special_tokens, dict) else following
        for token_id in (*self._bytes_from_id, *ids.values()):
            if type(token_id) is not int or not 0 <= token_id < MOST_IDS:
                raise ValueError(f"The token id {token_id!r} is not an integer from 0 to {MOST_IDS - 1}.")
        self._special_ids = dict(sorted(ids.items(), key=lambda item: item[1]))
        for text, token_id in self._special_ids.items():
            if token_id in self._bytes_from_id:
                raise ValueError(f"Special token {text!r} cannot have the id {token_id}: another token has it.")
            self._bytes_from_id[token_id] = text.encode("utf-8")
        self._special_tokens_follow = self._special_ids == following
        self._vocab_size = self._first_free_id()

    @property
    def vocab_size(self):
        """All ids lie below it. It is the number of ids, except in a vocabulary read from a file that has gaps."""
        return self._vocab_size

    @property
    def special_tokens(self):
        """Id of each special token, {text: id}, in id order."""
        return dict(self._special_ids)

    @property
    def special_tokens_as_given(self):
        """The shortest `special_tokens` that makes this vocabulary again: a list of texts, or {text: id}."""
        return list(self._special_ids) if self._special_tokens_follow else self.special_tokens

    @property
    def end_of_text_id(self):
        """Id of `<|endoftext|>`, or None in a vocabulary without it."""
        return self._special_ids.get(END_OF_TEXT)

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
        if isinstance(data, str):
            raise TypeError("encode_bytes reads bytes; encode reads str.")
        return list(self._ids(byte_view(data), (), ()))

    @property
    def byte_lengths(self):
        """Bytes that each id stands for, int32[vocab_size]; 0 for an id that a vocabulary with gaps lacks."""
        return self._byte_table.lengths

    def token_bytes(self, token_id):
        """The bytes one id stands for; a special token stands for its text. Raises ValueError for an unknown id."""
        if token_id not in self._bytes_from_id:
            raise ValueError(f"Token id {token_id} is not in this vocabulary of {self.vocab_size} ids.")
        return self._bytes_from_id[token_id]

    def decode_bytes(self, ids, unknown="error"):
        """The bytes that ids, a sequence or a 1-D integer array, stand for.

        An id that is negative or not in this vocabulary raises ValueError; with `unknown` "ignore" it is left out, with
        "replace" it becomes U+FFFD.
        """
        return self._byte_table.join(row_of_ids(ids), unknown)

    def decode(self, ids, errors="replace", unknown="error"):
        """The text of ids, special tokens included; `errors` says what to do with bytes that are not UTF-8, `unknown`
        what to do with ids that are not in this vocabulary (see `decode_bytes`).
        """
        return self.decode_bytes(ids, unknown).decode("utf-8", errors)

    @cached_property
    def _byte_table(self):
        return ByteTable(self._bytes_from_id)

    def _ids(self, text, allowed_special, disallowed_special):
        text = text_from(text)
        parts = split_at(permitted(self._special_ids, text, allowed_special, disallowed_special), text)
        runs = ((self._special_ids[part],) if index % 2 else self._ordinary(part) for index, part in enumerate(parts))
        return chain.from_iterable(runs)

    def _ordinary(self, text):
        """The ids, an iterable, of a text made by `text_from` in which special tokens have no meaning."""
        raise NotImplementedError

    def _first_free_id(self):
        return max(self._bytes_from_id, default=-1) + 1

    def _more_special_tokens(self, tokens):
        """{text: id} of this vocabulary's special tokens and then those of `tokens` that it does not have yet."""
        new = [token for token in checked_special_tokens(tokens) if token not in self._special_ids]
        return self._special_ids | {token: self.vocab_size + index for index, token in enumerate(new)}

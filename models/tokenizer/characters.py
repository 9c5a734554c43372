"""One id for each character: the smallest tokenizer there is, for small models and for comparison with nanoGPT's."""

import hashlib
import json
from functools import cached_property

import numpy as np

from models.tokenizer.base import BaseTokenizer
from models.tokenizer.pretokenize import bytes_of, text_from
from models.tokenizer.special_tokens import checked_special_tokens, split_at

FINGERPRINT_VERSION = 1
CHARACTERS_SHOWN = 20


class CharacterTokenizer(BaseTokenizer):
    """A vocabulary of the characters of a text, numbered from 0 in the order of their code points.

    The special tokens follow. A text with any other character cannot be encoded.
    """

    def __init__(self, characters, special_tokens=()):
        """Build from a str of the characters, in any order, and special tokens as in `BaseTokenizer`.

        Raises ValueError if there is no character.
        """
        self._code_points = np.unique(_code_points(characters))
        if not len(self._code_points):
            raise ValueError("A vocabulary of characters needs at least one. Give a text that is not empty.")
        super().__init__({index: bytes_of(chr(point)) for index, point in enumerate(self._code_points)}, special_tokens)

    @classmethod
    def train(cls, text, special_tokens=()):
        """The vocabulary of the characters in a str or UTF-8 bytes, those inside of special tokens left out."""
        special_tokens = checked_special_tokens(special_tokens)
        return cls("".join(split_at(special_tokens, text_from(text))[::2]), special_tokens)

    def with_special_tokens(self, tokens):
        """A copy with more special tokens, numbered from `vocab_size` on; those it has already keep their ids."""
        return CharacterTokenizer(self.characters, self._more_special_tokens(tokens))

    @property
    def characters(self):
        """The characters, a str in the order of their ids."""
        return "".join(map(chr, self._code_points))

    @cached_property
    def fingerprint(self):
        """SHA-256, in hex, of everything that decides how text is encoded."""
        content = ["characters", FINGERPRINT_VERSION, self.characters, self.special_tokens_as_given]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode("ascii")).hexdigest()

    def _ordinary(self, text):
        points = _code_points(text)
        ids = np.searchsorted(self._code_points, points)
        unknown = np.unique(points[self._code_points[np.minimum(ids, len(self._code_points) - 1)] != points])
        if len(unknown):
            shown = ", ".join(repr(chr(point)) for point in unknown[:CHARACTERS_SHOWN])
            raise ValueError(
                f"The text has {len(unknown)} characters that are not among the {len(self._code_points)} of this "
                f"vocabulary: {shown}{', ...' if len(unknown) > CHARACTERS_SHOWN else ''}. "
                "Leave them out, or use a byte-level tokenizer, which has ids for every text."
            )
        return ids.tolist()


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)

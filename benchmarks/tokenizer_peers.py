"""One tokenizer library in a process of its own: learning, encoding, and the results as digests."""

import hashlib
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.peers import BASELINE
from benchmarks.remote import resident_mib
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import load_tokenizer, save_tokenizer
from models.tokenizer.pretokenize import SAFE_CUT

VOCABULARY = 32_000
DOCUMENT = 1 << 16
ENCODED = 10
"""A tenth of what is learned from is encoded in memory."""
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def documents_of(text):
    """The text in parts of about DOCUMENT characters, between which no piece lies."""
    cuts = [0]
    while match := SAFE_CUT.search(text, cuts[-1] + DOCUMENT):
        cuts.append(match.start() + 1)
    return [text[start:end] for start, end in pairwise([*cuts, len(text)])]


class TokenizerPeer:
    """``vocabulary`` is a tokenizer.json that euler_ir writes and the others read."""

    def __init__(self, peer, source, vocabulary, threads):
        os.environ |= {"RAYON_NUM_THREADS": str(threads), "EULER_IR_THREADS": str(threads)}
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
        self._library = _LIBRARIES[peer](vocabulary)
        self._source, self._vocabulary = source, vocabulary
        text = Path(source).read_bytes().decode("utf-8")
        self._given = text if peer == BASELINE else documents_of(text)
        some = text[: len(text) // ENCODED]
        self._some = documents_of(some) if peer == "tokenizers" else some

    def resident(self, field):
        """MiB of the process, as `resident_mib`."""
        return resident_mib(field)

    def write_vocabulary(self):
        """Learn the vocabulary that encoding uses."""
        save_tokenizer(Tokenizer.train(self._given, VOCABULARY, ()), self._vocabulary, "huggingface")

    def train(self):
        """Milliseconds of learning, as a list of one."""
        return [_milliseconds(lambda: self._library.train(self._given))]

    def learned(self, like=None):
        """A digest of what the merges make, in order; ``like`` names the peer that decides ties."""
        if like is not None:
            self._library.train(self._given, "bytes" if like == "rustbpe" else "gpt2")
        return hashlib.sha256(b"\0".join(self._library.tokens())).hexdigest()

    def encode(self, cold):
        """Milliseconds of encoding, as a list of one; ``cold``: with a tokenizer that has not encoded before."""
        if cold:
            self._library.load()
        return [_milliseconds(lambda: self._library.encode(self._some))]

    def digest(self):
        """A digest of the ids."""
        self._library.load()
        return hashlib.sha256(np.asarray(self._library.ids(self._some), np.int32)).hexdigest()

    def encode_file(self, threads):
        """Milliseconds from a file of text to a file of tokens, as a list of one."""
        os.environ["EULER_IR_THREADS"] = str(threads or os.environ["RAYON_NUM_THREADS"])
        self._library.load()
        with tempfile.TemporaryDirectory() as folder:
            return [_milliseconds(lambda: self._library.encode_file(self._source, Path(folder) / "tokens"))]


def _milliseconds(action):
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


class _EulerIr:
    def __init__(self, vocabulary):
        self._vocabulary = vocabulary

    def train(self, text, tie_break="gpt2"):
        self._tokenizer = Tokenizer.train(text, VOCABULARY, (), tie_break=tie_break)

    def tokens(self):
        return map(self._tokenizer.token_bytes, range(256, self._tokenizer.vocab_size))

    def load(self):
        self._tokenizer = load_tokenizer(self._vocabulary)

    def encode(self, text):
        return self._tokenizer.encode_to_numpy(text)

    ids = encode

    def encode_file(self, source, destination):
        from models.data.text_files import encode_file

        encode_file(self._tokenizer, source, destination)


class _RustBpe:
    def __init__(self, vocabulary):
        import rustbpe

        self._new = rustbpe.Tokenizer

    def train(self, documents):
        self._tokenizer = self._new()
        self._tokenizer.train_from_iterator(documents, VOCABULARY, pattern=PATTERN)

    def tokens(self):
        return [bytes(token) for token, _ in self._tokenizer.get_mergeable_ranks()][256:]


class _Tokenizers:
    def __init__(self, vocabulary):
        self._vocabulary = vocabulary

    def train(self, documents):
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
        self._tokenizer = Tokenizer(models.BPE())
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._tokenizer.train_from_iterator(documents, trainer)

    def tokens(self):
        from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID, CHARACTER_FROM_ID

        bytes_from = {character: bytes([byte]) for character, byte in zip(CHARACTER_FROM_ID, BYTE_FROM_ID, strict=True)}
        for pair in json.loads(self._tokenizer.to_str())["model"]["merges"]:
            yield b"".join(bytes_from[character] for token in pair for character in token)

    def load(self):
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(self._vocabulary))

    def encode(self, documents):
        return self._tokenizer.encode_batch(documents)

    def ids(self, documents):
        return [token for encoding in self.encode(documents) for token in encoding.ids]


class _Tiktoken:
    def __init__(self, vocabulary):
        self._vocabulary = vocabulary

    def load(self):
        import tiktoken

        tokenizer = load_tokenizer(self._vocabulary)
        ranks = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
        self._tokenizer = tiktoken.Encoding("own", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    def encode(self, text):
        return self._tokenizer.encode_to_numpy(text)

    ids = encode


_LIBRARIES = {BASELINE: _EulerIr, "rustbpe": _RustBpe, "tokenizers": _Tokenizers, "tiktoken": _Tiktoken}

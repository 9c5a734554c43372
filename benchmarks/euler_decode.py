"""Decoding by `models.generation`, on graphs that euler_ir compiles for the CPU."""

import time

from benchmarks.euler_gpt2 import config_of, first_state
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.language_model import evaluation_graph
from models.tokenizer.bpe import Tokenizer

SAMPLING = Sampling(0.9, top_k=50, top_p=0.95, repetition_penalty=1.2)


class EulerDecoder:
    """One sequence of any length; the `window` of its peers it chooses itself.

    It begins with weights of its own and writes them to the file `weights`. They are kept as f32 or in the type `kept`.
    """

    kept = None

    def __init__(self, workload, weights, threads, window):
        config = config_of(workload)
        state = first_state(evaluation_graph(config, 1, 1), weights)
        # Tokens of two bytes, up to the last, which ends a text.
        pairs = [divmod(number, 256) for number in range(workload.vocab_size - 257)]
        tokenizer = Tokenizer(pairs) if pairs else Tokenizer([], ())
        self._sampler = Sampler(config, state, tokenizer, self.kept, threads=threads)

    def begin(self, tokens):
        """Logits after `tokens`, from an empty cache on."""
        self._reader, self._ids = self._sampler.reader(), tokens.tolist()
        return self._reader.logits([self._ids])[0]

    def next(self, token):
        """Logits after one `token` more."""
        self._ids.append(token)
        return self._reader.logits([self._ids])[0]

    def text_ms(self, batch, prompt, count):
        """Milliseconds of a step in which `batch` texts grow by a token each, after prompts of `prompt` tokens.

        Everything that a user of `Sampler.texts` waits for is in it; it is the mean of `count` steps.
        """
        return (self._seconds(batch, prompt, count + 1) - self._seconds(batch, prompt, 1)) / count * 1e3

    def _seconds(self, batch, prompt, count):
        start = time.perf_counter()
        for _ in self._sampler.texts(["ab" * prompt] * batch, count, SAMPLING):
            pass
        return time.perf_counter() - start


class HalfEulerDecoder(EulerDecoder):
    """With bf16 weights."""

    kept = "bf16"


class ByteEulerDecoder(EulerDecoder):
    """With i8 weights."""

    kept = "i8"

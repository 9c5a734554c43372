"""Drawing text from a language model, token by token, for one prompt or several at once."""

import numpy as np

import euler_ir as ei
from models.generation.predictor import Predictor
from models.generation.reader import Reader
from models.generation.sampling import Sampling, distribution, draw
from models.generation.stopping import TextStream
from models.language_model import evaluation_graph


class Sampler:
    """Continues texts of `tokenizer` with a language model. The other arguments are those of `Predictor`."""

    def __init__(self, config, state, tokenizer, weights=None, backend="cpu", threads=None):
        # A model may have more ids than its tokenizer, and a tokenizer from a file gaps: those stand for nothing.
        self._vocab_size = min(config.vocab_size, tokenizer.vocab_size)
        self._gaps = np.flatnonzero(tokenizer.byte_lengths[: self._vocab_size] == 0)
        self.tokenizer, self.context = tokenizer, config.context
        self._predictor = Predictor(config, state, weights, backend, threads)

    @classmethod
    def of_checkpoint(cls, checkpoint, weights=None, backend="cpu", threads=None):
        """A sampler with the parameters of a `Checkpoint`. Raises ValueError when they are not its model's."""
        state = ei.initial_state(evaluation_graph(checkpoint.config, 1, 1))
        checkpoint.restore_parameters(state)
        return cls(checkpoint.config, state, checkpoint.tokenizer, weights, backend, threads)

    def reader(self):
        """A `Reader` of one text, for `tokens`."""
        return Reader(self._predictor)

    def tokens(self, prompt_ids, count, sampling=Sampling(), seed=0, stop_ids=None, reader=None):
        """Yield up to `count` ids that continue the non-empty list `prompt_ids`; ends after one of `stop_ids`.

        Without `stop_ids` it is the end of text that ends it. The same seed gives the same ids. Beyond its context the
        model sees the end of the text (`visible` of `models.generation.reader`). A `reader` keeps what it has read for
        another call. Raises ValueError for an empty prompt or an id that the model does not know.
        """
        row = self._row(0, prompt_ids, sampling, seed, stop_ids)
        for _, token_id in self._grow([row], count, reader or self.reader()):
            yield token_id

    def text(self, prompt, count, sampling=Sampling(), seed=0, stop=()):
        """Yield pieces of text that continue `prompt`, as up to `count` tokens are drawn; each is whole characters.

        The text ends before the first of the strings `stop`, or the end of text.
        """
        for _, piece in self.texts([prompt], count, sampling, seed, stop):
            yield piece

    def texts(self, prompts, count, sampling=Sampling(), seed=0, stop=()):
        """Yield (number of the prompt, piece of text) for several prompts that are continued together.

        Prompt number n has the seed `seed` + n: it is continued as it would be by itself.
        """
        streams = [TextStream(self.tokenizer, stop) for _ in prompts]
        rows = [
            self._row(number, self.tokenizer.encode_ordinary(prompt), sampling, seed + number)
            for number, prompt in enumerate(prompts)
        ]
        for row, token_id in self._grow(rows, count, Reader(self._predictor, len(rows))):
            stream = streams[row.number]
            piece = "" if token_id in row.stop_ids else stream.push(token_id)
            row.ended = row.ended or stream.stopped
            if row.ended:
                piece += stream.finish()
            if piece:
                yield row.number, piece

    def _row(self, number, prompt_ids, sampling, seed, stop_ids=None):
        ids = list(prompt_ids)
        if not ids:
            raise ValueError("The prompt is empty. Give at least one character to continue.")
        if unknown := [token_id for token_id in ids if not 0 <= token_id < self._vocab_size]:
            raise ValueError(f"Token id {unknown[0]} of the prompt is not among the model's {self._vocab_size} ids.")
        if seed < 0:
            raise ValueError(f"The seed must be 0 or above, not {seed}.")
        return _Row(number, ids, sampling, seed, {self.tokenizer.end_of_text_id} if stop_ids is None else stop_ids)

    def _grow(self, rows, count, reader):
        """Yield (row, new id) for each of `rows` in turn, until each has `count` new ids or is ended."""
        for number in range(1, count + 1):
            for row, logits in zip(rows, reader.logits([row.ids for row in rows])):
                logits[self._gaps] = float("-inf")
                token_id = row.add(logits[: self._vocab_size])
                row.ended = row.ended or number == count
                yield row, token_id
            kept = [place for place, row in enumerate(rows) if not row.ended]
            if not kept:
                return
            if len(kept) < len(rows):
                rows = [rows[place] for place in kept]
                reader.keep(kept)


class _Row:
    """A text that grows by ids that are drawn."""

    def __init__(self, number, ids, sampling, seed, stop_ids):
        self.number, self.ids, self.stop_ids = number, ids, stop_ids
        self.ended = False
        self._sampling, self._random = sampling, np.random.Generator(np.random.Philox(seed))
        self._seen = dict.fromkeys(ids if sampling.penalize_prompt else ())

    def add(self, logits):
        """Draw the next id by its logits, append it and return it."""
        penalized = self._sampling.repetition_penalty != 1
        token_id = draw(*distribution(logits, self._sampling, list(self._seen) if penalized else ()), self._random)
        self.ids.append(token_id)
        self._seen[token_id] = None
        self.ended = token_id in self.stop_ids
        return token_id

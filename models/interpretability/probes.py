"""Probes: how probable a model finds certain continuations of certain texts, exactly, however the text is tokenized."""

import itertools
import re
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.interpretability.subject import as_tokens, check_finite, log_probabilities, look_graph
from models.training.metrics import MetricsFile

SPEAKER = re.compile(r"[A-Z][A-Za-z ]+:")
"""A line that says who speaks, as Tiny Shakespeare has them."""


@dataclass(frozen=True)
class Probe:
    """P(the text goes on with one of `continuations` | it was one of `prefixes` so far), a mean over the prefixes.

    Raises ValueError when one continuation begins with another, so that it would count twice, or when one is empty.
    """

    name: str
    prefixes: tuple[str, ...]
    continuations: tuple[str, ...]

    def __post_init__(self):
        if not self.prefixes or not self.continuations or "" in self.continuations:
            raise ValueError(f"The probe {self.name!r} needs prefixes, and continuations that are not empty.")
        ordered = sorted(self.continuations)
        for first, second in zip(ordered, ordered[1:]):
            if second.startswith(first):
                raise ValueError(f"In the probe {self.name!r} {second!r} begins with {first!r} and would count twice.")


class NextBytes:
    """What bytes follow a text, by a model with the weights in `state`, a State that is read at each call.

    `room` bounds the tokens of a text; of a longer one the last are seen.
    """

    def __init__(self, config, state: Mapping, tokenizer, room=64, backend="cpu", threads=None):
        self._state, self._tokenizer, self._room = state, tokenizer, min(room, config.context)
        self._predict = ei.compile(_graph(config, self._room), backend=backend, threads=threads)
        special = set(tokenizer.special_tokens.values())
        known = np.flatnonzero(tokenizer.byte_lengths).tolist()
        self._tokens = [(token, tokenizer.token_bytes(token)) for token in known if token not in special]
        self._fits = {}

    def measure(self, probes):
        """{name: probability} of probes, with the weights of now."""
        known, found = {}, {}
        for probe in probes:
            pairs = itertools.product(probe.prefixes, probe.continuations)
            found[probe.name] = sum(self.probability(*pair, known) for pair in pairs) / len(probe.prefixes)
        return found

    def probability(self, prefix, continuation, known=None):
        """P(`continuation` follows | `prefix`), both texts.

        The prefix is tokenized as it is before the continuation: of the ids of both together, those within the prefix
        are given. Where a token crosses its end, the probability is that of a token that fits all of the rest over that
        of one that fits the rest of the prefix. Raises ValueError when no whole token is within the prefix.
        """
        known = {} if known is None else known
        given, rest = self.given(prefix, continuation)
        wanted = rest + continuation.encode("utf-8", "surrogatepass")
        return self.starts_with(given, wanted, known) / (self.starts_with(given, rest, known) if rest else 1.0)

    def given(self, prefix, continuation):
        """(ids within the prefix, its bytes behind them), as `probability` takes them."""
        ids, end = self._tokenizer.encode_ordinary(prefix + continuation), len(prefix.encode("utf-8", "surrogatepass"))
        count, length = 0, 0
        while (longer := length + len(self._tokenizer.token_bytes(ids[count]))) <= end:
            count, length = count + 1, longer
        if not count:
            raise ValueError(f"The prefix {prefix!r} ends within its first token. Begin it earlier in the text.")
        return tuple(ids[:count]), prefix.encode("utf-8", "surrogatepass")[length:]

    def starts_with(self, ids, data, known):
        """P(the bytes after `ids` begin with `data`), over all ways to cut them into tokens.

        Special tokens have no bytes. `known` keeps distributions from call to call, as long as the weights stay.
        """
        if ids not in known:
            known[ids] = self._distribution(ids)
        whole, parts = self._fitting(data)
        total = known[ids][whole].sum()
        for token, length in parts:
            total += known[ids][token] * self.starts_with((*ids, token), data[length:], known)
        return float(total)

    def _fitting(self, data):
        """(ids of the tokens that begin with `data`, [(id, length) of those that are a beginning of it])."""
        if data not in self._fits:
            whole = [token for token, text in self._tokens if text.startswith(data)]
            parts = [(token, len(text)) for token, text in self._tokens if data.startswith(text) and text != data]
            self._fits[data] = np.array(whole, np.int64), parts
        return self._fits[data]

    def _distribution(self, ids):
        seen = ids[-self._room :]
        tokens = np.zeros(self._room, np.int32)
        tokens[: len(seen)] = seen
        found = self._predict(self._state, tokens=as_tokens(tokens), position=np.int64(len(seen) - 1))
        check_finite(found["log_probabilities"])
        return np.exp(found["log_probabilities"])


def _graph(config, room):
    """`tokens`, i32[1, room], and `position`, i64[], to `log_probabilities`, f64[vocab], of the token behind it."""
    graph = look_graph(config, room)
    with graph:
        position = ei.input("position", (), ei.i64)
        last = ei.take(graph.outputs["logits"][0], position, axis=0)
        ei.output(log_probabilities=log_probabilities(last))
    return graph


def speaker_lines(text):
    """(share of the lines with text that say who speaks, the speakers' names), but for the last line: it may go on."""
    lines = [line for line in text.split("\n")[:-1] if line.strip()]
    names = [line[:-1] for line in lines if SPEAKER.fullmatch(line)]
    return (len(names) / len(lines) if lines else 0.0), names


CAPITALS = tuple(string.ascii_uppercase)
MADE_UP = ("ZORBAND", "MARTELLA", "QUENTIO", "BRADOX")
"""Names that no play has: who goes on from them as from a speaker's has learned more than a list."""


def speaker_probes(text, names=8):
    """The probes of how plays say who speaks, a blank line and `NAME:` on a line of its own, for the text of plays.

    Known names are the `names` speakers of one word who speak most often in it. Raises ValueError when there are none.
    """
    speakers = Counter(name for name in speaker_lines(text)[1] if name.isupper() and " " not in name)
    known = [name for name, _ in speakers.most_common(names)]
    if not known:
        raise ValueError("Nobody speaks in the text: it has no line like 'ROMEO:'.")
    known, made_up = ([f".\n\n{name}" for name in each] for each in (known, MADE_UP))
    return (
        Probe("capital letter after a blank line", (".\n\n", "!\n\n", "?\n\n"), CAPITALS),
        Probe("':' after a known name", tuple(known), (":",)),
        Probe("':' after a made-up name", tuple(made_up), (":",)),
        Probe("line break after 'NAME:'", tuple(f"{prefix}:" for prefix in known), ("\n",)),
    )


class ProbeLog:
    """An observer of a `TrainingRun` that measures probes after each step for which `wanted(step)`, into a JSONL file.

    Each record has the `step`, the `probes` by name, and of a text of `sample_tokens` tokens, drawn as the model finds
    them likely, the share of its lines that say who speaks, `speaker_lines`, and of those the share whose name is one
    of `speakers`, `known_speakers` (None when there are none). `resumed_at` is the step after which the run goes on.
    """

    def __init__(self, path, wanted, task, probes, speakers, sample_tokens=300, resumed_at=0):
        self._file, self._wanted, self._task = MetricsFile(path, resumed_at), wanted, task
        self._probes, self._speakers, self._sample_tokens = probes, frozenset(speakers), sample_tokens
        self._next_bytes = self._sampler = None

    def before_step(self, step, trainer):
        """Nothing: what a model knows is measured after its steps."""

    def after_step(self, record, trainer):
        if not self._wanted(record["step"]):
            return
        if self._next_bytes is None:
            options = {"backend": self._task.backend, "threads": self._task.threads}
            parts = self._task.config, trainer.state, self._task.tokenizer
            self._next_bytes, self._sampler = NextBytes(*parts, **options), Sampler(*parts, **options)
        text = "".join(self._sampler.text("\n", self._sample_tokens, Sampling(temperature=1), seed=record["step"]))
        share, names = speaker_lines(text)
        known = sum(name in self._speakers for name in names) / len(names) if names else None
        measured = {"probes": self._next_bytes.measure(self._probes), "speaker_lines": share, "known_speakers": known}
        self._file.append({"step": record["step"], "loss": record["loss"], **measured})

    def close(self):
        self._file.close()

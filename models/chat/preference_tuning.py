"""Preference tuning: a chat model learns to prefer one answer to another, without going far from what it was."""

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from models.chat.answers import Answers, shown_answers
from models.chat.conversation import write_json_lines
from models.chat.pairs import read_pairs, sides
from models.chat.preferences import Preference
from models.chat.reference import read_reference, reference_log_probs, write_reference
from models.data.batches import IGNORED_LABEL
from models.data.passes import Passes
from models.data.split import split_by_question
from models.named_tensors import tensors_digest
from models.training.checkpoint import Checkpoint
from models.training.folder import RunFolder
from models.training.held_out import HeldOut
from models.training.run import TrainingRun, checkpoint_to_continue
from models.training.settings import Settings
from models.training.task import Task

PAIR_FILES = "train.jsonl", "validation.jsonl"
REFERENCE_FILE = "reference.safetensors"


@dataclass(frozen=True, kw_only=True)
class PreferenceSettings(Settings):
    """`start_from` is the checkpoint that was begun with, `pairs` the file that is learned from; a row is a pair.

    `loss`, `beta`, `label_smoothing` and `sft_weight` are those of `Preference`. With `reference_free` the reference
    finds all answers equally likely; else it is the model at the beginning. `held_back` is the share of pairs that are
    kept for validation; `reference` is the digest of the reference's weights, or "none".
    """

    steps: int = 150
    warmup: int = 15
    weight_decay: float = 0.0
    start_from: str
    pairs: str
    loss: str = "dpo"
    beta: float = 0.1
    label_smoothing: float = 0.0
    sft_weight: float = 0.0
    reference_free: bool = False
    held_back: float = 0.05
    reference: str = ""

    def __post_init__(self):
        super().__post_init__()
        self.objective  # raises ValueError for what it does not know

    @property
    def tokens_per_step(self):
        return 2 * super().tokens_per_step

    @property
    def objective(self):
        return Preference(self.loss, self.beta, self.label_smoothing, self.sft_weight)

    @classmethod
    def for_model(cls, config, **given):
        """Settings that suit a model and the number of steps, except for what is `given`."""
        # A twentieth of what fine-tuning takes: preferences move a model fast, and away from what it can say.
        rate = min(1e-4, 1.6 / config.width**2)
        return cls.suited(validations=5, **{"context": config.context, "learning_rate": rate, **given})


class Sides:
    """Those of `pairs` that fit into `context` tokens, as `sides`, and their log-probabilities by the reference."""

    def __init__(self, pairs, tokenizer, context):
        found = [(pair, sides(pair, tokenizer, context)) for pair in pairs]
        self.pairs = [pair for pair, each in found if each]
        self.sides = [each for _, each in found if each]
        self.left_out = len(pairs) - len(self.pairs)
        self.reference = np.zeros((len(self.sides), 2), np.float32)
        self._context = context

    def batch(self, indices, batch_size):
        """Inputs of `Preference` for up to `batch_size` pairs; what is left stays empty."""
        tokens = np.zeros((batch_size, 2, self._context), np.int32)
        targets = np.full_like(tokens, IGNORED_LABEL)
        reference = np.zeros((batch_size, 2), np.float32)
        for row, index in enumerate(indices):
            reference[row] = self.reference[index]
            for side, (ids, labels) in enumerate(self.sides[index]):
                tokens[row, side, : len(ids)], targets[row, side, : len(ids)] = ids, labels
        return {"tokens": tokens, "targets": targets, "reference": reference}

    def batches(self, batch_size):
        """All of them in turn, a list of inputs."""
        starts = range(0, len(self.sides), batch_size)
        return [self.batch(range(start, min(start + batch_size, len(self.sides))), batch_size) for start in starts]


class PreferenceTuning(Task):
    """Learning to prefer the chosen answers of `training`; `validation` is not learned from. Both are `Sides`."""

    unit = "mean of pairs"

    def __init__(self, settings, config, tokenizer, training, validation, backend="cpu", threads=None):
        """Raises ValueError when there is nothing to learn from."""
        title = f"Preference tuning ({settings.loss}) on {Path(settings.pairs).name}"
        super().__init__(title, config, tokenizer, settings, backend, threads)
        if not training.sides:
            raise ValueError(f"No pair of answers fits into {settings.context} tokens. Use a longer context.")
        self.objective = settings.objective
        self._training, self._validation = training, validation
        self._passes = Passes(len(training.sides), settings.batch_size, settings.accumulate, settings.seed)
        batches, shape = validation.batches(settings.batch_size), (settings.batch_size, settings.context)
        self._held_out = HeldOut(config, *shape, self.objective, batches, backend, threads)
        self._answers = None

    def inputs(self, step, micro_step):
        indices = self._passes.indices(step, micro_step)
        return self._training.batch(indices, self.settings.batch_size) | self.dropout_inputs(step, micro_step)

    def validate(self, state):
        """The objective's loss and measures for pairs held back, their names beginning with `validation_`."""
        return {f"validation_{name}": value for name, value in self._held_out.of(state).items()}

    def in_words(self, validated):
        return (
            f"validation loss {validated['validation_loss']:.3f}, chosen preferred in "
            f"{validated['validation_accuracy']:.0%}, margin {validated['validation_margin']:.3f}"
        )

    def description(self):
        settings, training = self.settings, self._training
        reference = "without a reference" if settings.reference_free else "which is also the reference"
        lines = [
            f"{self.title}: {self.config.build().parameter_count():,} parameters",
            f"from {settings.start_from}, {reference}",
            f"{len(training.sides):,} pairs to learn from, {len(self._validation.sides):,} held back for validation; "
            f"{settings.steps} steps of {settings.batch_size * settings.accumulate} are "
            f"{settings.steps / self._passes.steps:.1f} passes",
        ]
        if left_out := training.left_out + self._validation.left_out:
            lines.append(f"Left out: {left_out:,} pairs with an answer of more than {settings.context} tokens.")
        return "\n".join(lines)

    def sample(self, state):
        if self._answers is None:
            self._answers = Answers(self.config, state, self.tokenizer, self.backend, self.threads)
        pairs = self._validation.pairs or self._training.pairs
        return shown_answers(self._answers, [pair.prompt for pair in pairs], self.settings.context)


def start_preference_tuning(folder, settings, model, backend="cpu", threads=None):
    """Begin a run in `folder`, from the Checkpoint `model` of one that chats, and write what it thinks of the answers.

    Raises FileExistsError when the folder holds a run already, ValueError or OSError for pairs that cannot be used, a
    model that does not chat, or a folder that cannot be written.
    """
    pairs = read_pairs(settings.pairs)
    if not pairs:
        raise ValueError(f"{settings.pairs} holds no pair of answers.")
    parts = split_by_question(pairs, lambda pair: pair.prompt, settings.held_back, settings.seed)
    sides = [Sides(part, model.tokenizer, settings.context) for part in parts]
    arrays = model.parameters()
    settings = replace(settings, reference="none" if settings.reference_free else tensors_digest(arrays))
    config = replace(model.config, dropout=settings.dropout)
    folder = RunFolder(folder).begin()
    with folder.abandoned_on_error():
        for name, part in zip(PAIR_FILES, parts):
            write_json_lines(folder / name, map(asdict, part))
        if not settings.reference_free:
            shape = settings.batch_size, settings.context
            for part in sides:
                batches = part.batches(settings.batch_size)
                found = reference_log_probs(config, arrays, batches, *shape, backend, threads)
                part.reference = found[: len(part.sides)]
        log_probs = {name: part.reference for name, part in zip(PAIR_FILES, sides)}
        write_reference(folder / REFERENCE_FILE, log_probs, settings.reference, _digest(sides))
        checkpoint = Checkpoint(arrays, config, model.tokenizer, 0, asdict(settings), {})
        return _run(folder, checkpoint, backend, threads)


def resume_preference_tuning(folder, given=(), backend="cpu", threads=None):
    """Continue the run in `folder` from its latest checkpoint, bit for bit as if it had never stopped.

    `given` and what is raised are those of `checkpoint_to_continue`; also ValueError when the reference in the folder
    is not the one that the run began with.
    """
    folder = RunFolder(folder)
    with folder.abandoned_on_error():
        return _run(folder, checkpoint_to_continue(folder, given), backend, threads)


def _run(folder, checkpoint, backend, threads):
    settings = PreferenceSettings.of(checkpoint.settings)
    sides = [Sides(read_pairs(folder / name), checkpoint.tokenizer, settings.context) for name in PAIR_FILES]
    log_probs = read_reference(folder / REFERENCE_FILE, settings.reference, _digest(sides))
    for name, part in zip(PAIR_FILES, sides):
        part.reference = log_probs[name]
    task = PreferenceTuning(settings, checkpoint.config, checkpoint.tokenizer, *sides, backend, threads)
    return TrainingRun(folder, checkpoint, task)


def _digest(sides):
    """SHA-256, in hex, of the tokens and targets of all pairs."""
    content = hashlib.sha256()
    for part in sides:
        content.update(b"part")
        for tokens, targets in (each for pair in part.sides for each in pair):
            content.update(b"%d:" % len(tokens) + tokens.tobytes() + targets.tobytes())
    return content.hexdigest()

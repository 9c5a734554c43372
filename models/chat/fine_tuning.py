"""Supervised fine-tuning: a pretrained model learns to answer (Ouyang et al., arXiv:2203.02155, 3.5)."""

from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from models.chat.answers import Answers, shown_answers
from models.chat.conversation import before_answer, read_conversations, render, write_json_lines
from models.chat.packing import PackedBatches, all_filled, fitting, next_trained_token
from models.chat.vocabulary import with_chat_tokens
from models.data.prepared import check_unchanged, fingerprint
from models.data.split import split_by_question
from models.training.checkpoint import Checkpoint
from models.training.folder import RunFolder
from models.training.held_out import HeldOut
from models.training.run import TrainingRun, checkpoint_to_continue
from models.training.settings import Settings
from models.training.task import Task

CONVERSATION_FILES = "train.jsonl", "validation.jsonl"
ASKED = 24
"""Conversations of each kind that validation has answered."""


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings(Settings):
    """`start_from` is the checkpoint that was begun with, `conversations` the files that are learned from.

    `train_on` says which turns of the assistant are learned (see `render`); `held_back` is the share of conversations
    that are kept for validation.
    """

    steps: int = 1000
    warmup: int = 50
    start_from: str
    conversations: tuple[str, ...]
    train_on: str = "all"
    held_back: float = 0.05

    @classmethod
    def for_model(cls, config, **given):
        """Settings that suit a model and the number of steps, except for what is `given`."""
        # From 2e-3 for nano's width of 128, which was measured, to 5e-5 for the 768 of GPT-2 124M, which is usual.
        given = {"context": config.context, "learning_rate": min(2e-3, 32 / config.width**2), **given}
        return cls.suited(validations=5, **given)


class FineTuning(Task):
    """Learning what the assistant says in `training`, a list of conversations; `validation` is not learned from."""

    objective = staticmethod(next_trained_token)

    def __init__(self, settings, config, tokenizer, training, validation, backend="cpu", threads=None):
        """Raises ValueError when no conversation of `training` fits into the context."""
        title = f"Fine-tuning on {', '.join(Path(path).name for path in settings.conversations)}"
        super().__init__(title, config, tokenizer, settings, backend, threads)
        self._given, self._validation = training, validation
        self._texts = self._fitting(training)
        shape = settings.batch_size, settings.context
        self._batches = PackedBatches(self._texts, shape[0], settings.accumulate, settings.context, settings.seed)
        batches = all_filled(self._fitting(validation), *shape)
        self._held_out = HeldOut(config, *shape, next_trained_token, batches, backend, threads)
        self._answers = None

    def _fitting(self, conversations):
        found = (render(each, self.tokenizer, self.settings.train_on) for each in conversations)
        return [text for each in found if (text := fitting(each, self.settings.context))]

    def inputs(self, step, micro_step):
        return self._batches.batch(step, micro_step) | self.dropout_inputs(step, micro_step)

    def validate(self, state):
        """{"validation_loss": nats per trained token, "ended": share of answers to new questions that end, "recalled":
        share of answers to questions from training that are those learned}; {} without conversations to validate on.
        """
        loss = self._held_out.of(state)
        if not loss:
            return {}
        answers = self._answering(state)
        new = answers.measure(self._validation[:ASKED], self.settings.context)
        known = answers.measure(self._given[:ASKED], self.settings.context)
        return {"validation_loss": loss["loss"], "ended": new["ended"], "recalled": known["exact_match"]}

    def in_words(self, validated):
        return (
            f"validation loss {validated['validation_loss']:.3f}, {validated['ended']:.0%} of answers end, "
            f"{validated['recalled']:.0%} of questions from training answered as there"
        )

    def description(self):
        settings, passes = self.settings, self._batches.passes
        used = sum(len(tokens) for tokens, _ in self._texts) / (passes.count * settings.context)
        trained = sum(int((targets >= 0).sum()) for _, targets in self._texts)
        lines = [
            f"{self.title}, from {settings.start_from}: {self.config.build().parameter_count():,} parameters",
            f"{len(self._texts):,} conversations to learn from, {trained:,} tokens of the assistant; "
            f"{len(self._validation):,} held back for validation",
            f"{passes.count:,} rows of {settings.context} tokens, {used:.0%} full; {settings.steps} steps of "
            f"{settings.batch_size * settings.accumulate} rows are {settings.steps / passes.steps:.1f} passes",
        ]
        if left_out := len(self._given) - len(self._texts):
            lines.append(f"Left out: {left_out:,} whose first answer ends after {settings.context} tokens.")
        if not self._validation:
            lines.append("Too few conversations to hold some back: validation loss is not available.")
        return "\n".join(lines)

    def sample(self, state):
        prompts = [before_answer(messages) for messages in self._validation or self._given]
        return shown_answers(self._answering(state), prompts, self.settings.context)

    def _answering(self, state):
        if self._answers is None:
            self._answers = Answers(self.config, state, self.tokenizer, self.backend, self.threads)
        return self._answers


def start_fine_tuning(folder, settings, model, backend="cpu", threads=None):
    """Begin a run in `folder`, from the Checkpoint `model`, whose tokenizer gets the tokens of a chat if it lacks them.

    Raises FileExistsError when the folder holds a run already, ValueError or OSError for conversations that cannot be
    used or a folder that cannot be written.
    """
    found = {path: read_conversations(path) for path in settings.conversations}
    if empty := [path for path, conversations in found.items() if not conversations]:
        raise ValueError(f"{empty[0]} holds no conversation.")
    parts = split_by_question(chain(*found.values()), before_answer, settings.held_back, settings.seed)
    config, tokenizer, arrays = with_chat_tokens(model.config, model.tokenizer, model.parameters(), settings.seed)
    config = replace(config, dropout=settings.dropout)
    folder = RunFolder(folder).begin()
    with folder.abandoned_on_error():
        for name, part in zip(CONVERSATION_FILES, parts):
            write_json_lines(folder / name, ({"messages": messages} for messages in part))
        data = {name: fingerprint(folder / name) for name in CONVERSATION_FILES}
        return _run(folder, Checkpoint(arrays, config, tokenizer, 0, asdict(settings), {}, data), backend, threads)


def resume_fine_tuning(folder, given=(), backend="cpu", threads=None):
    """Continue the run in `folder` from its latest checkpoint, bit for bit as if it had never stopped.

    `given` and what is raised are those of `checkpoint_to_continue`, and ValueError when conversations in the
    folder changed.
    """
    folder = RunFolder(folder)
    with folder.abandoned_on_error():
        return _run(folder, checkpoint_to_continue(folder, given), backend, threads)


def _run(folder, checkpoint, backend, threads):
    settings = FineTuningSettings.of(checkpoint.settings)
    for name, file in checkpoint.data.items():
        check_unchanged(folder / name, file)
    parts = [read_conversations(folder / name) for name in CONVERSATION_FILES]
    task = FineTuning(settings, checkpoint.config, checkpoint.tokenizer, *parts, backend, threads)
    return TrainingRun(folder, checkpoint, task)

"""Pretraining: a model and its tokenizer learn from the text of a corpus."""

from dataclasses import asdict, replace
from pathlib import Path

from models.architectures import PRESETS
from models.data.batches import Batches
from models.data.corpus import read_corpus, split_corpus
from models.data.token_files import check_token_ids, read_token_file, write_token_file
from models.generation.sampler import Sampler
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import save_tokenizer
from models.training.checkpoint import Checkpoint
from models.training.evaluation import Evaluation
from models.training.folder import RunFolder
from models.training.run import TrainingRun, checkpoint_to_continue
from models.training.settings import PretrainingSettings
from models.training.task import Task

SAMPLE_TOKENS = 120
TOKEN_FILES = "train.tokens", "validation.tokens"


class Pretraining(Task):
    """Predicting the next token of a text that is given as integer [tokens], for training and for validation."""

    measure = "bits_per_byte"

    def __init__(self, settings, config, tokenizer, train_tokens, validation_tokens, backend="cpu", threads=None):
        """Raises ValueError when the training tokens are too few for one window, or an id is not of the vocabulary."""
        title = f"GPT-2 {settings.preset} on {Path(settings.corpus).name}"
        super().__init__(title, config, tokenizer, settings, backend, threads)
        check_token_ids(train_tokens, config.vocab_size, "The training text")
        check_token_ids(validation_tokens, config.vocab_size, "The validation text")
        self._train_tokens, self._validation_tokens = train_tokens, validation_tokens
        self._batches = Batches(train_tokens, settings.batch_size, settings.context, settings.seed)
        shape = settings.batch_size, settings.context
        self._evaluation = Evaluation(config, tokenizer, validation_tokens, *shape, backend=backend, threads=threads)
        self._sampler = None

    def inputs(self, step, micro_step):
        tokens, targets = self._batches.batch(step, micro_step)
        return {"tokens": tokens, "targets": targets, **self.dropout_inputs(step, micro_step)}

    def validate(self, state):
        """{"validation_loss": nats per token, "bits_per_byte": ...}, or {} without validation text."""
        found = self._evaluation.of(state)
        return dict(zip(("validation_loss", "bits_per_byte"), found)) if found else {}

    def in_words(self, validated):
        return f"validation loss {validated['validation_loss']:.3f}, {validated['bits_per_byte']:.3f} bits per byte"

    def description(self):
        settings = self.settings
        passes = settings.steps * settings.tokens_per_step / len(self._train_tokens)
        lines = [
            f"GPT-2 {settings.preset}: {self.config.build().parameter_count():,} parameters, "
            f"byte-level BPE vocabulary of {self.tokenizer.vocab_size} tokens",
            f"{settings.corpus}: {len(self._train_tokens):,} tokens to train on, {len(self._validation_tokens):,} for "
            f"validation; {settings.steps} steps of {settings.tokens_per_step:,} tokens are {passes:.1f} passes",
        ]
        if len(self._validation_tokens) < 2:
            lines.append("The text is too short to hold some back: validation loss is not available.")
        return "\n".join(lines)

    def sample(self, state):
        if self._sampler is None:
            options = {"backend": self.backend, "threads": self.threads}
            self._sampler = Sampler(self.config, state, self.tokenizer, **options)
        return "".join(self._sampler.text("\n", SAMPLE_TOKENS, seed=self.settings.seed))


def start_pretraining(folder, settings, backend="cpu", threads=None):
    """Begin a run in `folder`: train the tokenizer on the corpus and write the token files.

    Raises FileExistsError when the folder holds a run already, ValueError or OSError for a corpus that cannot be used
    or a folder that cannot be written.
    """
    if settings.context > PRESETS[settings.preset].context:
        raise ValueError(
            f"A context of {settings.context} tokens is more than the {PRESETS[settings.preset].context} of the "
            f"preset {settings.preset}. Use a shorter context or a larger preset."
        )
    folder = RunFolder(folder).begin()
    try:
        tokenizer = _prepare(folder, settings)
        config = replace(PRESETS[settings.preset], vocab_size=tokenizer.vocab_size, dropout=settings.dropout)
        return _run(folder, Checkpoint({}, config, tokenizer, 0, asdict(settings), {}), backend, threads)
    except BaseException:
        folder.abandon()
        raise


def resume_pretraining(folder, given=(), backend="cpu", threads=None):
    """Continue the run in `folder` from its latest checkpoint, bit for bit as if it had never stopped.

    `given` and what is raised are those of `checkpoint_to_continue`.
    """
    folder = RunFolder(folder)
    return _run(folder, checkpoint_to_continue(folder, given), backend, threads)


def _prepare(folder, settings):
    """Write tokenizer and token files into `folder`; returns the tokenizer."""
    train_text, validation_text = split_corpus(read_corpus(settings.corpus))
    tokenizer = Tokenizer.train(train_text, settings.vocab_size)
    tokens = [tokenizer.encode_to_numpy(text, allowed_special="all") for text in (train_text, validation_text)]
    if len(tokens[0]) < settings.context + 1:
        raise ValueError(
            f"{settings.corpus} is too short: {len(tokens[0])} tokens to train on, but a context of "
            f"{settings.context} needs at least {settings.context + 1}. Use a longer text or a smaller --context."
        )
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    for name, ids in zip(TOKEN_FILES, tokens, strict=True):
        write_token_file(folder / name, ids, tokenizer)
    return tokenizer


def _run(folder, checkpoint, backend, threads):
    settings = PretrainingSettings.of(checkpoint.settings)
    tokens = [read_token_file(folder / name, checkpoint.tokenizer) for name in TOKEN_FILES]
    task = Pretraining(settings, checkpoint.config, checkpoint.tokenizer, *tokens, backend, threads)
    return TrainingRun(folder, checkpoint, task, settings)

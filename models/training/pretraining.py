"""Pretraining: a model and its tokenizer learn from the text of a corpus."""

from dataclasses import asdict, replace
from pathlib import Path

from models.architectures import PRESETS
from models.data.batches import Batches
from models.data.corpus import split_corpus
from models.data.prepared import open_corpus, prepare_corpus
from models.data.sources import SourceFiles
from models.generation.sampler import Sampler
from models.tokenizer.bpe import END_OF_TEXT, Tokenizer
from models.tokenizer.characters import CharacterTokenizer
from models.tokenizer.formats import load_tokenizer, save_tokenizer
from models.training.checkpoint import Checkpoint
from models.training.evaluation import Evaluation
from models.training.folder import RunFolder
from models.training.memory import fitting, free_memory, in_units, needs_of
from models.training.run import TrainingRun, checkpoint_to_continue
from models.training.settings import PretrainingSettings, as_sources
from models.training.task import Task

SAMPLE_TOKENS = 120


class Pretraining(Task):
    """Predicting the next token of the texts of a corpus, which is given as sources for training and for validation."""

    measure = "bits_per_byte"

    def __init__(self, settings, config, tokenizer, training, validation, backend="cpu", threads=None):
        """Raises ValueError when a source of `training`, a list of Source, is too short for one window."""
        self._training, self._validation = training, [source for source in validation if len(source) > 1]
        title = f"{_model_name(settings)} on {', '.join(source.name for source in training)}"
        super().__init__(title, config, tokenizer, settings, backend, threads)
        shape = settings.batch_size, settings.context
        document_end = None if settings.across_documents else tokenizer.end_of_text_id
        self._batches = Batches(training, *shape, settings.seed, settings.accumulate, document_end)
        self._evaluation = None
        if self._validation:
            self._evaluation = Evaluation(config, tokenizer, *shape, backend=backend, threads=threads)
        self._sampler = None

    def needs(self):
        return needs_of(self.compiled(), [self._evaluation.executable] if self._evaluation else [])

    def inputs(self, step, micro_step):
        tokens, targets = self._batches.batch(step, micro_step)
        return {"tokens": tokens, "targets": targets, **self.dropout_inputs(step, micro_step)}

    def validate(self, state):
        """{"validation_loss": nats per token, "bits_per_byte": ...}, or {} without validation text.

        Of several sources it is that of a text with the shares that training has, and that of each follows under
        "validation_loss/<name>" and "bits_per_byte/<name>".
        """
        scores = {source: self._evaluation.of(state, source.pieces) for source in self._validation}
        scores = {source: score for source, score in scores.items() if score}
        if not scores:
            return {}
        if len(scores) == 1 and len(self._training) == 1:
            return _numbers(*scores.values())
        weight = sum(source.weight for source in scores)
        mixed = [score.per_token(source.weight / weight) for source, score in scores.items()]
        found = _numbers(sum(mixed[1:], mixed[0]))
        for source, score in scores.items():
            found |= {f"{name}/{source.name}": number for name, number in _numbers(score).items()}
        return found

    def in_words(self, validated):
        words = f"validation loss {validated['validation_loss']:.3f}, {validated['bits_per_byte']:.3f} bits per byte"
        by_source = {name.partition("/")[2]: bits for name, bits in validated.items() if "bits_per_byte/" in name}
        sources = [f"{name} {bits:.3f}" for name, bits in by_source.items()]
        return f"{words} ({', '.join(sources)})" if sources else words

    def description(self):
        settings = self.settings
        lines = [
            f"{_model_name(settings)}: {self.config.build().parameter_count():,} parameters, "
            f"vocabulary of {self.tokenizer.vocab_size} tokens",
            f"{settings.steps} steps of {settings.tokens_per_step:,} tokens, "
            f"{settings.batch_size * settings.accumulate} windows of {settings.context}, "
            f"{settings.batch_size} at a time",
            f"Memory: {self.needs()}",
        ]
        if (free := free_memory()) is not None and free < self.needs().total:
            lines.append(f"That is more than is free now, {in_units(free)}. --memory-budget auto splits the steps.")
        weight = sum(source.weight for source in self._training)
        held_out = {source.name: len(source) for source in self._validation}
        for source in self._training:
            share = source.weight / weight
            passes = settings.steps * settings.tokens_per_step * share / len(source)
            of_all = f", {share:.0%} of the windows" if len(self._training) > 1 else ""
            lines.append(
                f"{source.name}: {len(source):,} tokens to train on, {held_out.get(source.name, 0):,} for validation"
                f"{of_all}, {passes:.1f} passes"
            )
        if not self._validation:
            lines.append("The text is too short to hold some back: validation loss is not available.")
        if settings.init_from:
            lines.append(f"It begins with the weights of {settings.init_from}; the optimiser's moments begin anew.")
        return "\n".join(lines)

    def sample(self, state):
        if self._sampler is None:
            options = {"backend": self.backend, "threads": self.threads}
            self._sampler = Sampler(self.config, state, self.tokenizer, **options)
        return "".join(self._sampler.text("\n", SAMPLE_TOKENS, seed=self.settings.seed))


def start_pretraining(folder, settings, backend="cpu", threads=None, memory_budget=None):
    """Begin a run in `folder`: train the tokenizer on the corpus and write the token files.

    `memory_budget` in bytes may split steps into smaller batches: see `fitting`. Raises FileExistsError when the folder
    holds a run already, ValueError or OSError for a corpus that cannot be used or a folder that cannot be written.
    """
    begun = Checkpoint.load(settings.init_from) if settings.init_from else None
    preset = begun.config if begun else PRESETS[settings.preset]
    if settings.context > preset.context:
        raise ValueError(
            f"A context of {settings.context} tokens is more than the {preset.context} of the "
            f"{'model in ' + settings.init_from if begun else 'preset ' + settings.preset}. "
            "Use a shorter context or a larger preset."
        )
    sources = [SourceFiles.of(words) for words in settings.corpus]
    folder = RunFolder(folder).begin()
    with folder.abandoned_on_error():
        tokenizer = begun.tokenizer if begun else _tokenizer(settings, sources)
        separator = END_OF_TEXT if tokenizer.end_of_text_id is not None else "\n"
        save_tokenizer(tokenizer, folder / "tokenizer.json")
        data = prepare_corpus(folder.path, sources, tokenizer, separator)
        config = replace(preset, vocab_size=tokenizer.vocab_size, dropout=settings.dropout)
        weights = begun.parameters() if begun else {}
        checkpoint = Checkpoint(weights, config, tokenizer, 0, asdict(settings), {}, data)
        return _run(folder, checkpoint, backend, threads, memory_budget)


def resume_pretraining(folder, given=(), backend="cpu", threads=None, memory_budget=None):
    """Continue the run in `folder` from its latest checkpoint, bit for bit as if it had never stopped.

    With a `memory_budget` that splits steps in another way than before, it is as if, but for rounding and dropout.
    `given` and what is raised are those of `checkpoint_to_continue`, and ValueError when a file of the corpus changed.
    """
    given = dict(given)
    if "corpus" in given:
        given["corpus"] = as_sources(given["corpus"])
    folder = RunFolder(folder)
    with folder.abandoned_on_error():
        checkpoint = checkpoint_to_continue(folder, given)
        if not checkpoint.data:
            raise ValueError(f"{folder.latest} does not say what it learned from. Begin another run with --init-from.")
        return _run(folder, checkpoint, backend, threads, memory_budget)


def _tokenizer(settings, sources):
    """The tokenizer that the settings name, or one trained on what is not held out of the texts of the corpus."""
    if settings.tokenizer not in ("bpe", "characters"):
        return load_tokenizer(settings.tokenizer)
    tokens = next((source.name for source in sources if source.holds_tokens), None)
    if tokens is not None:
        raise ValueError(f"{tokens} holds token ids. Give the tokenizer that made them with --tokenizer FILE.")
    if settings.tokenizer == "characters":
        # All of them, since what is held out may have characters of its own.
        return CharacterTokenizer.train("\n".join(source.text("\n") for source in sources))
    parts = (split_corpus(source.text(END_OF_TEXT))[0] for source in sources)
    return Tokenizer.train(END_OF_TEXT.join(parts), settings.vocab_size)


def _run(folder, checkpoint, backend, threads, memory_budget):
    settings = PretrainingSettings.of(checkpoint.settings)
    sources = open_corpus(folder.path, checkpoint.data, checkpoint.tokenizer)

    def task_of(settings):
        return Pretraining(settings, checkpoint.config, checkpoint.tokenizer, *sources, backend, threads)

    task = fitting(task_of, settings, memory_budget) if memory_budget else task_of(settings)
    checkpoint = replace(checkpoint, settings=asdict(task.settings))
    return TrainingRun(folder, checkpoint, task)


def _numbers(score):
    return {"validation_loss": score.loss, "bits_per_byte": score.bits_per_byte}


def _model_name(settings):
    if settings.init_from:
        return f"The model of {Path(settings.init_from).name}"
    return f"{PRESETS[settings.preset].title} {settings.preset}"

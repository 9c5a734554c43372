"""A training run and its folder: begins it, continues it, and survives being stopped at any moment."""

import signal
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

from models.architectures import PRESETS
from models.data.corpus import read_corpus, split_corpus
from models.data.token_files import read_token_file, write_token_file
from models.files import remove_stale_temporaries
from models.generation.sampling import Sampler
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint
from models.training.loss_curve import draw_loss_curve
from models.training.metrics import MetricsFile, read_metrics
from models.training.progress import Progress, duration
from models.training.trainer import Diverged, Settings, Trainer

SAMPLE_TOKENS = 120


class TrainingRun:
    """A run in its folder: `latest` and `best` checkpoint, tokenizer, token files, log and loss curve.

    Make one with `start` or `resume`, then call `train`.
    """

    def __init__(self, folder, checkpoint, backend, threads):
        self.folder = Path(folder)
        self.checkpoint = checkpoint
        self.settings = Settings(**checkpoint.settings | {"betas": tuple(checkpoint.settings["betas"])})
        self._train_tokens, self._validation_tokens = (
            read_token_file(self.folder / name, checkpoint.tokenizer) for name in ("train.tokens", "validation.tokens")
        )
        tokens = self._train_tokens, self._validation_tokens
        self._trainer = Trainer(self.settings, checkpoint.config, checkpoint.tokenizer, *tokens, backend, threads)
        self._sampler = Sampler(
            checkpoint.config, self._trainer.state, checkpoint.tokenizer, backend=backend, threads=threads
        )
        if checkpoint.step:
            checkpoint.restore(self._trainer.state)

    @classmethod
    def start(cls, folder, settings, backend="cpu", threads=None):
        """Begin a run: train the tokenizer on the corpus and write the token files.

        Raises FileExistsError when the folder holds a run already, ValueError or OSError for a corpus that cannot be
        used or a folder that cannot be written.
        """
        folder = Path(folder)
        if latest(folder).exists():
            raise FileExistsError(
                f"{folder} already holds a training run. Add --resume to continue it, or choose another --out."
            )
        if settings.context > PRESETS[settings.preset].context:
            raise ValueError(
                f"A context of {settings.context} tokens is more than the {PRESETS[settings.preset].context} of the "
                f"preset {settings.preset}. Use a shorter context or a larger preset."
            )
        train_text, validation_text = split_corpus(read_corpus(settings.corpus))
        tokenizer = Tokenizer.train(train_text, settings.vocab_size)
        tokens = [tokenizer.encode_to_numpy(text, allowed_special="all") for text in (train_text, validation_text)]
        if len(tokens[0]) < settings.context + 1:
            raise ValueError(
                f"{settings.corpus} is too short: {len(tokens[0])} tokens to train on, but a context of "
                f"{settings.context} needs at least {settings.context + 1}. Use a longer text or a smaller --context."
            )
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(folder)
        tokenizer.save(folder / "tokenizer.json")
        for name, ids in zip(("train.tokens", "validation.tokens"), tokens, strict=True):
            write_token_file(folder / name, ids, tokenizer)
        config = replace(PRESETS[settings.preset], vocab_size=tokenizer.vocab_size, dropout=settings.dropout)
        progress = {"seconds": 0.0, "best": None}
        return cls(folder, Checkpoint({}, config, tokenizer, 0, asdict(settings), progress), backend, threads)

    @classmethod
    def resume(cls, folder, given=(), backend="cpu", threads=None):
        """Continue the run in `folder` from its latest checkpoint, bit for bit as if it had never stopped.

        `given` are settings, (name, value), that the user asked for. `steps` may differ from the run's: the schedule
        keeps its horizon. Raises FileNotFoundError when there is no run, ValueError when another setting differs
        or a file is damaged.
        """
        path = latest(folder)
        if not path.exists():
            raise FileNotFoundError(f"{folder} holds no training run to continue. Leave out --resume to begin one.")
        remove_stale_temporaries(folder)
        try:
            checkpoint = Checkpoint.load(path)
        except ValueError as error:
            raise ValueError(f"{error} {best(folder)}, if it is there, can be copied in its place.") from None
        for name, value in dict(given).items():
            if name != "steps" and value != checkpoint.settings[name]:
                option = "--" + name.replace("_", "-")
                raise ValueError(
                    f"The run in {folder} has {option} {checkpoint.settings[name]}, not {value}. "
                    f"Leave {option} out to continue it, or begin another run with --out."
                )
        return cls(folder, checkpoint, backend, threads)

    def train(self, steps=None):
        """Train up to `steps` steps in all (by default the settings'); returns the signal that stopped it, or None.

        Checkpoints are written at each validation, at the end, and when SIGINT or SIGTERM asks to stop. Raises
        Diverged, with the last checkpoint left as it is, and OSError when something cannot be written.
        """
        steps = self.settings.steps if steps is None else steps
        first = self.checkpoint.step
        metrics = MetricsFile(self.folder / "metrics.jsonl", first)
        started = time.monotonic() - self.checkpoint.progress["seconds"]
        best_so_far = self.checkpoint.progress["best"]
        try:
            with Interruption() as stop, Progress(steps, first, self.settings.tokens_per_step) as progress:
                if first and first < steps:
                    progress.say(f"Continuing after step {first}.")
                for step in range(first, steps):
                    record = self._trainer.step(step)
                    done = step + 1
                    validates = done % self.settings.validate_every == 0 or done == steps
                    if validates:
                        record |= self._trainer.validate(done)
                    metrics.append(record)
                    progress.update(record)
                    improved = "bits_per_byte" in record and (
                        best_so_far is None or record["bits_per_byte"] < best_so_far["bits_per_byte"]
                    )
                    if improved:
                        names = ("step", "validation_loss", "bits_per_byte")
                        best_so_far = {name: record[name] for name in names}
                    if validates or stop.signal:
                        metrics.flush_to_disk()
                        self._save(done, {"seconds": time.monotonic() - started, "best": best_so_far}, improved)
                    if validates:
                        self._draw_curve(progress)
                        progress.say(self._sample())
                    if stop.signal:
                        return stop.signal
        except Diverged as error:
            kept = f"step {self.checkpoint.step}, in {latest(self.folder)}" if self.checkpoint.step else "none"
            raise Diverged(error.step, f"{error} The last good checkpoint: {kept}.") from None
        finally:
            metrics.close()
        return None

    def description(self):
        """What is about to be trained, on what, in lines for a person."""
        settings, tokenizer = self.settings, self.checkpoint.tokenizer
        passes = settings.steps * settings.tokens_per_step / len(self._train_tokens)
        lines = [
            f"GPT-2 {settings.preset}: {self.checkpoint.config.build().parameter_count():,} parameters, "
            f"byte-level BPE vocabulary of {tokenizer.vocab_size} tokens",
            f"{settings.corpus}: {len(self._train_tokens):,} tokens to train on, {len(self._validation_tokens):,} for "
            f"validation; {settings.steps} steps of {settings.tokens_per_step:,} tokens are {passes:.1f} passes",
        ]
        if len(self._validation_tokens) < 2:
            lines.append("The text is too short to hold some back: validation loss is not available.")
        return "\n".join(lines)

    def summary(self):
        """What the run has reached, in lines for a person."""
        step, progress = self.checkpoint.step, self.checkpoint.progress
        records = read_metrics(self.folder / "metrics.jsonl")
        tokens = step * self.settings.tokens_per_step
        seconds = sum(record["seconds"] for record in records)
        speed = f"{tokens / seconds:,.0f}" if seconds else "n/a"
        wall_time = duration(progress["seconds"])
        lines = [f"Reached step {step} with {tokens:,} tokens in {wall_time} ({speed} tokens/s in steps)."]
        last = next((record for record in reversed(records) if "validation_loss" in record), None)
        if last:
            lines += [
                f"Validation loss {last['validation_loss']:.3f} per token, {last['bits_per_byte']:.3f} bits per byte; "
                f"best {progress['best']['bits_per_byte']:.3f} bits per byte at step {progress['best']['step']}."
            ]
        names = [path.name for path in sorted(self.folder.iterdir()) if path.is_file()]
        return "\n".join([*lines, f"Files in {self.folder}: {', '.join(names)}"])

    def _save(self, step, progress, improved):
        arrays = dict(self._trainer.state)
        self.checkpoint = replace(self.checkpoint, arrays=arrays, step=step, progress=progress)
        if improved:
            self.checkpoint.save(best(self.folder))
        self.checkpoint.save(latest(self.folder))

    def _draw_curve(self, progress):
        title = f"GPT-2 {self.settings.preset} on {Path(self.settings.corpus).name}"
        try:
            draw_loss_curve(read_metrics(self.folder / "metrics.jsonl"), self.folder / "loss.png", title)
        except ImportError:
            progress.say("No loss curve: matplotlib is not installed. Install it with: pip install 'euler-ir[plot]'")

    def _sample(self):
        return "\n" + "".join(self._sampler.text("\n", SAMPLE_TOKENS, seed=self.settings.seed)) + "\n"


def latest(folder):
    """Path of the checkpoint that `resume` continues from."""
    return Path(folder) / "latest.safetensors"


def best(folder):
    """Path of the checkpoint with the lowest validation loss."""
    return Path(folder) / "best.safetensors"


class Interruption:
    """Makes the first SIGINT or SIGTERM a request, `signal`, to stop after the current step; a second acts at once."""

    def __init__(self):
        self.signal = None
        self._previous = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *exception):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number, frame):
        self.signal = signal.Signals(number)
        self.__exit__()

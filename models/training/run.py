"""The loop of a training run, whatever it trains: it goes on, it stops, and it survives being stopped at any moment."""

import signal
import threading
import time
from dataclasses import replace

from models.training.checkpoint import Checkpoint
from models.training.loss_curve import draw_loss_curve
from models.training.metrics import MetricsFile, read_metrics
from models.training.progress import Progress, duration
from models.training.trainer import Diverged, Trainer


class TrainingRun:
    """A run in its folder: `latest` and `best` checkpoint, log and loss curve, and what its task adds to them.

    `checkpoint` is where it stands. At step 0 it may hold no arrays, to begin from the seed, or those of a model to
    begin from, without the optimiser's.
    """

    def __init__(self, folder, checkpoint, task, settings):
        self.folder, self.checkpoint, self.task, self.settings = folder, checkpoint, task, settings
        self._trainer = Trainer(task, settings)
        if checkpoint.step:
            checkpoint.restore(self._trainer.state)
        elif checkpoint.arrays:
            checkpoint.restore(self._trainer.state, self._trainer.parameters)

    def train(self, steps=None, observers=()):
        """Train up to `steps` steps in all (by default the settings'); returns the signal that stopped it, or None.

        Each of `observers` is told of every step: `before_step(step, trainer)`, counted from 0, and, with its record,
        `after_step(record, trainer)`. They may read everything and change nothing.

        Checkpoints are written at each validation, at the end, and when SIGINT or SIGTERM asks to stop. Raises
        Diverged, with the last checkpoint left as it is, and OSError when something cannot be written.
        """
        steps = self.settings.steps if steps is None else steps
        first = self.checkpoint.step
        self.folder.hold()
        metrics = MetricsFile(self.folder.metrics, first)
        try:
            with Interruption() as stop, Progress(steps, first, self.settings.tokens_per_step) as progress:
                if first and first < steps:
                    progress.say(f"Continuing after step {first}.")
                self._loop(range(first, steps), stop, metrics, progress, observers)
                return stop.signal
        except Diverged as error:
            kept = f"step {self.checkpoint.step}, in {self.folder.latest}" if self.checkpoint.step else "none"
            raise Diverged(error.step, f"{error} The last good checkpoint: {kept}.") from None
        finally:
            metrics.close()
            self.folder.release()

    def _loop(self, steps, stop, metrics, progress, observers):
        started = time.monotonic() - self.checkpoint.progress.get("seconds", 0.0)
        reached = dict(self.checkpoint.progress)
        for step in steps:
            for observer in observers:
                observer.before_step(step, self._trainer)
            record = self._trainer.step(step)
            done = step + 1
            validates = done % self.settings.validate_every == 0 or done == steps.stop
            validated = self._trainer.validate(done) if validates else {}
            metrics.append(record | validated)
            progress.update(record, self.task.in_words(validated) if validated else None)
            improved = bool(validated) and self._is_best(validated, reached.get("best"))
            if improved:
                reached["best"] = {"step": done, **validated}
            if validated:
                reached["last"] = validated
            if validates or stop.signal:
                metrics.flush_to_disk()
                self._save(done, reached | {"seconds": time.monotonic() - started}, improved)
            if validates:
                self._draw_curve(progress)
                if sample := self.task.sample(self._trainer.state):
                    progress.say(f"\n{sample}\n")
            for observer in observers:
                observer.after_step(record, self._trainer)
            if stop.signal:
                return

    def _is_best(self, validated, best):
        return best is None or validated[self.task.measure] < best[self.task.measure]

    def summary(self):
        """What the run has reached, in lines for a person."""
        step, progress = self.checkpoint.step, self.checkpoint.progress
        tokens = step * self.settings.tokens_per_step
        seconds = sum(record["seconds"] for record in read_metrics(self.folder.metrics))
        speed = f"{tokens / seconds:,.0f}" if seconds else "n/a"
        wall_time = duration(progress.get("seconds", 0.0))
        lines = [f"Reached step {step} with {tokens:,} tokens in {wall_time} ({speed} tokens/s in steps)."]
        if "best" in progress:
            best = dict(progress["best"])
            lines.append(f"Last {self.task.in_words(progress['last'])}.")
            lines.append(f"Best, at step {best.pop('step')}: {self.task.in_words(best)}.")
        names = [path.name for path in sorted(self.folder.path.iterdir()) if path.is_file()]
        return "\n".join([*lines, f"Files in {self.folder.path}: {', '.join(names)}"])

    def _save(self, step, progress, improved):
        arrays = dict(self._trainer.state)
        self.checkpoint = replace(self.checkpoint, arrays=arrays, step=step, progress=progress)
        if improved:
            self.checkpoint.save(self.folder.best)
        self.checkpoint.save(self.folder.latest)

    def _draw_curve(self, progress):
        try:
            draw_loss_curve(read_metrics(self.folder.metrics), self.folder / "loss.png", self.task.title)
        except ImportError:
            progress.say("No loss curve: matplotlib is not installed. Install it with: pip install 'euler-ir[plot]'")


def checkpoint_to_continue(folder, given):
    """The latest checkpoint of the run in `folder`, a RunFolder that it holds from now on.

    `given` are settings, (name, value), that the user asked for. `steps` may differ from the run's: the schedule keeps
    its horizon. Raises FileNotFoundError when there is no run, BlockingIOError when another process is training there,
    ValueError when another setting differs or the file is damaged.
    """
    if not folder.latest.exists():
        raise FileNotFoundError(f"{folder.path} holds no training run to continue. Leave out --resume to begin one.")
    folder.hold()
    try:
        checkpoint = Checkpoint.load(folder.latest)
    except ValueError as error:
        raise ValueError(f"{error} {folder.best}, if it is there, can be copied in its place.") from None
    for name, value in dict(given).items():
        if name != "steps" and value != checkpoint.settings[name]:
            option = "--" + name.replace("_", "-")
            raise ValueError(
                f"The run in {folder.path} has {option} {checkpoint.settings[name]}, not {value}. "
                f"Leave {option} out to continue it, or begin another run with --out."
            )
    return checkpoint


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

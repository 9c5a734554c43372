"""The loop of a training run, whatever it trains: it goes on, it stops, and it survives being stopped at any moment."""

import json
import signal
import threading
import time
from dataclasses import replace

from models.training.checkpoint import Checkpoint
from models.training.loss_curve import draw_loss_curves
from models.training.metrics import MetricsFile, read_metrics
from models.training.progress import Progress, duration
from models.training.settings import CHANGEABLE
from models.training.trainer import Diverged, Trainer

MOST_SKIPPED = 10
"""As many steps in a row that are not finite end a run that may skip them: it does not recover any more."""


class TrainingRun:
    """A run in its folder: `latest` and `best` checkpoint, log and loss curve, and what its task adds to them.

    `checkpoint` is where it stands. At step 0 it may hold no arrays, to begin from the seed, or those of a model to
    begin from, without the optimiser's. `peak_flops`, the most floating-point operations a second that the machine can
    do, is only for `summary`.
    """

    peak_flops = None

    def __init__(self, folder, checkpoint, task):
        self.folder, self.checkpoint, self.task, self.settings = folder, checkpoint, task, task.settings
        self.trainer = Trainer(task)
        if checkpoint.step:
            checkpoint.restore(self.trainer.state)
        elif checkpoint.arrays:
            checkpoint.restore(self.trainer.state, self.trainer.parameters)

    def train(self, steps=None, observers=()):
        """Train up to `steps` steps in all (by default the settings'); returns the signal that stopped it, or None.

        Checkpoints are written at each validation, at the end, and when SIGINT or SIGTERM asks to stop. Each of
        `observers` is told of every step: `before_step(step, trainer)`, counted from 0, and, when its record is in the
        log, `after_step(record, trainer)`. They may read everything and change nothing. Raises Diverged, with the last
        checkpoint left as it is, and OSError when something cannot be written.
        """
        steps = self.settings.steps if steps is None else steps
        first = self.checkpoint.step
        self.folder.hold()
        try:
            with (
                MetricsFile(self.folder.metrics, first) as metrics,
                Interruption() as stop,
                Progress(steps, first, self.settings.tokens_per_step) as progress,
            ):
                if first and first < steps:
                    progress.say(f"Continuing after step {first}.")
                elif first:
                    progress.say(f"Step {steps} was reached before. To go on, give more --steps.")
                if steps != self.settings.steps:
                    progress.say(f"The learning rate keeps its schedule over {self.settings.steps} steps.")
                self._loop(range(first, steps), stop, metrics, progress, observers)
                return stop.signal
        except Diverged as error:
            kept = f"step {self.checkpoint.step}, in {self.folder.latest}" if self.checkpoint.step else "none"
            raise Diverged(error.step, f"{error} The last good checkpoint: {kept}.") from None
        finally:
            self.folder.release()

    def _loop(self, steps, stop, metrics, progress, observers):
        started = time.monotonic() - self.checkpoint.progress.get("seconds", 0.0)
        reached = {"skipped_in_a_row": 0, **self.checkpoint.progress}
        for step in steps:
            if self._is_stalled(step, reached.get("best")):
                waited = f"{self.settings.patience} validations"
                progress.say(f"Stopped early: {waited} in a row since step {reached['best']['step']} were no better.")
                return
            for observer in observers:
                observer.before_step(step, self.trainer)
            record = self._step(step, reached, progress)
            done = step + 1
            validates = done % self.settings.validate_every == 0 or done == steps.stop
            validated = self.trainer.validate(done) if validates else {}
            metrics.append(record | validated)
            # Before the checkpoint, so that no step is left out that a run which goes on from it does not take again.
            for observer in observers:
                observer.after_step(record | validated, self.trainer)
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
                if sample := self.task.sample(self.trainer.state):
                    progress.say(f"\n{sample}\n")
            if stop.signal:
                return

    def _step(self, step, reached, progress):
        """The record of a step that was taken, or skipped if the settings allow that. Raises Diverged."""
        try:
            record = self.trainer.step(step)
        except Diverged as error:
            reached["skipped_in_a_row"] += 1
            if self.settings.on_nonfinite == "stop":
                raise
            if reached["skipped_in_a_row"] == MOST_SKIPPED:
                raise Diverged(error.step, f"{error} {MOST_SKIPPED} steps in a row were not taken.") from None
            progress.say(f"{error} This step is left out.")
            return error.record
        if "skipped" in record:
            scale = f"{record['loss_scale']:,.0f}"
            progress.say(f"Step {step + 1} is left out: a gradient overflows at a loss scale of {scale}. Now half.")
        reached["skipped_in_a_row"] = 0
        return record

    def _is_stalled(self, step, best):
        """Whether as many validations as the settings' patience have passed since the best one."""
        patience, every = self.settings.patience, self.settings.validate_every
        return bool(patience and best) and step // every - best["step"] // every >= patience

    def _is_best(self, validated, best):
        return best is None or validated[self.task.measure] < best[self.task.measure]

    def summary(self):
        """What the run has reached, in lines for a person."""
        step, progress = self.checkpoint.step, self.checkpoint.progress
        tokens = step * self.settings.tokens_per_step
        seconds = sum(record["seconds"] for record in read_metrics(self.folder.metrics))
        speed = f"{tokens / seconds:,.0f}" if seconds else "n/a"
        flops = self.task.flops_per_token() * tokens / seconds if seconds else 0.0
        # Model FLOPs utilisation: the share of what the machine could do at most, if somebody says what that is.
        used = f"{flops / self.peak_flops:.1%}" if self.peak_flops else "n/a"
        wall_time = duration(progress.get("seconds", 0.0))
        lines = [
            f"Reached step {step} with {tokens:,} tokens in {wall_time} ({speed} tokens/s in steps).",
            f"{flops / 1e9:.1f} GFLOP/s, MFU {used}.",
        ]
        if "best" in progress:
            best = dict(progress["best"])
            lines.append(f"Last {self.task.in_words(progress['last'])}.")
            lines.append(f"Best, at step {best.pop('step')}: {self.task.in_words(best)}.")
        names = [path.name for path in sorted(self.folder.path.iterdir()) if path.is_file()]
        return "\n".join([*lines, f"Files in {self.folder.path}: {', '.join(names)}"])

    def _save(self, step, progress, improved):
        self.trainer.check_state(step)
        arrays = dict(self.trainer.state)
        self.checkpoint = replace(self.checkpoint, arrays=arrays, step=step, progress=progress)
        if improved:
            self.checkpoint.save(self.folder.best)
        self.checkpoint.save(self.folder.latest)
        self.folder.keep(step, self.settings.keep)

    def _draw_curve(self, progress):
        try:
            logs, task = {"": read_metrics(self.folder.metrics)}, self.task
            draw_loss_curves(logs, self.folder / "loss.png", task.title, task.unit)
        except ImportError:
            progress.say("No loss curve: matplotlib is not installed. Install it with: pip install 'euler-ir[plot]'")


def checkpoint_to_continue(folder, given):
    """The latest checkpoint of the run in `folder`, a RunFolder that it holds from now on.

    `given` are settings, (name, value), that the user asked for. Those of CHANGEABLE may differ from the run's; the
    schedule keeps the horizon of its first `steps`. Raises FileNotFoundError when there is no run, BlockingIOError when
    another process is training there, ValueError when another setting differs or the file is damaged.
    """
    if not folder.latest.exists():
        raise FileNotFoundError(f"{folder.path} holds no training run to continue. Leave out --resume to begin one.")
    folder.hold()
    try:
        checkpoint = Checkpoint.load(folder.latest)
    except ValueError as error:
        raise ValueError(f"{error} {folder.best}, if it is there, can be copied in its place.") from None
    changed = {}
    for name, value in dict(given).items():
        if name in CHANGEABLE:
            changed[name] = value
        elif name not in checkpoint.settings:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"The run in {folder.path} is one of another kind of training, without {option}.")
        elif _plain(value) != checkpoint.settings[name]:
            option = "--" + name.replace("_", "-")
            raise ValueError(
                f"The run in {folder.path} has {option} {_in_words(checkpoint.settings[name])}, not "
                f"{_in_words(value)}. Leave {option} out to continue it, or begin another run with --out."
            )
    changed.pop("steps", None)
    return replace(checkpoint, settings=checkpoint.settings | changed)


def _plain(value):
    """A setting as JSON gives it back."""
    return json.loads(json.dumps(value))


def _in_words(value):
    """A setting as it stands on a command line."""
    return " ".join(map(_in_words, value)) if isinstance(value, (list, tuple)) else str(value)


class Interruption:
    """Makes the first SIGINT or SIGTERM a request, `signal`, to stop after the current step; a second acts at once.

    A signal that is ignored, as SIGINT is in what a shell runs in the background, stays so.
    """

    def __init__(self):
        self.signal = None
        self._previous = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *exception):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number, frame):
        self.signal = signal.Signals(number)
        self.__exit__()

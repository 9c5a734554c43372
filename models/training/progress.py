"""What a person sees while a model trains."""

import math
import time

from rich.live import Live
from rich.text import Text

from models.command_line import Screen

# The share of the past in the running means of loss and speed: they follow about the last 20 steps.
MEMORY = 0.95


class Progress:
    """A line that is renewed at every step on a terminal; elsewhere, as in a log file, a line for each validation."""

    def __init__(self, steps, done, tokens_per_step, console=None):
        self._steps, self._first, self._tokens_per_step = steps, done, tokens_per_step
        self._console = console or Screen(highlight=False, soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._started = time.monotonic()
        self._means = {}
        self._validation = "validation loss n/a"

    def __enter__(self):
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception):
        self._live.stop()

    def say(self, text):
        """Print text as it is, above the line."""
        self._console.print(Text(text))

    def update(self, record, validation=None):
        """Show the record of a step, as in the log, and what a validation after it found, in words."""
        for name in ("loss", "seconds"):
            if record[name] is None:
                continue
            self._means[name] = MEMORY * self._means.get(name, record[name]) + (1 - MEMORY) * record[name]
        self._validation = validation or self._validation
        line = self._line(record)
        if self._console.is_terminal:
            self._live.update(Text(line))
        if validation or record["step"] == self._steps:
            self.say(line)

    def _line(self, record):
        step = record["step"]
        left = (time.monotonic() - self._started) / (step - self._first) * (self._steps - step)
        speed = self._tokens_per_step / max(self._means["seconds"], 1e-9)
        return (
            f"step {step}/{self._steps}, loss {self._means.get('loss', math.nan):.3f}, {self._validation}, "
            f"learning rate {record['learning_rate']:.2e}, {speed:,.0f} tokens/s, {duration(left)} left"
        )


def duration(seconds):
    """'42 s', '3 min 05 s' or '2 h 07 min'."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes} min {seconds:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"

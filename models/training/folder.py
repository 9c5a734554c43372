"""The folder of a training run."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from models.files import remove_stale_temporaries, replacing

try:
    import fcntl
except ImportError:  # Windows has no such locks, and takes a folder without one
    fcntl = None


class RunFolder:
    """Where a run keeps its files. One process at a time may hold it, and holds nothing once it has ended, however."""

    def __init__(self, path):
        self.path = Path(path)
        self._lock = None
        self._made = False

    def __truediv__(self, name):
        return self.path / name

    @property
    def latest(self):
        """The checkpoint that a run continues from."""
        return self.path / "latest.safetensors"

    @property
    def best(self):
        """The checkpoint that did best in validation."""
        return self.path / "best.safetensors"

    @property
    def metrics(self):
        """The log: see `read_metrics`."""
        return self.path / "metrics.jsonl"

    def keep(self, step, count):
        """Let a copy of `latest` carry the number of its step; of such copies the `count` newest stay."""
        if not count:
            return
        with replacing(self.path / f"step-{step:08}.safetensors") as copy, open(self.latest, "rb") as latest:
            shutil.copyfileobj(latest, copy)
        for outdated in sorted(self.path.glob("step-*.safetensors"))[:-count]:
            outdated.unlink()

    def begin(self):
        """Make the folder and hold it. Raises FileExistsError when there is a run in it, or files of something else,
        which the run might overwrite; OSError as `hold`.
        """
        self._made = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        self.hold()
        if self.latest.exists():
            self.release()
            raise FileExistsError(
                f"{self.path} already holds a training run. Add --resume to continue it, or choose another --out."
            )
        # A run that was killed before its first checkpoint has left a log at least.
        if not self.metrics.exists() and any(path.name[0] != "." for path in self.path.iterdir()):
            self.release()
            raise FileExistsError(
                f"{self.path} holds files that are not a training run's. Choose another --out, so that none of them is "
                "overwritten."
            )
        self.metrics.touch()
        return self

    def hold(self):
        """Keep other processes from writing here, until `release`. Raises BlockingIOError when one does already."""
        if fcntl is None or self._lock is not None:
            return
        # The folder itself is locked: the lock leaves no file behind.
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BlockingIOError(
                f"Another process is training in {self.path}. Wait until it ends, or choose another --out."
            ) from None
        except OSError:  # some network file systems cannot
            os.close(descriptor)
            return
        self._lock = descriptor
        remove_stale_temporaries(self.path)

    def release(self):
        """Let other processes write here."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def abandoned_on_error(self):
        """A block that gets a run ready. If it fails, others may write here; the folder goes if it was made for it."""
        try:
            yield
        except BaseException:
            if self._made:
                shutil.rmtree(self.path, ignore_errors=True)
            self.release()
            raise

    def __del__(self):
        self.release()

"""The log of a training run: one JSON object a line, one line a step."""

import json
import os
from pathlib import Path

from models.files import replacing


def read_metrics(path):
    """The records of a log, a list of dicts; a last line cut short by a crash is left out."""
    records = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


class MetricsFile:
    """Appends records to a log that begins with those of the first `step` steps of an earlier part of the run."""

    def __init__(self, path, step=0):
        kept = [record for record in read_metrics(path) if record["step"] <= step] if step and path.exists() else []
        with replacing(path) as file:
            file.write("".join(map(_line, kept)).encode())
        self._file = open(path, "a", encoding="utf-8", newline="\n")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def append(self, record):
        """Add a record. Raises OSError that names the log."""
        try:
            self._file.write(_line(record))
            self._file.flush()
        except OSError as error:
            raise type(error)(error.errno, error.strerror, self._file.name) from None

    def flush_to_disk(self):
        """Make what was appended survive a power failure."""
        os.fsync(self._file.fileno())

    def close(self):
        self._file.close()


def _line(record):
    return json.dumps(record) + "\n"

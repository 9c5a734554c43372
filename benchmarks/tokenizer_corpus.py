"""Text to learn from, made of what every machine with this program has."""

import sysconfig
from itertools import cycle, islice
from pathlib import Path

SHAKESPEARE = Path(__file__).parents[1] / "models" / "corpora" / "shakespeare.txt"


def corpus_of(path, size):
    """(UTF-8 bytes of about ``size``, what they are in words). Without ``path``: plays, then programs in Python.

    Raises OSError for a file that cannot be read or is empty.
    """
    if path is not None:
        given = path.read_bytes()
        words, parts = str(path.name), [given]
    else:
        words, parts = "Shakespeare's plays of this repository, then Python's and its packages' sources", _sources(size)
    text = b"".join(parts)
    if not text:
        raise FileNotFoundError(f"{path} is empty: there is nothing to learn from.")
    if len(text) < size:
        times = -(-size // len(text))
        words, text = f"{words}, {times} times over", b"".join(islice(cycle([text]), times))
    # Cut and read as text: an incomplete character at the end goes.
    return text[:size].decode("utf-8", "ignore").encode("utf-8"), words


def _sources(size):
    parts = [SHAKESPEARE.read_bytes()]
    total = len(parts[0])
    for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")):
        for file in sorted(Path(folder).rglob("*.py")):
            if total >= size:
                return parts
            try:
                parts.append(file.read_bytes().decode("utf-8").encode("utf-8"))
            except (OSError, UnicodeDecodeError):
                continue
            total += len(parts[-1])
    return parts

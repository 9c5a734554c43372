"""From a text file to text for training and for validation."""

from pathlib import Path

from models.files import check_regular

HELD_OUT = 0.1
"""The share of each text, and of each token file, that is kept for validation: its end."""


def read_corpus(path):
    """The text of a UTF-8 file, with its line ends as they are.

    Raises OSError as `check_regular`, and ValueError for a file that is empty, contains NUL bytes (taken as a sign of
    something other than text) or is not UTF-8.
    """
    check_regular(path, "text file")
    data = Path(path).read_bytes()
    if not data:
        raise ValueError(f"{path} is empty. Give a file with text to learn from.")
    if b"\0" in data:
        raise ValueError(
            f"{path} contains a NUL byte at offset {data.index(0)}, so it is not plain UTF-8 text. "
            "If it is text in UTF-16, save it as UTF-8."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: invalid byte at offset {error.start}. Save it as UTF-8.") from None


def split_corpus(text, fraction=HELD_OUT):
    """(training text, validation text): the last `fraction` of the characters is kept for validation.

    Raises ValueError unless 0 <= fraction < 1.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"The validation fraction must be at least 0 and below 1, not {fraction}. Try 0.1.")
    cut = int(len(text) * (1 - fraction))
    return text[:cut], text[cut:]

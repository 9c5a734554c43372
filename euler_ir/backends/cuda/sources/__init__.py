"""CUDA C++ that several kernels share, and how a unit is put together: NVRTC gets one text and looks for no file."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

SHARED_FILES = Path(__file__).parent


def unit(name: str, includes: Sequence[str | Path], body: str) -> str:
    """The text of a unit called ``name``, for readers: each of ``includes``, then ``body``.

    An include is a file next to this one, such as ``"target.cuh"``, or a path; each comes once, where it comes first.
    """
    files = dict.fromkeys(SHARED_FILES / include for include in includes)
    return "\n".join((f"// {name}", *(_text(file) for file in files), body))


def together(units: Sequence[str]) -> str:
    """``units`` as one text for readers: a file that an earlier one includes is but named in those that follow."""
    included: set[Path] = set()
    shown = []
    for text in units:
        for file in sorted(SHARED_FILES.parent.rglob("*.cuh")):
            if _text(file) in text:
                text = text.replace(_text(file), f"// ---- {file.name}, as above ----\n") if file in included else text
                included.add(file)
        shown.append(text)
    return "\n".join(shown)


def joined(name: str, texts: Sequence[str]) -> str:
    """One unit of those that `unit` has made of ``texts``: what they include comes once, and the own code of each has a
    namespace of its own. None of these may declare anything in a namespace itself.
    """
    places = [(text.find(_text(file)), file) for text in texts for file in SHARED_FILES.glob("*.cuh")]
    files = dict.fromkeys(file for place, file in sorted(places, key=lambda each: each[0]) if place >= 0)
    own = [f"namespace unit_{n} {{\n{own_code(text)}\n}}\nusing namespace unit_{n};\n" for n, text in enumerate(texts)]
    return unit(name, tuple(files), "\n".join(own))


def own_code(text: str) -> str:
    """What a unit has after the files next to this one."""
    for file in SHARED_FILES.glob("*.cuh"):
        text = text.replace(_text(file), "", 1)
    return text


@functools.cache
def _text(file: Path) -> str:
    return f"// ---- {file.name} ----\n{file.read_text(encoding='utf-8')}"

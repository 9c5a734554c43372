"""What a seeded fault is, and how it is planted: an edit of one file of the package, made while that is imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "EULER_IR_FAULT"
"""The environment variable that names the fault of a process; `plant` reads it."""
ROOT = Path(__file__).parent.parent.parent


def corpus(name: str, limits: str = "plain") -> str:
    """The test that replays a file of the corpus."""
    return f"tests/testing/test_corpus.py::test_the_corpus_means_the_same_everywhere[{name}-{limits}]"


def value(case: str) -> str:
    """The test of what an operator gives by the interpreter."""
    return f"tests/ops/test_values.py::test_value[{case}-interpreter]"


def gradient(case: str) -> str:
    """The test of the gradient of an operator by the interpreter."""
    return f"tests/ops/test_gradients.py::test_gradient[{case}-interpreter]"


@dataclass(frozen=True)
class Fault:
    """A mistake that people make: in ``euler_ir.<module>`` the text ``old``, which stands there once, is ``new``.

    What is no Python is called by its path in the package, such as ``backends/cuda/sources/target.cuh``. ``imitates``
    says what went wrong in the words of whoever finds out; one of ``killers``, ids of tests, must fail.
    """

    name: str
    imitates: str
    module: str
    old: str
    new: str
    killers: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file that is edited."""
        if "/" in self.module:
            return ROOT / "euler_ir" / self.module
        return ROOT.joinpath("euler_ir", *self.module.split(".")).with_suffix(".py")

    def source(self) -> str:
        """The source of the module with the fault in it. Raises ValueError where its place is not there just once."""
        text = self.path.read_text()
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"fault {self.name}: {self.old!r} stands {count} times in {self.path.name}")
        return text.replace(self.old, self.new)


class Planting(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports the module of one fault from its faulty source, and leaves all others to Python."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.module = f"euler_ir.{fault.module}"

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=str(self.fault.path))

    def create_module(self, spec):
        return None

    def exec_module(self, module) -> None:
        module.__file__ = str(self.fault.path)
        exec(compile(self.fault.source(), str(self.fault.path), "exec"), vars(module))

    def get_filename(self, name: str) -> str:
        return str(self.fault.path)

    def get_data(self, path: str) -> bytes:
        return Path(path).read_bytes()


class Overlay(importlib.abc.MetaPathFinder):
    """Imports the backend for CUDA from a copy of its folder in which one file that is no Python has a fault."""

    package = "euler_ir.backends.cuda"

    def __init__(self, fault: Fault) -> None:
        self.module = self.package
        held = ROOT.joinpath(*self.package.split("."))
        self._keep = tempfile.TemporaryDirectory(prefix="euler_ir_fault_")
        self.folder = Path(self._keep.name) / "cuda"
        shutil.copytree(held, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / fault.path.relative_to(held)).write_text(fault.source())

    def find_spec(self, name, path, target=None):
        if name != self.package:
            return None
        init, places = self.folder / "__init__.py", [str(self.folder)]
        return importlib.util.spec_from_file_location(name, init, submodule_search_locations=places)


def plant(fault: Fault) -> None:
    """Have this process import ``fault``. Raises ValueError when its module is imported already."""
    planting = (Planting if fault.path.suffix == ".py" else Overlay)(fault)
    if planting.module in sys.modules:
        raise ValueError(f"{planting.module} is imported already, without fault {fault.name}")
    sys.meta_path.insert(0, planting)


def named() -> str | None:
    """The fault that this process is to plant."""
    return os.environ.get(VARIABLE)

"""How pytest sees ``.eir`` files: a file has tests, a test has checks, each an item of its own."""

from __future__ import annotations

import os

import pytest

from euler_ir.testing.pass_checks import checks_of
from euler_ir.testing.pass_run import PassRun, PassTestFailure
from euler_ir.testing.pass_test import PassTestSyntaxError, read_pass_tests
from euler_ir.testing.proposals import propose


class EirFile(pytest.File):
    """A ``.eir`` file."""

    @property
    def called(self):
        """The path as messages say it: from where pytest was called."""
        return os.path.relpath(self.path, self.config.invocation_params.dir)

    def collect(self):
        if self.config.option.eir_update:
            if hasattr(self.config, "workerinput"):  # a worker of pytest-xdist
                raise pytest.UsageError("--eir-update writes files: run it in one process, without -n")
            propose(self.path)
        for test in read_pass_tests(self.path, self.called):
            yield EirTest.from_parent(self, name=test.name, test=test)

    def repr_failure(self, excinfo):
        error = excinfo.value
        if isinstance(error, PassTestSyntaxError):
            return f"{self.called}:{error.line}: {error}"
        if isinstance(error, UnicodeDecodeError):
            return f"{self.called} is not text: {error.reason} at byte {error.start}"
        return super().repr_failure(excinfo)


class EirTest(pytest.Collector):
    """One graph of the file. What its passes make is computed once, for all of its checks."""

    def __init__(self, *, test, **keywords):
        super().__init__(**keywords)
        self.test = test
        self.run = PassRun(test)
        self.told_by: str | None = None  # the check that ran first and said that the text or the passes are broken

    def collect(self):
        for name, check in checks_of(self.test).items():
            yield EirItem.from_parent(self, name=name, check=check)

    def is_broken(self):
        """Whether there is no graph, or none after the passes, to check anything of."""
        try:
            return self.run.after is None
        except PassTestFailure:
            return True


class EirItem(pytest.Item):
    """One check of a test."""

    def __init__(self, *, check, **keywords):
        super().__init__(**keywords)
        self.check = check

    def runtest(self):
        if self.parent.told_by not in (None, self.name):
            pytest.skip(f"the text or the passes are broken: see the check {self.parent.told_by!r}")
        try:
            self.check(self.parent.run)
        except PassTestFailure:
            if self.parent.is_broken():
                self.parent.told_by = self.name
            raise

    def repr_failure(self, excinfo):
        if isinstance(excinfo.value, PassTestFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, self.parent.test.line - 1, f"{self.parent.name}: {self.name}"

"""Random programs of loops, branches and calls, run by Python and as native functions: both give the same numbers."""

import importlib.util
import random

import pytest

from euler_ir.errors import LoweringError
from euler_ir.native import function

NAMES = ["a", "b", "c", "d"]
ARGUMENTS = [(0, 0), (1, 2), (-5, 7), (100, 3), (3, -100)]
PRELUDE = """
from euler_ir.native import i64

def helper(x: i64, y: i64) -> i64:
    if x > y:
        return x - y & 255
    return (x ^ y) & 255

def pair(x: i64, y: i64) -> (i64, i64):
    if x < y:
        return y, x
    elif x == y:
        return 1, 2
    return x, y & 3
"""
AS_NATIVE = """
from euler_ir.native import function
helper, pair = function(helper), function(pair)
"""


class Programs:
    """Writes programs that end, and whose numbers stay small. Variables may be read before they have a value."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._loops = 0

    def program(self, name):
        self._known = ["a", "b"]
        body = "\n".join(self._block(depth=3, indent=1, in_loop=False))
        return f"def {name}(a: i64, b: i64) -> i64:\n{body}\n    return a * 3 + b\n"

    def _number(self, depth=2):
        kind = self._random.randrange(8 if depth else 2)
        if kind == 0:
            return str(self._random.randrange(-3, 9))
        if kind == 1:
            return self._random.choice(self._known)
        left, right = self._number(depth - 1), self._number(depth - 1)
        return [
            f"(({left}) + ({right}) & 1023)",
            f"(({left}) * ({right}) & 511)",
            f"(({left}) {self._random.choice('-|^&')} ({right}))",
            f"({left} if {self._truth(depth - 1)} else {right})",
            f"(({left}) >> {self._random.choice([0, 1, 63, 64])})",
            f"helper({left}, {right})",
        ][kind - 2]

    def _truth(self, depth=1):
        a, b, c = (self._number(max(depth - 1, 0)) for _ in range(3))
        simple = [f"{a} {self._random.choice(['<', '<=', '>', '>=', '==', '!='])} {b}", f"{a} <= {b} < {c}"]
        if depth > 0:
            simple.append(f"not ({self._truth(depth - 1)})")
            word = self._random.choice(["and", "or"])
            simple.append(f"({self._truth(depth - 1)} {word} {self._truth(depth - 1)})")
        return self._random.choice(simple)

    def _assigned(self):
        name = self._random.choice(NAMES)
        if name not in self._known:
            self._known.append(name)
        return name

    def _block(self, depth, indent, in_loop):
        lines, pad = [], "    " * indent
        for _ in range(self._random.randrange(1, 4)):
            kind = self._random.choice(["set", "pair", "add", *["if", "for", "while", "leave"] * (depth > 0)])
            inside = {"depth": depth - 1, "indent": indent + 1, "in_loop": in_loop or kind in ("for", "while")}
            if kind == "set":
                value = self._number()
                lines.append(f"{pad}{self._assigned()} = {value}")
            elif kind == "pair":
                value = f"pair({self._number()}, {self._number()})"
                lines.append(f"{pad}{self._assigned()}, {self._assigned()} = {value}")
            elif kind == "add":
                lines.append(f"{pad}{self._random.choice(self._known)} += {self._number()} & 7")
            elif kind == "if":
                lines += [f"{pad}if {self._truth()}:", *self._block(**inside)]
                if self._random.random() < 0.6:
                    lines += [f"{pad}else:", *self._block(**inside)]
            elif kind == "for":
                bounds = f"{self._number(1)} & 3, {self._number(1)} & 7"
                lines += [f"{pad}for {self._assigned()} in range({bounds}):", *self._block(**inside)]
            elif kind == "while":
                lines += self._while(pad, inside)
            else:
                leave = self._random.choice([f"return {self._number()}", *["break", "continue"] * in_loop])
                lines += [f"{pad}if {self._truth()}:", f"{pad}    {leave}"]
        return lines

    def _while(self, pad, inside):
        self._loops += 1
        rounds = f"rounds{self._loops}"
        head = [f"{pad}{rounds} = 0"]
        if self._random.random() < 0.5:
            head += [f"{pad}while {rounds} < 5 and {self._truth()}:", f"{pad}    {rounds} += 1"]
        else:
            leave = self._random.choice(["break", f"return {self._number()}"])
            head += [f"{pad}while True:", f"{pad}    {rounds} += 1"]
            head += [f"{pad}    if {rounds} > 6:", f"{pad}        {leave}"]
        return head + self._block(**inside)


def loaded(path, text):
    path.write_text(text)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_random_programs_give_what_python_gives(tmp_path, seed):
    count = 30 if seed < 2 else 300
    programs = Programs(seed)
    text = PRELUDE + "\n".join(programs.program(f"program{number}") for number in range(count))
    python, native = loaded(tmp_path / "python.py", text), loaded(tmp_path / "native.py", text + AS_NATIVE)
    compared = refused = 0
    for number in range(count):
        ours, theirs = function(getattr(native, f"program{number}")), getattr(python, f"program{number}")
        for arguments in ARGUMENTS:
            try:
                found = ours(*arguments)
            except LoweringError as error:
                # Only for what Python may meet as an UnboundLocalError.
                assert "has no value on some way" in str(error) or "is not known here" in str(error)
                refused += 1
                break
            assert found == theirs(*arguments), f"{arguments} of program{number} in {tmp_path / 'native.py'}"
            compared += 1
    assert compared > 2 * count and refused > 0

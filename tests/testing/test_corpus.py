"""Graphs that once broke something, or were found by fuzzing: each is replayed through the whole chain.

A file of ``tests/corpus`` says in its first comment what it pins, and holds the arrays that it is called with.
"""

import contextlib
from pathlib import Path

import pytest

from euler_ir.testing import check_chain, read_case
from euler_ir.testing.limits import tight_limits

CORPUS = sorted((Path(__file__).parent.parent / "corpus").glob("*.eir"))


@pytest.mark.parametrize("limits", [contextlib.nullcontext, tight_limits], ids=["plain", "tight"])
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_means_the_same_everywhere(path, limits):
    case = read_case(path)
    with limits():
        check_chain(case.graph, case.leaves)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_file_of_the_corpus_is_small_and_says_what_it_pins(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith("// ") and len(first) > 20
    assert path.stat().st_size < 50_000

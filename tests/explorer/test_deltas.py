"""What is stored of a text gives the text back, and keeps what can be kept."""

import difflib

from hypothesis import given
from hypothesis import strategies as st

from euler_ir.inspect.explorer.deltas import LineTable, splices

TEXTS = st.lists(st.integers(0, 6), max_size=14)


def spliced(old, changes):
    new, at = [], 0
    for position, removed, added in changes:
        new += old[at:position] + list(added)
        at = position + removed
    return new + old[at:]


@given(TEXTS, TEXTS)
def test_changes_lead_from_one_text_to_the_next(old, new):
    assert spliced(old, splices(old, new)) == new


@given(TEXTS)
def test_what_is_the_same_has_no_changes(text):
    assert splices(text, text) == []


@given(st.permutations(range(9)), st.permutations(range(9)))
def test_of_different_lines_as_many_stay_as_can(old, new):
    removed = sum(change[1] for change in splices(old, new))
    assert len(old) - removed == longest_common(old, new)


def longest_common(old, new):
    """By the table of all pairs of prefixes."""
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, one in enumerate(old):
        for j, other in enumerate(new):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if one == other else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths[-1][-1]


def test_one_line_among_many_is_one_change():
    old = list(range(20_000))
    assert splices(old, [*old[:700], 99_999, *old[701:]]) == [(700, 1, (99_999,))]
    assert splices(old, [*old[:700], 99_999, *old[700:]]) == [(700, 0, (99_999,))]


def test_lines_are_kept_once_for_each_value():
    table = LineTable()
    assert [table.number("a"), table.number("b", 3), table.number("a"), table.number("b", 4)] == [0, 1, 0, 2]
    assert table.record() == {"line": ["a", "b", "b"], "value": [-1, 3, 4]}


def test_the_oracle_agrees_with_difflib_where_that_is_exact():
    matcher = difflib.SequenceMatcher(None, "abxcd", "abcd", autojunk=False)
    assert longest_common("abxcd", "abcd") == sum(block.size for block in matcher.get_matching_blocks())

"""Agreement with the interpreter, as an assertion."""

from euler_ir.inspect.agreement import disagreement


def assert_agrees(graph, leaves, got):
    """Assert that ``got`` (outputs and updates) are the interpreter's, up to rounding."""
    found = disagreement(graph, leaves, got)
    assert found is None, found

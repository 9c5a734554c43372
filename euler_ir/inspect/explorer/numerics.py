"""How exact each value is, in columns: as built in its own type, and as the compiled program stores it, beside f64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from euler_ir.inspect.numerics.compare import Comparison, ValueNumbers


def numerics_record(found: Comparison, numbers: Mapping[str, int]) -> dict:
    """``found`` with values as ``numbers`` has them by name, unquoted; an infinite error is the text "inf"."""
    return {
        "arrays": found.arrays,
        "backend": found.backend,
        "divergence": None if found.first is None else str(found.first),
        "built": _columns(found.values, numbers),
        "stored": _columns(found.stored, numbers),
    }


def _columns(values: Sequence[ValueNumbers], numbers: Mapping[str, int]) -> dict:
    errors = [value.error.record() for value in values]
    return {
        "value": [numbers[value.name] for value in values],
        **{column: [error[column] for error in errors] for column in ("relative", "ulps", "nans", "infinities")},
    }

"""Philox4x32-10 (Salmon et al., SC 2011) in generated code: the numbers of ``ops/random.py``, bit for bit."""

from __future__ import annotations

from euler_ir.backends.cpu.writer import Code, Register, constant
from euler_ir.dtypes import DType

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def _number(value: int) -> Register:
    return constant(value, "i64")


def _words(code: Code, value: Register) -> tuple[Register, Register]:
    """The low and the high 32 bits of an i64, each as an i64."""
    return code.binary("and", value, _number(0xFFFFFFFF)), code.binary("lshr", value, _number(32))


def emit_philox(code: Code, stream: int, dtype: DType, seed: Register, step: Register, index: Register) -> Register:
    """Element ``index`` of random operator ``stream``: a number in [0, 1) of ``dtype``, f32 or f64."""
    key0, key1 = _words(code, seed)
    c0, c1 = _words(code, index)
    c2, c3 = _words(code, step)[0], _number(stream)
    for round_number in range(_ROUNDS):
        if round_number:
            key0, key1 = (
                _words(code, code.binary("add", key, _number(increment)))[0]
                for key, increment in zip((key0, key1), _KEY_STEPS, strict=True)
            )
        low0, high0 = _words(code, code.binary("mul", c0, _number(_MULTIPLIERS[0])))
        low1, high1 = _words(code, code.binary("mul", c2, _number(_MULTIPLIERS[1])))
        c0, c1 = code.binary("xor", code.binary("xor", high1, c1), key0), low1
        c2, c3 = code.binary("xor", code.binary("xor", high0, c3), key1), low0
    if dtype.bits == 64:
        bits = code.binary("or", code.binary("shl", code.binary("lshr", c0, _number(11)), _number(32)), c1)
        return code.binary("fmul", code.convert("sitofp", bits, "double"), constant(2.0**-53, "double"))
    bits = code.convert("trunc", code.binary("lshr", c0, _number(8)), "i32")
    return code.binary("fmul", code.convert("sitofp", bits, "float"), constant(2.0**-24, "float"))

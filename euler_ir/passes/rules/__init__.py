"""The rules that ``simplify`` applies, in tables by what they are about."""

from euler_ir.passes.rules.arithmetic import ARITHMETIC, LOGIC
from euler_ir.passes.rules.better import BETTER
from euler_ir.passes.rules.gelu import GELU
from euler_ir.passes.rules.loose import LOOSE
from euler_ir.passes.rules.movement import MOVEMENT

SIMPLIFY = (*MOVEMENT, *ARITHMETIC, *LOGIC, *BETTER, *GELU, *LOOSE)
"""In the order in which they are tried."""

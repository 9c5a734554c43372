"""Every operator, one file a family. Importing this package fills ``OPS``."""

from euler_ir.ops import (  # noqa: F401
    attention,
    contraction,
    elementwise,
    indexing,
    leaf,
    movement,
    network,
    normalization,
    random,
    reduction,
)
from euler_ir.ops.definition import OPS, OpDefinition, define

__all__ = ["OPS", "OpDefinition", "define"]

"""What the parts of a plan are called, and where in the user's model they come from."""

from __future__ import annotations

from euler_ir.graph import Op
from euler_ir.ops.indexing import starts_of
from euler_ir.passes.groups import Group
from euler_ir.plan.plan import Fault, Origin


def fault_of(op: Op) -> Fault:
    """What an index of ``op`` that is out of range is reported as."""
    match op.name:
        case "take":
            extent = op.operands[0].shape[op.attributes["axis"]]
        case "index_add":
            extent = op.result.shape[op.attributes["axis"]]
        case "dynamic_update_slice":
            extent = starts_of(op)
        case _:
            extent = op.attributes["size"]
    return Fault(op.name, extent, op.location)


def kernel_name(groups: list[Group]) -> str:
    """The name of the kernel that runs ``groups``, from the first two of them."""
    names = list(dict.fromkeys(group.name for group in groups))
    return names[0] if len(names) == 1 else f"{names[0]}_and_{names[1]}" + ("_and_more" if len(names) > 2 else "")


def origin_of(group: Group) -> Origin:
    """Where ``group`` comes from."""
    operators = dict.fromkeys(op.name for op in group.ops)
    locations = dict.fromkeys(op.location for op in group.ops if op.location is not None)
    return Origin(group.name, tuple(operators), group.ops[-1].scope, tuple(locations))

"""Passes: functions from graph to graph, each with a name and options, listed in ``pipeline.PIPELINE``."""

from euler_ir.graph import Rebuild
from euler_ir.passes.cse import MergeEqual
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.decompose import Decompose
from euler_ir.passes.fold import Fold
from euler_ir.passes.legalize import Legalize
from euler_ir.passes.manager import Pass, PassManager
from euler_ir.passes.meaning import check_meaning
from euler_ir.passes.pipeline import PIPELINE, default_pipeline, optimize
from euler_ir.passes.rematerialize import Rematerialize
from euler_ir.passes.share_transposes import ShareTransposes
from euler_ir.passes.simplify import Simplify
from euler_ir.passes.split_rows import SplitRows

__all__ = [
    "PIPELINE",
    "Decompose",
    "Fold",
    "Legalize",
    "MergeEqual",
    "Pass",
    "PassManager",
    "Rebuild",
    "Rematerialize",
    "RemoveDead",
    "ShareTransposes",
    "Simplify",
    "SplitRows",
    "check_meaning",
    "default_pipeline",
    "optimize",
]

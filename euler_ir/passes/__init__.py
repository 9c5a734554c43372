"""Passes: functions from graph to graph, each with a name and options; ``pipeline`` lists and reads them."""

from euler_ir.passes.by_example import rewrite_rule
from euler_ir.passes.cost import Cost, cost, op_cost
from euler_ir.passes.cse import MergeEqual
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.decompose import Decompose
from euler_ir.passes.fold import Fold
from euler_ir.passes.fuse import Fuse
from euler_ir.passes.instruments import Count, Dump, Instrument, Limit, Snapshots, Timing, Verify, watching
from euler_ir.passes.legalize import Legalize
from euler_ir.passes.manager import PASSES, Pass, PassManager
from euler_ir.passes.meaning import check_meaning
from euler_ir.passes.numerics import NUMERICS
from euler_ir.passes.pad_products import PadProducts
from euler_ir.passes.patterns import Number
from euler_ir.passes.pipeline import PIPELINE, PRESETS, Pipeline, optimize, parse_pipeline
from euler_ir.passes.rematerialize import Rematerialize
from euler_ir.passes.rewriting import RULES, Rule
from euler_ir.passes.share_transposes import ShareTransposes
from euler_ir.passes.simplify import Rewrite, Simplify
from euler_ir.passes.split_rows import SplitRows
from euler_ir.rebuild import Rebuild

__all__ = [
    "NUMERICS",
    "PASSES",
    "PIPELINE",
    "PRESETS",
    "RULES",
    "Cost",
    "Count",
    "Decompose",
    "Dump",
    "Fold",
    "Fuse",
    "Instrument",
    "Legalize",
    "Limit",
    "MergeEqual",
    "Number",
    "PadProducts",
    "Pass",
    "PassManager",
    "Pipeline",
    "Rebuild",
    "Rematerialize",
    "RemoveDead",
    "ShareTransposes",
    "Rewrite",
    "Rule",
    "Simplify",
    "Snapshots",
    "SplitRows",
    "Timing",
    "Verify",
    "check_meaning",
    "cost",
    "op_cost",
    "optimize",
    "parse_pipeline",
    "rewrite_rule",
    "watching",
]

"""Why the compiler did not do what would have saved memory traffic: a stable code, a sentence, and what would lift it.

What decides keeps a Refusal where it declines, so that a report never says anything else than what was decided.
"""

from __future__ import annotations

from dataclasses import dataclass

REASONS: dict[str, tuple[str, str]] = {
    # An operator that does not join the loops that make its operand.
    "full-group": (
        "the loops that make it hold {} operators, with this one more than the {} that a group may have",
        "raise max_ops of the pass fuse: larger kernels, longer compilation",
    ),
    "different-frame": (
        "it is made by loops over {}, and read by loops over {}",
        "give both the same shape; a smaller one is read by broadcasting once it is in memory",
    ),
    "reads-at-other-index": (
        "it is made at [{}] and read at [{}]",
        "read elements where they are made: without a transpose, a shift or a gather in between",
    ),
    "needs-serial-reduction": (
        "loops over {} that reduce axes {} would leave too few rows to share among threads",
        "reduce in two steps, or over another axis",
    ),
    "other-reduction": (
        "its loops reduce axes {} already, and this would reduce {}",
        "reduce the same axes in both places",
    ),
    "in-order": (
        "group {} in between reads it and makes what is read here too: one loop would have to run before and after it",
        "nothing: this is the order of the computation",
    ),
    "earlier-group": (
        "its reader joins or follows the latest group that it reads from, and that is another one",
        "compute the operand closer to where it is read, or in the shape of the other operands",
    ),
    "product-result": (
        "a matrix product makes it",
        "let one elementwise group alone read the result, element by element: then it runs inside of the product",
    ),
    "call-result": ("{} makes it, in a call of its own", "nothing: the call writes its result whole"),
    "runs-alone": (
        "{} runs as loops of its own, since it writes where its indices say",
        "nothing: its neighbours cannot know which elements it writes",
    ),
    "keeps-product-open": (
        "its group can run inside of the product that it reads, part by part; with this reduction it could not",
        "nothing: what the reduction reads is stored anyway",
    ),
    "long-element": (
        "an element takes {} operators that have no loops of their own, more than {}: it is put into memory",
        "raise max_inline_size of the pass fuse, or move elements fewer times",
    ),
    "own-place": (
        "{} is put into memory by loops of its own, for a call or as a result",
        "give the call a layout that it can read as it is: contiguous rows or columns",
    ),
    "computed-late": (
        "rematerialization keeps it, so that its reader is computed again late",
        "raise the memory budget",
    ),
    "stored-anyway": ("it lies in memory for another reader already", "nothing: the write is paid for"),
    "reads-to-repeat": (
        "{} is computed a second time here, from what is in memory, instead of being stored",
        "nothing: reading this is the cheaper way",
    ),
    # A call and what makes its operand.
    "call-operand": ("{} reads its operands from memory", "nothing: only matrix products make their operands"),
    "operand-read-elsewhere": (
        "the product could make it only if nothing else read it, and {} does",
        "let every reader be a product, or none",
    ),
    "no-prologues": (
        "products make no operand themselves in this pipeline: its library reads them from memory",
        "nothing: the option prologues of the pass fuse is for backends that generate their products",
    ),
    "operand-in-parts": (
        "the product reads a part of it, or reads it batch by batch, or twice",
        "give the product whole rows of one matrix",
    ),
    "operand-not-elementwise": (
        "it is made by {}, which no product can do",
        "let elementwise operators make it last",
    ),
    "operand-in-product": (
        "what makes it runs inside of another product already",
        "nothing: it is written while it is in the cache",
    ),
    "operand-rearranged": (
        "it is not made element by element of what has its shape",
        "make it elementwise of tensors of its own shape, or broadcast to it",
    ),
    # A reader that might compute the value again.
    "not-elementwise": ("{} is no elementwise operator", "nothing: repeating it costs more than reading it"),
    "costly": (
        "an element takes {} units of work, more than {}",
        "raise max_repeated_work of the pass fuse (of products: MAX_PROLOGUE_WORK in passes/stored_values.py)",
    ),
    "long": (
        "an element takes {} operators, more than {}",
        "raise max_repeated of the pass fuse",
    ),
    "reads-more": (
        "it would read {} elements to make {}",
        "nothing: reading the value itself moves less",
    ),
    "reads-unstored": (
        "it is made of {}, which lies in registers alone",
        "nothing: that would have to be stored instead",
    ),
    # A product's result and the group that reads it.
    "product-read-twice": ("{} read the result", "let one elementwise group read it alone"),
    "product-is-result": ("the graph gives the product's result away", "nothing: it must be in memory at the end"),
    "product-reader-kind": (
        "the group that reads it is a {}, which cannot run part by part",
        "store what the reduction reads, or reduce later",
    ),
    "product-batched": (
        "the product is batched, or its result is not one whole matrix with more than one row and column",
        "merge the batch into rows: reshape the left operand",
    ),
    "product-other-order": (
        "the group does not go over it row by row, each point reading its own element",
        "read the result in its own order",
    ),
    "product-no-host": (
        "no output of the group is like it in size and type, and free to hold it meanwhile",
        "let the group write one tensor of the product's size and type",
    ),
    "product-after-another": (
        "the group runs inside of another product, which comes later",
        "nothing: a group can run inside of one product",
    ),
    # A value that does not lie in the memory of another one.
    "written-in-parts": ("it is written in several places, or added to", "nothing: what is there must stay meanwhile"),
    "read-at-other-place": (
        "element {} is read where element {} is written",
        "read and write elements in the same order",
    ),
    "read-under-condition": (
        "it is read only where a condition holds (padding, concatenation)",
        "nothing: an element that is not read may not be overwritten unseen",
    ),
    "read-after-write": ("its elements are read again after they are written", "nothing: a second pass needs them"),
    "read-later": ("{} reads it later", "read it before, or together with what replaces it"),
    "read-by-call": (
        "{} reads it to the end, while the result is written already",
        "nothing: every element is read often",
    ),
    "read-beside": ("{} reads it at the same time", "nothing: steps of one phase run side by side"),
    "not-computed": ("what replaces it is in memory from the start", "nothing: it must be copied"),
    "has-a-place": ("what replaces it lies in the memory of {} already", "give each its own value"),
    "other-size": ("none of what its nest reads last has its size", "nothing: there is no memory to take over"),
    "taken": ("another output of the nest takes that memory", "nothing: one of them can"),
    "not-in-arena": ("{} is not the plan's own memory", "nothing: it must stay as it is"),
    "call-writes-new": ("{} writes to memory of its own", "nothing: a call reads operands while it writes"),
}
"""By code: what was in the way, and what would lift it. Figures stand for {}."""


@dataclass(frozen=True)
class Refusal:
    """Why something was declined: ``code`` is one of REASONS, ``facts`` are the figures of this case."""

    code: str
    facts: tuple = ()

    @property
    def why(self) -> str:
        return REASONS[self.code][0].format(*map(_said, self.facts))

    @property
    def hint(self) -> str:
        return REASONS[self.code][1]


def _said(fact) -> str:
    """A figure in words: a shape as ``4 x 8``, indices as ``i, j``."""
    if not isinstance(fact, tuple):
        return str(fact)
    if all(isinstance(part, int) for part in fact):
        return " x ".join(map(str, fact)) or "one element"
    return ", ".join(map(str, fact)) or "its only element"

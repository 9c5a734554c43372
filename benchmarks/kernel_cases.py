"""The kernels that are timed: what each computes, on which numbers, and what it must at least compute or move."""

import math
from dataclasses import dataclass

import numpy as np

# Rows, inner size and columns of GPT-2's linear layers: nano, small, two of 124M at 256 and 1024 tokens, and its head.
LINEAR_SHAPES = (
    (2048, 128, 512),
    (2048, 384, 1536),
    (256, 768, 2304),
    (256, 768, 3072),
    (1024, 768, 3072),
    (256, 768, 50257),
)
ATTENTION_SHAPES = ((4, 12, 256, 64), (1, 12, 1024, 64))
IN_CACHE, OUT_OF_CACHE = (2048, 768), (4096, 3072)
LOGITS = (2048, 50257)
TABLE = (50257, 768)
ADAMW = (8192, 4096)
LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1


@dataclass(frozen=True)
class Case:
    """A kernel: ``kind`` says what it computes, ``sizes`` of what. ``flops`` are those of its products, if it has any;
    ``nbytes`` are those of operands and results, each once.
    """

    part: str
    kind: str
    sizes: tuple[int, ...]
    flops: int
    nbytes: int

    @property
    def name(self):
        return f"{self.kind} {' x '.join(map(str, self.sizes))}"

    def arrays(self):
        """The operands by name, the same at every call."""
        generator = np.random.default_rng(0)
        return {name: make(generator) for name, make in _OPERANDS[self.kind](*self.sizes).items()}


def _normal(*shape):
    return lambda generator: generator.standard_normal(shape, np.float32)


def _integers(limit, *shape):
    return lambda generator: generator.integers(0, limit, shape, np.int64)


def _attention(batch, heads, length, width):
    return {name: _normal(batch, heads, length, width) for name in ("q", "k", "v")}


# By kind: the operands of a case of these sizes, in the order in which they are drawn.
_OPERANDS = {
    "matmul NN": lambda m, k, n: {"a": _normal(m, k), "b": _normal(k, n)},
    "matmul NT": lambda m, k, n: {"a": _normal(m, k), "b": _normal(n, k)},
    "matmul TN": lambda m, k, n: {"a": _normal(k, m), "b": _normal(k, n)},
    "linear+gelu": lambda m, k, n: {"x": _normal(m, k), "w": _normal(k, n), "b": _normal(n)},
    "attention": _attention,
    "attention, both ways": lambda *sizes: {**_attention(*sizes), "g": _normal(*sizes)},
    "layer norm": lambda rows, width: {"x": _normal(rows, width), "w": _normal(width), "b": _normal(width)},
    "softmax": lambda rows, width: {"x": _normal(rows, width)},
    "gelu": lambda rows, width: {"x": _normal(rows, width)},
    "cross-entropy": lambda rows, classes: {"x": _normal(rows, classes), "t": _integers(classes, rows)},
    "cross-entropy, both ways": lambda rows, classes: {"x": _normal(rows, classes), "t": _integers(classes, rows)},
    "adamw": lambda rows, width: {"p": _normal(rows, width), "g": _normal(rows, width)},
    "gather": lambda rows, table, width: {"x": _normal(table, width), "t": _integers(table, rows)},
    "scatter-add": lambda rows, table, width: {"x": _normal(rows, width), "t": _integers(table, rows)},
}


PARTS = ("gemm", "epilogue", "attention", "rows", "loss", "adamw", "embedding")


def cases(part):
    """The cases of one of PARTS."""
    return [case for case in _cases() if case.part == part]


def _cases():
    # Imported here, so that the peers' processes, which are handed their cases, need no euler_ir.
    from euler_ir.passes.cost import attention_flops, matmul_flops

    def product(part, kind, rows, inner, columns, more=0):
        elements = rows * inner + inner * columns + rows * columns + more
        return Case(part, kind, (rows, inner, columns), matmul_flops(rows, inner, columns), 4 * elements)

    for rows, inner, columns in LINEAR_SHAPES:
        yield product("gemm", "matmul NN", rows, inner, columns)
        yield product("gemm", "matmul NT", rows, columns, inner)
        yield product("gemm", "matmul TN", inner, rows, columns)
    for rows, inner, columns in LINEAR_SHAPES[1:5]:
        yield product("epilogue", "linear+gelu", rows, inner, columns, more=columns)
    for batch, heads, length, width in ATTENTION_SHAPES:
        sizes, size = (batch, heads, length, width), 4 * batch * heads * length * width
        forward, backward = (
            attention_flops(batch * heads, length, length, width, width, True, backward) for backward in (False, True)
        )
        yield Case("attention", "attention", sizes, forward, 4 * size)
        yield Case("attention", "attention, both ways", sizes, forward + backward, 8 * size)
    for shape in (IN_CACHE, OUT_OF_CACHE):
        for kind in ("layer norm", "softmax", "gelu"):
            yield Case("rows", kind, shape, 0, 4 * 2 * math.prod(shape))
    yield Case("loss", "cross-entropy", LOGITS, 0, 4 * math.prod(LOGITS))
    yield Case("loss", "cross-entropy, both ways", LOGITS, 0, 4 * 2 * math.prod(LOGITS))
    yield Case("adamw", "adamw", ADAMW, 0, 4 * 7 * math.prod(ADAMW))
    yield Case("embedding", "gather", (2048, *TABLE), 0, 4 * 2 * 2048 * TABLE[1])
    yield Case("embedding", "scatter-add", (2048, *TABLE), 0, 4 * (2048 * TABLE[1] + math.prod(TABLE)))

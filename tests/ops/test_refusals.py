"""What does not fit is refused when a graph is built, with the types and names of the operands and the user's line."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness import BACKENDS, as_torch, run

import euler_ir as ei
from euler_ir import tensor as T
from euler_ir.errors import DTypeError, ExecutionError, GraphError, ShapeError

sdpa = F.scaled_dot_product_attention


def rms_norm(x, weight):
    return F.rms_norm(x, (3,), weight)


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (3,), weight, bias)


def cat(*tensors):
    return torch.cat(tensors)


# Each row: the operands' types, what is tried, the same in torch (None where torch allows it or has no such function),
# and the error. The operands are named a, b, c.
REFUSALS = {
    "add shapes": ("f32[2,3] f32[4]", lambda a, b: a + b, torch.add, ShapeError),
    "maximum shapes": ("f32[2,3] f32[2]", lambda a, b: T.maximum(a, b), torch.maximum, ShapeError),
    "less shapes": ("i32[2] i32[3]", lambda a, b: a < b, torch.lt, ShapeError),
    "where shapes": ("bool[2] f32[3] f32[3]", lambda a, b, c: T.where(a, b, c), torch.where, ShapeError),
    "where sides": ("bool[3] f32[3] f32[2]", lambda a, b, c: T.where(a, b, c), torch.where, ShapeError),
    "matmul inner": ("f32[2,3] f32[4,5]", lambda a, b: a @ b, torch.matmul, ShapeError),
    "matmul inner transposed": ("f32[2,3] f32[3,5]", lambda a, b: T.matmul(a, b, True), None, ShapeError),
    "matmul vectors": ("f32[3] f32[4]", lambda a, b: a @ b, torch.matmul, ShapeError),
    "matmul batches": ("f32[2,3,4] f32[5,4,3]", lambda a, b: a @ b, torch.matmul, ShapeError),
    "matmul 0-d": ("f32[] f32[3]", lambda a, b: a @ b, torch.matmul, ShapeError),
    "matmul bool": ("bool[2,3] bool[3,2]", lambda a, b: a @ b, torch.matmul, DTypeError),
    "broadcast_to": ("f32[3]", lambda a: T.broadcast_to(a, (2, 4)), lambda a: a.expand(2, 4), ShapeError),
    "broadcast_to fewer axes": ("f32[2,3]", lambda a: T.broadcast_to(a, (3,)), lambda a: a.expand(3), ShapeError),
    "broadcast_to negative": ("f32[3]", lambda a: T.broadcast_to(a, (-2, 3)), lambda a: a.expand(-2, 3), ShapeError),
    "reshape": ("f32[2,3]", lambda a: T.reshape(a, (4, 2)), lambda a: a.reshape(4, 2), ShapeError),
    "reshape -1": ("f32[2,3]", lambda a: T.reshape(a, (4, -1)), lambda a: a.reshape(4, -1), ShapeError),
    "reshape two -1": ("f32[2,3]", lambda a: T.reshape(a, (-1, -1)), lambda a: a.reshape(-1, -1), ShapeError),
    "reshape -2": ("f32[2,3]", lambda a: T.reshape(a, (-2, -3)), lambda a: a.reshape(-2, -3), ShapeError),
    "transpose repeated": ("f32[2,3]", lambda a: T.transpose(a, 0, 0), lambda a: a.permute(0, 0), ShapeError),
    "transpose short": ("f32[2,3]", lambda a: T.transpose(a, 0), lambda a: a.permute(0), ShapeError),
    "transpose axis": ("f32[2,3]", lambda a: T.transpose(a, 0, 2), lambda a: a.permute(0, 2), ShapeError),
    "swap_axes": ("f32[2,3]", lambda a: T.swap_axes(a, 0, 2), lambda a: a.swapaxes(0, 2), ShapeError),
    "expand_dims": ("f32[2,3]", lambda a: T.expand_dims(a, 4), lambda a: a.unsqueeze(4), ShapeError),
    "squeeze": ("f32[2,3]", lambda a: T.squeeze(a, 0), None, ShapeError),
    "squeeze axis": ("f32[2,3]", lambda a: T.squeeze(a, 5), lambda a: a.squeeze(5), ShapeError),
    "flip": ("f32[2,3]", lambda a: T.flip(a, 2), lambda a: a.flip(2), ShapeError),
    "pad ranks": ("f32[2,3]", lambda a: T.pad(a, ((1, 1),)), None, ShapeError),
    "pad negative": ("f32[2]", lambda a: T.pad(a, ((-1, 0),)), None, ShapeError),
    "pad int with float": ("i32[2]", lambda a: T.pad(a, ((1, 0),), 0.5), None, DTypeError),
    "pad int with inf": ("i32[2]", lambda a: T.pad(a, ((1, 0),), float("inf")), None, DTypeError),
    "concatenate": ("f32[2,3] f32[2,4]", lambda a, b: T.concatenate([a, b], 0), cat, ShapeError),
    "concatenate ranks": ("f32[2,3] f32[2]", lambda a, b: T.concatenate([a, b]), cat, ShapeError),
    "concatenate axis": ("f32[2] f32[2]", lambda a, b: T.concatenate([a, b], 1), None, ShapeError),
    "stack": ("f32[2] f32[3]", lambda a, b: T.stack([a, b]), lambda a, b: torch.stack([a, b]), ShapeError),
    "split": ("f32[2,7]", lambda a: T.split(a, 3), None, ShapeError),
    "split nothing": ("f32[2,7]", lambda a: T.split(a, 0), lambda a: a.chunk(0, -1), ShapeError),
    "index": ("f32[2,3]", lambda a: a[2], lambda a: a[2], ShapeError),
    "index negative": ("f32[2,3]", lambda a: a[0, -4], lambda a: a[0, -4], ShapeError),
    "index too many": ("f32[2,3]", lambda a: a[0, 0, 0], lambda a: a[0, 0, 0], ShapeError),
    "index 0-d": ("f32[]", lambda a: a[0], lambda a: a[0], ShapeError),
    "index str": ("f32[2]", lambda a: a["x"], None, ShapeError),
    "index float": ("f32[2]", lambda a: a[1.0], lambda a: a[1.0], ShapeError),
    "index mask": ("f32[3] bool[3]", lambda a, b: a[b], None, DTypeError),
    "iterate 0-d": ("f32[]", lambda a: list(a), list, ShapeError),
    "len 0-d": ("f32[]", lambda a: len(a), len, ShapeError),
    "truth value": ("f32[2]", lambda a: bool(a), bool, DTypeError),
    "sum axis": ("f32[2,3]", lambda a: T.sum(a, 2), lambda a: a.sum(2), ShapeError),
    "sum axis twice": ("f32[2,3]", lambda a: T.sum(a, (0, -2)), lambda a: a.sum((0, -2)), ShapeError),
    "sum axis bool": ("f32[2,3]", lambda a: T.sum(a, True), None, ShapeError),
    "mean axis": ("f32[2]", lambda a: T.mean(a, -2), lambda a: a.mean(-2), ShapeError),
    "max of nothing": ("f32[3,0]", lambda a: T.max(a, 1), lambda a: a.amax(1), ShapeError),
    "min of nothing": ("f32[0]", lambda a: T.min(a), lambda a: a.min(), ShapeError),
    "argmax of nothing": ("f32[0]", lambda a: T.argmax(a), lambda a: a.argmax(), ShapeError),
    "argmax axis": ("f32[2]", lambda a: T.argmax(a, 1), lambda a: a.argmax(1), ShapeError),
    "cumsum axis": ("f32[2]", lambda a: T.cumsum(a, 1), lambda a: a.cumsum(1), ShapeError),
    "cumsum 0-d": ("f32[]", lambda a: T.cumsum(a, 0), None, ShapeError),
    "softmax axis": ("f32[2]", lambda a: T.softmax(a, 1), lambda a: a.softmax(1), ShapeError),
    "layer_norm weight": ("f32[2,3] f32[2] f32[3]", lambda a, b, c: T.layer_norm(a, b, c), layer_norm, ShapeError),
    "rms_norm weight": ("f32[2,3] f32[2]", lambda a, b: T.rms_norm(a, b), rms_norm, ShapeError),
    "rms_norm 0-d": ("f32[] f32[]", lambda a, b: T.rms_norm(a, b), None, ShapeError),
    "layer_norm 0-d": ("f32[] f32[] f32[]", lambda a, b, c: T.layer_norm(a, b, c), None, ShapeError),
    "cross_entropy shapes": ("f32[2,3] i64[3]", lambda a, b: T.cross_entropy(a, b), F.cross_entropy, ShapeError),
    "cross_entropy labels": ("f32[2,3] f32[2]", lambda a, b: T.cross_entropy(a, b), F.cross_entropy, DTypeError),
    "attention widths": ("f32[2,4] f32[3,5] f32[3,4]", lambda a, b, c: T.attention(a, b, c), sdpa, ShapeError),
    "attention keys": ("f32[2,4] f32[3,4] f32[2,4]", lambda a, b, c: T.attention(a, b, c), sdpa, ShapeError),
    "attention heads": ("f32[2,3,4] f32[5,3,4] f32[5,3,4]", lambda a, b, c: T.attention(a, b, c), sdpa, ShapeError),
    "attention shared": ("f32[5,3,4] f32[2,3,4] f32[2,3,4]", lambda a, b, c: T.attention(a, b, c), sdpa, ShapeError),
    "attention more keys": ("f32[2,3,4] f32[4,3,4] f32[4,3,4]", lambda a, b, c: T.attention(a, b, c), sdpa, ShapeError),
    "attention values": ("f32[4,3,4] f32[2,3,4] f32[1,3,4]", lambda a, b, c: T.attention(a, b, c), None, ShapeError),
    "attention vectors": ("f32[4] f32[4] f32[4]", lambda a, b, c: T.attention(a, b, c), None, ShapeError),
    "attention 0-d": ("f32[] f32[] f32[]", lambda a, b, c: T.attention(a, b, c), sdpa, ShapeError),
    "attention integers": ("i32[2,4] i32[2,4] i32[2,4]", lambda a, b, c: T.attention(a, b, c), sdpa, DTypeError),
    "attention floats": ("f32[2,4] f32[2]", lambda a, b: T.attention(a, a, a, visible_from=b), None, DTypeError),
    "attention starts": ("f32[2,4] i64[3]", lambda a, b: T.attention(a, a, a, visible_from=b), None, ShapeError),
    "take floats": ("f32[3] f32[2]", lambda a, b: T.take(a, b), lambda a, b: torch.take(a, b), DTypeError),
    "take axis": ("f32[3] i64[2]", lambda a, b: T.take(a, b, 1), lambda a, b: a.index_select(1, b), ShapeError),
    "take 0-d": ("f32[] i64[2]", lambda a, b: T.take(a, b), None, ShapeError),
    "scatter_add shapes": ("i64[2] f32[3,4]", lambda a, b: T.scatter_add(a, b, 5), None, ShapeError),
    "update rank": ("f32[4,3] f32[3] i64[]", lambda a, b, c: T.dynamic_update_slice(a, b, c), None, ShapeError),
    "update longer": ("f32[4,3] f32[5,3] i64[]", lambda a, b, c: T.dynamic_update_slice(a, b, c), None, ShapeError),
    "update wider": ("f32[4,3] f32[1,2] i64[]", lambda a, b, c: T.dynamic_update_slice(a, b, c), None, ShapeError),
    "update dtype": ("f32[4] f64[1] i64[]", lambda a, b, c: T.dynamic_update_slice(a, b, c), None, DTypeError),
    "update starts": ("f32[4] f32[1] i64[1]", lambda a, b, c: T.dynamic_update_slice(a, b, c), None, ShapeError),
    "update rows": ("f32[4,3] f32[4,1] i64[3]", lambda a, b, c: T.dynamic_update_slice(a, b, c, 1), None, ShapeError),
    "update float start": ("f32[4] f32[1] f32[]", lambda a, b, c: T.dynamic_update_slice(a, b, c), None, DTypeError),
    "update axis": ("f32[4] f32[1] i64[]", lambda a, b, c: T.dynamic_update_slice(a, b, c, 1), None, ShapeError),
    "scatter_add floats": ("f32[2] f32[2]", lambda a, b: T.scatter_add(a, b, 5), None, DTypeError),
    "negative bool": ("bool[2]", lambda a: -a, lambda a: -a, DTypeError),
    "subtract bool": ("bool[2] bool[2]", lambda a, b: a - b, torch.sub, DTypeError),
    "abs bool": ("bool[2]", lambda a: abs(a), torch.abs, DTypeError),
    "bitwise and": ("i32[2] i32[2]", lambda a, b: a & b, None, DTypeError),
    "bitwise not": ("i32[2]", lambda a: ~a, None, DTypeError),
    "bitwise float": ("f32[2]", lambda a: a | 1, lambda a: a | 1, DTypeError),
    "negative power": ("i32[2]", lambda a: a**-1, lambda a: a**-1, DTypeError),
    "number too large": ("i8[2]", lambda a: a + 1000, None, DTypeError),
    "number below zero": ("u8[2]", lambda a: a * -1, None, DTypeError),
    "add str": ("f32[2]", lambda a: a + "x", lambda a: a + "x", DTypeError),
    "add none": ("f32[2]", lambda a: a + None, lambda a: a + None, DTypeError),
    "cast": ("f32[2]", lambda a: T.cast(a, "complex64"), lambda a: a.to("complex64"), DTypeError),
    "gelu form": ("f32[2]", lambda a: T.gelu(a, "sigmoid"), lambda a: F.gelu(a, approximate="sigmoid"), DTypeError),
    "dropout rate": ("f32[2]", lambda a: T.dropout(a, 1.5, 0, 0), lambda a: F.dropout(a, 1.5), ShapeError),
    "gradient of a tensor": ("f32[2]", lambda a: ei.gradient(a * 2, [a]), torch.Tensor.backward, GraphError),
    "gradient by integers": ("i32[2]", lambda a: ei.gradient(T.sum(T.cast(a, "f32")), [a]), None, GraphError),
    "name taken": ("f32[2]", lambda a: a.graph.input("a", (2,)), None, GraphError),
    "output taken": ("f32[2]", lambda a: [a.graph.set_outputs(y=a), a.graph.set_outputs(y=a)], None, GraphError),
    "update of an input": ("f32[2]", lambda a: a.graph.set_update(a, a), None, GraphError),
}  # fmt: skip


# Where only some of the operands are at fault, only these need to be named.
AT_FAULT = {
    "where sides": "bc",
    "concatenate axis": "a",
    "attention starts": "b",
    "take axis": "a",
    "take 0-d": "a",
    "update axis": "a",
    "bitwise and": "a",
    "gradient of a tensor": "",
}


def parse_type(text):
    dtype, _, sizes = text.rstrip("]").partition("[")
    return dtype, tuple(int(size) for size in sizes.split(",") if size)


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_names_operands_and_line(name):
    types, attempt, in_torch, error_type = REFUSALS[name]
    graph = ei.Graph("refused")
    inputs = [graph.input(label, *reversed(parse_type(text))) for label, text in zip("abc", types.split())]
    with pytest.raises(error_type) as caught:
        attempt(*inputs)
    error, code = caught.value, attempt.__code__
    assert error.location is not None and (error.location.file, error.location.line) == (__file__, code.co_firstlineno)
    message = str(error)
    assert f"{__file__}:{code.co_firstlineno}" in message
    assert f'"{name}": (' in message  # the user's source line
    described = [detail.split(": ", 1)[1] for detail in error.details]
    for value in inputs:
        if value.name in AT_FAULT.get(name, "abc"):
            assert any(text.startswith(f"{value.name}: {value.type} from {__file__}:") for text in described)
        assert all(detail in message for detail in error.details)


@pytest.mark.parametrize("name", [name for name, row in REFUSALS.items() if row[2] is not None])
def test_torch_refuses_the_same(name):
    types, _, in_torch, _ = REFUSALS[name]
    tensors = [
        as_torch(np.zeros(shape, ei.dtypes.as_dtype(dtype).numpy)) for dtype, shape in map(parse_type, types.split())
    ]
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)):
        in_torch(*tensors)


def test_a_value_of_another_graph_is_refused():
    graphs = [ei.Graph("first"), ei.Graph("second")]
    a, b = (graph.input(name, (2,)) for name, graph in zip("ab", graphs))
    with pytest.raises(GraphError, match="operand belongs to graph 'second', not to 'first'") as caught:
        a + b
    assert "b: f32[2]" in str(caught.value) and caught.value.location.file == __file__


def test_no_tensor_at_all_is_refused_with_the_line():
    for attempt in (lambda: T.add(1, 2), lambda: T.concatenate([]), lambda: T.stack([])):
        with pytest.raises((DTypeError, ShapeError)) as caught:
            attempt()
        assert caught.value.location.file == __file__


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", [-1, 4, 2**31])
def test_an_index_out_of_range_is_refused_at_run_time(index, backend):
    """Never wrapped around, never clamped (jax#5760, pytorch#183608)."""
    for build in (
        lambda x, i: T.take(x, i),
        lambda x, i: T.scatter_add(i, x[:2], 4),
        lambda x, i: T.dynamic_update_slice(x, x[:1] + 1, i[1]),
        lambda x, i: T.dynamic_update_slice(T.broadcast_to(x, (2, 4)), T.broadcast_to(x[:1], (2, 1)), i, 1),
    ):
        graph = ei.Graph("lookup")
        with graph:
            graph.set_outputs(value=build(graph.input("x", (4,)), graph.input("i", (2,), "i64")))
        with pytest.raises(ExecutionError) as caught:
            run(graph, {"x": np.zeros(4, np.float32), "i": np.array([0, index])}, backend)
        assert "0..3" in str(caught.value)
        assert backend != "interpreter" or str(index) in str(caught.value)
        assert caught.value.location.file == __file__


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_that_do_not_fit_are_refused_at_run_time(backend):
    graph = ei.Graph("arguments")
    graph.set_outputs(y=graph.input("x", (2, 3)) * 2)
    for inputs in ({}, {"x": np.zeros((3, 2), np.float32)}, {"x": np.zeros((2, 3))}):
        with pytest.raises(ExecutionError, match="'x'"):
            run(graph, inputs, backend)


def test_identity_is_not_comparison():
    with ei.Graph():
        x, y = ei.input("x", (3,)), ei.input("y", (3,))
        with pytest.raises(ei.DTypeError, match="compare elements with equal"):
            ei.where(x == y, x, 0.0)


def test_numpy_cannot_read_a_symbolic_tensor():
    with ei.Graph() as graph:
        x = ei.input("x", (3,))
        with pytest.raises(ei.DTypeError, match="run the graph"):
            np.array(x)
        assert len(graph.ops) == 1


def test_wrt_is_a_list():
    with ei.Graph():
        x = ei.input("x", (2, 2))
        with pytest.raises(ei.GraphError, match=r"gradient\(y, \[x\]\)"):
            ei.gradient((x * x).sum(), x)

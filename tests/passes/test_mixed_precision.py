"""MixedPrecision: what computes in the half type, where casts are, and what memory that takes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.compiler import lower
from euler_ir.dtypes import DTYPES, bf16, f16, f32, f64, i32
from euler_ir.errors import ParseError
from euler_ir.passes.mixed_precision import MixedPrecision
from euler_ir.passes.pipeline import parse_pipeline
from euler_ir.plan.footprint import footprint
from euler_ir.testing.random_graphs import random_graph
from euler_ir.verify import verify
from models.gpt2 import GPT2Config
from models.language_model import accumulation_graphs, train_graph
from models.nanoeuler import NanoEulerConfig

TINY = GPT2Config(vocab_size=96, context=32, layers=2, heads=2, width=64)
EULER = NanoEulerConfig(
    vocab_size=64, context=16, layers=2, heads=4, key_heads=2, head_width=8, width=32, mlp_width=80, predictions=2
)
PRODUCTS = ("matmul", "attention", "attention_gradient")


def mixed(graph, **options):
    after = MixedPrecision(**options).run(graph)
    verify(after)
    assert {name: value.type for name, value in after.outputs.items()} == {
        name: value.type for name, value in graph.outputs.items()
    }
    return after


def one_layer(build, *shapes):
    """The graph of ``build`` on inputs and on a parameter of the last shape."""
    with ei.Graph() as graph:
        inputs = [ei.input(f"x{n}", shape) for n, shape in enumerate(shapes[:-1])]
        ei.output(y=build(*inputs, ei.parameter("w", shapes[-1], ei.initializers.Normal(0.5))))
    return graph


def ops(graph, *names):
    return [op for op in graph.ops if op.name in names]


def dtype_of(graph, name):
    return graph.value(name).dtype


def test_a_product_reads_halves_and_what_comes_out_is_of_the_users_type():
    after = mixed(one_layer(lambda x, w: x @ w, (4, 8), (8, 3)))
    (product,) = ops(after, "matmul")
    assert [operand.dtype for operand in product.operands] == [bf16, bf16] and product.result.dtype == bf16
    assert [op.operands[0].op.name for op in ops(after, "cast")] == ["input", "parameter", "matmul"]
    assert after.outputs["y"].dtype == f32


def test_statistics_and_sums_read_f32_and_add_nothing_to_what_is_rounded():
    def build(x, w):
        hidden = ei.gelu(x @ w) @ w
        return ei.softmax(hidden, -1).sum() + ei.logsumexp(hidden, -1).sum() + ei.layer_norm(hidden, w[0], w[1]).max()

    after = mixed(one_layer(build, (4, 8), (8, 8)))
    for op in ops(after, "softmax", "logsumexp", "layer_norm", "sum", "max"):
        assert all(operand.dtype == f32 for operand in op.operands) and op.result.dtype == f32
    (gelu,) = ops(after, "gelu")
    assert gelu.operands[0].dtype == gelu.result.dtype == bf16


def test_arithmetic_between_two_products_is_f32_and_rounded_once():
    """q cos - k sin, as rotary positions do it: four operators on halves, and one rounding, where attention reads."""

    def build(x, w):
        q = x @ w
        rotated = ei.tanh(q) * 0.3 - q * q
        return rotated @ w

    after = mixed(one_layer(build, (4, 8), (8, 8)))
    assert {op.result.dtype for op in ops(after, "tanh", "multiply", "subtract")} == {f32}
    assert Counter(op.result.dtype for op in ops(after, "cast") if op.result.shape == (4, 8)) == {bf16: 2, f32: 2}


def test_a_residual_stream_stays_f32():
    """An embedding has all digits of f32, and with it everything that is added to it."""
    graph = train_graph(TINY, 2, 8)
    after = mixed(graph)
    stream = [value for op in graph.ops for value in op.results if value.name in ("x.add", "h.0.x.add", "h.1.add")]
    assert len(stream) == 3
    assert all(dtype_of(after, value.name) == f32 for value in stream)
    assert dtype_of(after, "h.0.mlp.c_fc.add") == dtype_of(after, "h.0.mlp.gelu") == bf16


@pytest.mark.parametrize("begins", ["input", "embedding"])
def test_what_has_more_digits_is_rounded_for_the_product_alone_that_reads_it(begins):
    with ei.Graph() as graph:
        w, ids = ei.parameter("w", (8, 8), ei.initializers.Normal(0.5)), ei.input("ids", (4,), i32)
        x = ei.input("x", (4, 8)) if begins == "input" else ei.take(w, ids)
        stream = (x + x @ w).named("stream")
        ei.output(product=stream @ w, other=ei.tanh(stream))
    after = mixed(graph)
    stream = after.value("stream")
    (tanh,) = ops(after, "tanh")
    assert stream.dtype == f32 and stream.op.name == "add" and tanh.operands == (stream,)
    if begins == "embedding":
        assert ops(after, "take")[0].result.dtype == f32


def test_rounding_comes_before_what_repeats_and_after_what_cuts_out():
    def build(x, w):
        return (x @ w[:2].transpose()) @ ei.tensor.broadcast_to(w[0, :1].reshape(1, 1), (2, 5))

    after = mixed(one_layer(build, (4, 8), (100, 8)))
    sizes = [op.result.size for op in ops(after, "cast") if op.result.dtype == bf16]
    assert sorted(sizes) == [1, 16, 4 * 8]


def test_the_bias_of_a_product_is_added_in_the_half_type_if_that_is_what_is_stored():
    """What libraries of products can do by themselves: D = GELU(A B + bias) with all four of one type."""
    after = mixed(train_graph(TINY, 2, 8))
    add = after.value("h.0.mlp.c_fc.add").op
    assert [operand.op.name for operand in add.operands] == ["matmul", "broadcast"]
    assert {operand.dtype for operand in add.operands} == {bf16}


@pytest.mark.parametrize("compute", ["bf16", "f16"])
@pytest.mark.parametrize("config", [TINY, EULER], ids=["gpt2", "nanoeuler"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_casts_of_a_training_step(config, dropout, compute):
    graph = train_graph(replace(config, dropout=dropout), 2, 8, optimizer="muon")
    after, half = mixed(graph, compute=compute), DTYPES[compute]
    # Each weight that a product reads is cast once, forward and backward together.
    cast_weights = Counter(op.operands[0] for op in ops(after, "cast") if op.operands[0].op.name == "parameter")
    assert set(cast_weights.values()) == {1}
    read_by_products = {
        operand for op in ops(graph, "matmul") for operand in op.operands if operand.op.name == "parameter"
    }
    assert {value.name for value in read_by_products} <= {value.name for value in cast_weights}
    # All products but those of the optimiser are in the half type.
    for op in ops(after, *PRODUCTS):
        assert op.result.dtype == (f32 if op.scope == "optim" else half), op.result.name
    assert {op.scope for op in ops(after, "matmul") if op.result.dtype == f32} == {"optim"}
    # A half becomes f32 and a half again nowhere; f32 becomes a half and f32 again only where a half is stored anyway.
    uses = after.uses()
    for op in ops(after, "cast"):
        before = op.operands[0].op
        if before.name != "cast" or before.operands[0].dtype != op.result.dtype:
            continue
        assert op.result.dtype == f32 and before.result.dtype == half
        assert any(reader is not op for reader in uses[before.result]), op.result.name
    assert all(value.type == graph.updates[name].type for name, value in after.updates.items())
    # Doing it twice is doing it once.
    assert str(mixed(after, compute=compute)) == str(after)


def test_gradients_reach_the_optimiser_and_accumulators_in_f32():
    accumulate, apply = accumulation_graphs(TINY, 2, 8)
    for graph in (accumulate, apply):
        after = mixed(graph)
        assert all(value.dtype in (f32, f64, ei.i64) for value in after.updates.values())
    assert str(mixed(apply)) == str(apply)  # there is no product in it
    after = mixed(train_graph(TINY, 2, 8))
    assert all(op.result.dtype in (f32, f64, ei.bool_, ei.i64) for op in after.ops if op.scope == "optim")


def test_what_is_kept_stays_f32():
    graph = train_graph(TINY, 2, 8)
    after = mixed(graph, keep=frozenset(("attention", "attention_gradient")))
    assert {op.result.dtype for op in ops(after, "attention", "attention_gradient")} == {f32}
    assert {op.result.dtype for op in ops(after, "matmul")} == {bf16}
    after = mixed(graph, keep_scopes=frozenset(("h.1", "optim")))
    by_scope = {op.scope.startswith("h.1."): op.result.dtype for op in ops(after, "matmul") if op.scope}
    assert by_scope == {True: f32, False: bf16}
    assert str(mixed(graph, keep=frozenset(PRODUCTS))) == str(graph)


def test_other_types_are_none_of_its_business():
    with ei.Graph() as graph:
        x, y, n = ei.input("x", (3, 3), f64), ei.input("y", (3, 3), f16), ei.input("n", (3, 3), i32)
        ei.output(x=x @ x, y=ei.gelu(y @ y), n=n @ n)
    assert str(mixed(graph)) == str(graph)


def test_what_is_given_to_the_caller_or_kept_is_not_rounded_for_a_product_that_reads_it_too():
    """Two steps in one graph: the second one's product must not take digits from the new weights."""
    with ei.Graph() as graph:
        x, w = ei.input("x", (4, 4)), ei.parameter("w", (4, 4), ei.initializers.Normal(1.0))
        stepped = w - 1e-4 * ei.matmul(x, x @ w, transpose_left=True)
        ei.update(w, stepped)
        ei.output(y=x @ stepped)
    after = mixed(graph)
    assert after.updates["w"].op.name == "subtract"
    state = ei.initial_state(graph)
    arrays = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    _, updates = interpreter.run(after, arrays | dict(state))
    assert np.any(updates["w"] != updates["w"].astype(bf16.numpy).astype(np.float32))


def test_wrong_options_say_what_would_be_right():
    with pytest.raises(ParseError, match="keep names 'matmull', which is no operator") as caught:
        parse_pipeline("mixed-precision{keep=matmull}")
    assert "matmul" in caught.value.hint
    with pytest.raises(ParseError, match="bf16 or f16"):
        parse_pipeline("mixed-precision{compute=f32}")
    text = "mixed-precision{compute=f16,keep=attention,keep_scopes=lm_head|optim}"
    assert str(parse_pipeline(text)) == text


def test_what_is_saved_for_the_backward_pass_takes_half_the_memory():
    """Of a GPT-2 of 3 layers, what grows with the batch: all but the residual stream is of the half type."""
    config = GPT2Config(512, 128, layers=3, heads=4, width=128)

    def bytes_a_row(passes):
        small, large = (footprint(lower(train_graph(config, batch, 128), passes).plan).arena for batch in (4, 12))
        return (large - small) / 8

    assert bytes_a_row("mixed-precision,cuda") < 0.6 * bytes_a_row("cuda")


def test_any_graph_stays_sound():
    """Doing it twice is doing it once, whatever the graph; those without products keep every bit."""
    products = 0
    for seed in range(100):
        case = random_graph(seed)
        after = mixed(case.graph, compute="f16" if seed % 2 else "bf16")
        assert str(mixed(after, compute="f16" if seed % 2 else "bf16")) == str(after), seed
        is_product = any(op.operands[0].dtype == f32 for op in ops(case.graph, *PRODUCTS))
        products += is_product
        if not is_product and not ops(case.graph, "gelu"):
            assert str(after) == str(case.graph), seed
    assert products > 5

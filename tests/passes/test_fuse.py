"""What becomes one kernel, what is read in place, and that groups can run in their order."""

from dataclasses import replace

import networkx
import pytest

import euler_ir as ei
from euler_ir import nn, optim
from euler_ir.compiler import lower
from euler_ir.errors import LoweringError
from euler_ir.loops.kernel import Compute, Kernel, Loop
from euler_ir.loops.lower import lower as lower_group
from euler_ir.loops.verify import verify_kernel
from euler_ir.passes import Fuse
from euler_ir.passes.pipeline import optimize
from euler_ir.plan.plan import AttentionStep
from models.gpt2 import PRESETS
from models.language_model import train_graph


def nests(build):
    """The loop nests of the graph whose output ``build()`` makes."""
    with ei.Graph() as graph:
        ei.output(y=build())
    return [nest for step in lower(graph).plan.kernels() for nest in step.kernel.nests]


def rows(*shape, name="x"):
    return ei.input(name, shape)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: ei.layer_norm(rows(64, 96), rows(96, name="w"), rows(96, name="b")), id="layer norm"),
        pytest.param(lambda: ei.gelu(rows(64, 96) + rows(96, name="b")), id="bias and GELU"),
        pytest.param(lambda: ei.softmax(rows(64, 96)), id="softmax"),
        pytest.param(lambda: ei.softmax(rows(8, 96, 64), axis=1), id="softmax of a middle axis"),
        pytest.param(lambda: ei.cross_entropy(rows(64, 96), ei.input("l", (64,), ei.i32)), id="cross-entropy"),
        pytest.param(
            lambda: ei.take(rows(50, 16), ei.input("i", (4, 8), ei.i32)) + rows(8, 16, name="p"), id="embedding"
        ),
        pytest.param(lambda: rows(64, 96).transpose().reshape(96, 8, 8)[::2] * 2, id="movement and arithmetic"),
        pytest.param(lambda: ei.argmax(rows(64, 96), axis=1), id="argmax"),
    ],
)
def test_one_nest(build):
    assert len(nests(build)) == 1


def test_softmax_and_its_loss_with_the_gradient_are_one_nest():
    with ei.Graph() as graph:
        logits, labels = ei.input("logits", (64, 96)), ei.input("labels", (64,), ei.i32)
        losses = ei.cross_entropy(logits, labels)
        ei.output(losses=losses, gradient=ei.gradient(losses.sum(), [logits])[0])
    assert [len(step.kernel.nests) for step in lower(graph).plan.kernels()] == [1]


def test_adamw_of_all_parameters_is_one_kernel():
    with ei.Graph() as graph:
        model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6)))
        optim.AdamW(learning_rate=1e-3).step((model(ei.input("x", (16, 32))) ** 2).mean())
    plan = lower(graph).plan
    written = [{plan.buffers[number].name for number in step.writes()} for step in plan.kernels()]
    moments = {f"optim.{kind}.{layer}.{name}" for kind in "mv" for layer in range(6) for name in ("weight", "bias")}
    assert sum(bool(moments & names) for names in written) == 1


@pytest.fixture(scope="module")
def plans():
    return {
        layers: lower(train_graph(replace(PRESETS["nano"], layers=layers), 16, 128)).plan for layers in (2, 4)
    }


def test_a_layer_takes_twelve_kernels_at_most(plans):
    assert (len(plans[4].kernels()) - len(plans[2].kernels())) / 2 <= 12


def test_heads_are_never_copied(plans):
    """Attention reads queries, keys and values inside of one buffer, and writes heads, and gradients, side by side."""
    steps = [step for step in plans[4].steps() if isinstance(step, AttentionStep)]
    assert [step.operator for step in steps] == ["attention"] * 4 + ["attention_gradient"] * 4
    for step in steps:
        assert step.batch == (16, 4) and step.causal
        fused = step.operands[:3] if step.operator == "attention" else step.results
        assert [view.leading for view in fused] == [384] * 3 and len({view.buffer for view in fused}) == 1
        assert [view.offset for view in fused] == [0, 128, 256]
        alone = step.results[0] if step.operator == "attention" else step.operands[4]
        assert alone.leading == 128 and alone.batch_strides == (128 * 128, 32)


def test_scores_are_never_stored(plans):
    """No buffer but the logits and their like has as many elements as the scores of one head."""
    for buffer in plans[4].buffers:
        assert buffer.type.shape[-2:] != (128, 128) or buffer.type.shape[-3:-2] != (4,), buffer


@pytest.mark.parametrize("preset", ["nano", "124M"])
def test_groups_run_in_their_order_and_their_nests_are_sound(preset):
    config = replace(PRESETS[preset], layers=2, vocab_size=300, context=32)
    fused = Fuse().run(optimize(train_graph(config, 2, 32)))
    written = set()
    for group in fused.groups:
        made_before = {value for value in group.inputs if value.op.operands or value.op.name == "iota"}
        assert made_before <= written, group.name
        written.update(group.outputs)
        assert group.size <= Fuse().max_ops + 16
        if group.call is None:
            verify_kernel(Kernel(group.name, (lower_group(group).nest,)))
    assert {value for value in fused.graph.results() if value.op.operands} <= written


def test_phases_are_layers_of_the_graph_of_groups(plans):
    """A step never needs another of its phase, and what it needs has run: shown with networkx's idea of a graph."""
    plan = plans[2]
    steps = [(number, step) for number, phase in enumerate(plan.phases) for step in phase]
    writer = {buffer: place for place, (_, step) in enumerate(steps) for buffer in step.writes()}
    needs = networkx.DiGraph()
    needs.add_nodes_from(range(len(steps)))
    for place, (_, step) in enumerate(steps):
        for buffer in step.reads():
            if plan.buffers[buffer].place == "arena":
                needs.add_edge(writer[buffer], place)
    needs.remove_edges_from(networkx.selfloop_edges(needs))
    assert networkx.is_directed_acyclic_graph(needs)
    assert all(steps[before][0] < steps[after][0] for before, after in needs.edges)


def test_what_a_product_reads_for_every_column_is_computed_once():
    """GELU in front of a product of one row, which reads each of its elements for each of the columns."""

    def build():
        x = ei.gelu(rows(1, 96) @ rows(96, 256, name="a") + rows(256, name="b"))
        return x @ rows(256, 64, name="c")

    *_, last = nests(build)
    (loop,) = (statement for statement in last.body if isinstance(statement, Loop))
    assert [statement.operation for statement in loop.body if isinstance(statement, Compute)] == ["multiply"]


def test_dear_elements_are_made_again_where_that_is_allowed_but_numbers_for_all_elements_are_not():
    """Two kernels use four exponentials in a row: of as many elements as they make, or of one number."""

    def exponentials(shape):
        with ei.Graph() as graph:
            x, y = ei.input("x", (64, 96)), ei.input("y", shape)
            for _ in range(4):
                y = ei.exp(-y)
            ei.output(rows=ei.sum(x + y, axes=1), columns=ei.sum(y + ei.zeros((64, 96)), axes=0))
        fused = lower(graph, (Fuse(max_repeated_work=100),)).fused
        return sum(op.name == "exp" for group in fused.groups for op in group.computed())

    assert exponentials((64, 96)) == 2 * 4
    assert exponentials(()) == 4


@pytest.mark.parametrize("read", [ei.exp, ei.sum, ei.transpose, lambda x: x], ids=["again", "summed", "moved", "as it is"])
def test_a_composite_that_no_pass_has_written_out_is_refused_by_name(read):
    with ei.Graph() as graph:
        ei.output(y=read(ei.softmax(rows(4, 8))))
    with pytest.raises(LoweringError, match="softmax is made of primitive operators") as raised:
        lower(graph, "none")
    assert "decompose" in raised.value.hint and "test_fuse.py" in str(raised.value)

"""`euler-ir where`: against every access that the interpreter makes in a run, and against elements changed."""

import ctypes
import functools
import json
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends import reference
from euler_ir.cli import main
from euler_ir.compiler import Executable, lower
from euler_ir.errors import GraphError
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.inspect.touches import SAMPLE
from euler_ir.inspect.user_graph import load_graph
from euler_ir.inspect.where import where
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MadeOperand, MatmulStep
from euler_ir.testing.random_graphs import random_graph
from euler_ir.text.printer import value_names
from models.gpt2 import GPT2Config
from models.language_model import train_graph
from models.nanoeuler import NanoEulerConfig
from tests.loops.recording import record
from tests.passes.training_step import step

MLP = f"{Path(__file__).parents[2] / 'examples' / 'mlp.py'}:train_graph"


@functools.cache
def small_gpt2():
    """A training step, as far as its plan."""
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8)
    return Executable(graph, lower(graph), None)


@functools.cache
def small_nanoeuler():
    """The same of a model in which two heads of queries share one of keys."""
    sizes = {"layers": 2, "heads": 4, "key_heads": 2, "head_width": 4, "width": 12, "mlp_width": 10}
    graph = train_graph(NanoEulerConfig(vocab_size=23, context=8, **sizes), 2, 8)
    return Executable(graph, lower(graph), None)


def nests_of(plan):
    """By the ``id`` of each nest: the position of its step, and what `where` calls the part of the step."""
    found = {}
    for position, each in enumerate(plan.steps()):
        if isinstance(each, KernelStep):
            many = len(each.kernel.nests) > 1
            for number, nest in enumerate(each.kernel.nests):
                found[id(nest)] = position, f"nest {number} of kernel @" if many else "kernel @", each.arguments[number]
        elif isinstance(each, MatmulStep):
            for side, operand in (("left", each.left), ("right", each.right)):
                if isinstance(operand, MadeOperand):
                    found[id(operand.nest)] = position, f"prologue of the {side}", operand.arguments
            if each.epilogue is not None:
                found[id(each.epilogue.kernel.nests[0])] = position, "epilogue @", each.epilogue.arguments[0]
    return found


def run_recorded(monkeypatch, graph, state, inputs):
    """All accesses of one run: by step, part, buffer number and statement."""
    stages, accesses = lower(graph), []
    monkeypatch.setattr(
        reference, "run_nest", lambda nest, arrays: accesses.extend((id(nest), a) for a in record(nest, arrays)) or []
    )
    Executable(graph, stages, reference.ReferenceProgram(stages.plan))(state, **inputs)
    known, found = nests_of(stages.plan), {}
    for nest, access in accesses:
        position, role, arguments = known[nest]
        (nest,) = [n for n in all_nests(stages.plan) if id(n) == nest]
        parameters = {buffer.name: number for buffer, number in zip(nest.parameters, arguments)}
        if access.buffer in parameters:
            # Chunks and loops that run step by step come in parts.
            found.setdefault((position, role, parameters[access.buffer], access.statement), []).append(access)
    return stages, found


def all_nests(plan):
    for each in plan.steps():
        if isinstance(each, KernelStep):
            yield from each.kernel.nests
        elif isinstance(each, MatmulStep):
            yield from (operand.nest for operand in (each.left, each.right) if isinstance(operand, MadeOperand))
            yield from each.epilogue.kernel.nests if each.epilogue is not None else ()


def elements(stages, count, seed):
    """Texts that name elements of values in memory, and their buffer and number."""
    random, names = np.random.default_rng(seed), value_names(stages.optimized)
    values = [value for value in stages.plan.decisions.buffers if value.size]
    for _ in range(count if values else 0):
        value = values[random.integers(len(values))]
        indices = tuple(int(random.integers(extent)) for extent in value.shape)
        flat = int(np.ravel_multi_index(indices, value.shape)) if indices else 0
        yield f"{names[value]}[{', '.join(map(str, indices))}]", stages.plan.decisions.buffers[value], flat


def expect_accesses(graph, stages, found, count=12, seed=0):
    for text, buffer, flat in elements(stages, count, seed):
        traced = where(Executable(graph, stages, None), text, threads=2)
        assert (traced.element.buffer, traced.element.flat) == (buffer, flat)
        touched = {}
        for (position, role, number, statement), accesses in found.items():
            accesses = accesses if number == buffer else ()
            points = [point for access in accesses for point in access.points[access.elements == flat].tolist()]
            if points:
                names = [axis.name for axis in accesses[0].axes]
                touched.setdefault((position, role, code_of(statement)), []).append((names, points))
        loops = [touch for touch in traced.touches if touch.kind == "loops"]
        for touch in loops:
            role = touch.role.split("@")[0] + "@" if "@" in touch.role else touch.role.removesuffix(" operand")
            same = touched.get((touch.step, role, touch.code), [])
            names, points = same.pop(0) if same else ([], [])
            assert touch.complete
            if touch.by_data:
                continue  # where an index says so, it may
            if not role.startswith("prologue"):  # the interpreter makes more rows and columns than a product takes
                assert touch.count == len(points) > 0, (text, touch)
                spans = {n: (min(p[i] for p in points), max(p[i] for p in points)) for i, n in enumerate(names)}
                assert touch.spans == spans
            assert all([point["at"][name] for name in names] in points for point in touch.points)
            assert len(touch.points) == min(SAMPLE, touch.count)
        assert not any(touched.values()), (text, touched)


def code_of(statement):
    if hasattr(statement, "conditions"):
        return f"load %{statement.buffer}[{statement.index}]"
    return f"{'add to' if statement.accumulate else 'store'} %{statement.buffer}[{statement.index}]"


@pytest.mark.parametrize("build", [step, lambda: small_gpt2().graph])
def test_models_against_the_accesses_of_a_run(monkeypatch, build):
    graph = build()
    stages, found = run_recorded(monkeypatch, graph, ei.initial_state(graph), random_inputs(graph))
    expect_accesses(graph, stages, found, count=25)


@pytest.mark.parametrize("seed", range(16))
def test_random_graphs_against_the_accesses_of_a_run(monkeypatch, seed):
    case = random_graph(seed)
    state = ei.initial_state(case.graph)
    for name, array in case.kept.items():
        state[name] = array
    stages, found = run_recorded(monkeypatch, case.graph, state, case.inputs)
    expect_accesses(case.graph, stages, found, count=8, seed=seed)


def flat_buffers(plan, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(buffer.type.size).astype(buffer.type.dtype.numpy) for buffer in plan.buffers]


def changed(run, flat, buffer, element, view):
    """Where the result of a step, as ``view`` shows it, differs once an element is another number."""
    results = []
    for more in (0, 3):
        arrays = [array.copy() for array in flat]
        arrays[buffer][element] += more
        run(arrays)
        results.append(view(arrays).copy())
    return set(map(tuple, np.argwhere(results[0] != results[1]).tolist()))


@pytest.mark.parametrize("seed", range(2))
def test_products_against_changed_elements(seed):
    stages = small_gpt2().stages
    flat, random, seen = flat_buffers(stages.plan, seed), np.random.default_rng(seed), 0
    names = {stages.plan.decisions.buffers[value]: value for value in stages.plan.decisions.buffers}
    for position, each in enumerate(stages.plan.steps()):
        if not isinstance(each, MatmulStep) or MadeOperand in (type(each.left), type(each.right)):
            continue
        for side, operand in (("left", each.left), ("right", each.right)):
            value = names[operand.buffer]
            indices = [int(random.integers(extent)) for extent in value.shape]
            element = int(np.ravel_multi_index(indices, value.shape))
            result = changed(
                lambda arrays: reference._matmul(each, arrays), flat, operand.buffer, element,
                lambda arrays: reference._view(arrays, each.result, each.batch, each.rows, each.columns),
            )  # fmt: skip
            text = f"{value_names(stages.optimized)[value]}{indices}"
            touches = [t for t in where(small_gpt2(), text, threads=2).touches if t.step == position]
            touches = [t for t in touches if t.role.startswith(side)]
            batch = [f"b{number}" for number in range(len(each.batch))]
            line = "row" if side == "left" else "column"
            expected = set()
            for touch in touches:
                assert touch.count <= SAMPLE or len(touch.points) == SAMPLE
                for point in touch.points:
                    at = point["at"]
                    for other in range(each.columns if side == "left" else each.rows):
                        pair = (at[line], other) if side == "left" else (other, at[line])
                        expected.add((*(at[name] for name in batch), *pair))
            assert result == expected
            seen += len(expected)
    assert seen


@pytest.mark.parametrize(("executable", "sharing"), [(small_gpt2, 1), (small_nanoeuler, 2)])
def test_attention_against_changed_elements(executable, sharing):
    stages = executable().stages
    flat, names = flat_buffers(stages.plan), value_names(stages.optimized)
    held = {stages.plan.decisions.buffers[value]: value for value in stages.plan.decisions.buffers}
    for position, each in enumerate(stages.plan.steps()):
        if not isinstance(each, AttentionStep) or each.operator != "attention":
            continue
        rows = each.extents()[1][0]
        for operand, role in zip(each.operands, ("query", "key", "value")):
            value = held[operand.buffer]
            element = operand.offset + 5 * operand.leading + 2  # row 5, column 2 of the first head
            result = changed(
                lambda arrays: reference._attention(each, arrays), flat, operand.buffer, element,
                lambda arrays: reference._view(arrays, each.results[0], each.batch, *rows),
            )  # fmt: skip
            text = f"{names[value]}{list(map(int, np.unravel_index(element, value.shape)))}"
            touches = [t for t in where(executable(), text, threads=2).touches if t.step == position]
            (touch,) = [t for t in touches if t.role == role]
            assert [point["head"] for point in touch.points] == list(range(1 if role == "query" else sharing))
            expected = set()
            for point in touch.points:
                row = point["at"]["query" if role == "query" else "key"]
                assert (row, point["at"]["column"]) == (5, 2)
                batch = tuple(map(int, np.unravel_index(point["head"], each.batch)))
                last = range(row, row + 1) if role == "query" else range(row, each.queries)
                expected |= {(*batch, query) for query in last}
            assert {place[:-1] for place in result} == expected


def test_copies():
    with ei.Graph("copies") as graph:
        a = ei.state("a", (3, 4), ei.initializers.Zeros())
        ei.update(a, a.transpose().reshape(3, 4) * 2)
        ei.output(b=a)
    touches = where(graph, "a[1,2]", threads=2).touches
    kinds = {(touch.kind, touch.access) for touch in touches}
    assert ("copy", "read") in kinds and ("copy", "written") in kinds
    assert all(touch.points[0]["at"] == {"element": 6} for touch in touches if touch.kind == "copy")
    assert any(isinstance(each, CopyStep) for each in lower(graph).plan.steps())


def test_a_prologue_touches_no_rows_and_columns_that_the_product_does_not_take():
    with ei.Graph("part") as graph:
        ei.output(y=(ei.input("x", (70, 90)) * 2 + 1)[:31, :41] @ ei.input("w", (41, 40)))
    for element, count in (("x[30,40]", 1), ("x[30,41]", 0), ("x[31,40]", 0), ("x[69,0]", 0), ("x[0,89]", 0)):
        touches = where(graph, element, threads=2).touches
        assert len(touches) == count and all(touch.role.startswith("prologue") for touch in touches)


def test_the_row_of_an_epilogue_counts_through_all_of_its_axes():
    with ei.Graph("positions") as graph:
        x, w, p = ei.input("x", (2, 3, 8)), ei.input("w", (8, 16)), ei.input("p", (2, 1, 16))
        ei.output(y=ei.tanh(x @ w + p))
    touches = where(graph, "y[1,2,5]", threads=1).touches
    assert [touch.access for touch in touches] == ["read", "written"]
    for touch in touches:
        (point,) = touch.points
        assert touch.role.startswith("epilogue") and tuple(point["at"].values()) == (1, 2, 5)
        (place,) = point["places"]
        assert place["rows"][0] + place["tile_row"] == 1 * 3 + 2


def test_the_three_halves_of_a_step():
    touches = where(small_gpt2(), "h.0.attn.c_attn.weight[3,7]").touches
    assert [touch.half for touch in touches] == ["forward", "backward", "update", "update"]
    assert [touch.access for touch in touches] == ["read", "read", "read", "written"]
    assert [touch.kind for touch in touches] == ["matmul", "matmul", "loops", "loops"]
    assert touches[0].points[0]["at"] == {"inner": 3, "column": 7}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_address_of_an_intermediate_is_where_it_is_computed(backend):
    with ei.Graph("g") as graph:
        x, w = ei.input("x", (3, 4)), ei.input("w", (4, 5))
        ei.output(y=ei.matmul(ei.matmul(x, w).named("made"), ei.transpose(w)))
    executable = ei.compile(graph, backend)
    given = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "w": np.ones((4, 5), np.float32)}
    executable(**given)
    found = where(executable, "%made[2, 1]")
    assert ctypes.c_float.from_address(found.address).value == 8 + 9 + 10 + 11


def test_the_address_is_that_of_the_element():
    graph = small_gpt2().graph
    executable, state = ei.compile(graph), ei.initial_state(graph)
    name = "h.1.mlp.c_fc.weight"
    found = where(executable, f"{name}[-1, 3]", state)
    assert found.address == state[name][11:, 3:].ctypes.data
    first = next(iter(state))
    assert found.element.block_byte == found.address - state[first].ctypes.data
    assert where(executable, f"{name}[-1, 3]").address is None


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("h.0.attn.c_atn.weight[3,4]", "did you mean %h.0.attn.c_attn.weight"),
        ("h.0.attn.c_attn.weight[3]", "an element has 2 indices, not 1"),
        ("h.0.attn.c_attn.weight", "an element has 2 indices, not 0"),
        ("h.0.attn.c_attn.weight[12,0]", "index 12 is out of range for axis 0"),
        ("h.0.attn.c_attn.weight[0,-37]", "index -37 is out of range for axis 1"),
        ("h.0.attn.c_attn.weight[0,x]", "'x' is not an index"),
        ("h.0.attn.c_attn.weight[0,1", "has no value"),
        ("", "has no value"),
    ],
)
def test_refusals(element, message):
    with pytest.raises(GraphError) as caught:
        where(small_gpt2(), element)
    assert message in str(caught.value)


def test_indices_are_those_of_python():
    texts = "wte.weight[-1,2]", "%wte.weight[22, 2,]", " wte.weight [ 22 ,+2] "
    same = [where(small_gpt2(), text).element for text in texts]
    assert {(each.flat, each.indices) for each in same} == {(22 * 12 + 2, (22, 2))}


def test_a_value_in_registers_is_nowhere():
    with ei.Graph() as graph:
        hidden = ei.exp(ei.input("x", (4, 4))).named("hidden")
        ei.output(y=hidden * 2)
    with pytest.raises(GraphError, match="lies nowhere in memory"):
        where(graph, "hidden[0,0]")
    assert where(graph, "y[0,1]").touches[0].access == "written"


def test_scalars_have_no_indices():
    with ei.Graph() as graph:
        ei.output(y=ei.input("x", ()) + 1)
    assert where(graph, "x").element.flat == where(graph, "x[]").element.flat == 0


def test_printed(capsys):
    assert main(["where", "0.weight[1,3]", MLP, "--threads", "2"]) == 0
    text = capsys.readouterr().out
    assert "forward, phase" in text and "inner = 1, column = 3" in text and "update, phase" in text
    assert "written by" in text and "address" not in text
    assert main(["where", "0.weight[1,3]", MLP, "--live"]) == 0
    assert "address 0x" in capsys.readouterr().out
    assert main(["where", "0.weight[1,3]", MLP, "--json"]) == 0
    record_ = json.loads(capsys.readouterr().out)
    assert record_["element"] == 19 and record_["touches"][0]["half"] == "forward" and record_["address"] is None
    assert main(["where", "0.wight[1,3]", MLP]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_a_gpu_is_traced_without_one_to_block_warp_and_thread():
    found = where(load_graph(MLP), "0.weight[1,3]", backend="cuda")
    assert found.threads == 0
    read, *updated = found.touches
    assert read.points[0]["library"] == "cuBLASLt"
    assert [touch.access for touch in updated] == ["read", "written"]
    for touch in updated:
        # 4 elements a thread: element 19 is the last of thread 4.
        (point,) = touch.points
        assert (point["block"], point["warp"], point["lane"], point["thread"], point["element"]) == (0, 0, 4, 4, 3)


def test_the_command_says_block_warp_and_lane(capsys):
    assert main(["where", "0.weight[1,3]", MLP, "--backend", "cuda"]) == 0
    text = capsys.readouterr().out
    assert "inside of cuBLASLt" in text and ", block 0, warp 0, lane 4, element 3" in text
    with pytest.raises(SystemExit):
        main(["where", "0.weight[1,3]", MLP, "--backend", "cuda", "--live"])
    assert "--live goes with the backend cpu" in capsys.readouterr().err

"""Names of values: where they come from, that each is there once, and that they stay when a graph changes."""

import difflib
import importlib.util
from dataclasses import dataclass

import pytest

import euler_ir as ei
from euler_ir import optim
from euler_ir.names import derived_name
from euler_ir.passes import PIPELINE, Pass, PassManager, Verify, optimize
from euler_ir.rebuild import Rebuild
from euler_ir.text import parse_graph, print_graph
from euler_ir.text.printer import value_names
from euler_ir.verify import verify
from models.gpt2 import PRESETS
from models.language_model import train_graph


def module_of(path, source):
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def changed_lines(before, after):
    """The lines of a diff that a reader sees marked."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


# -- where names come from ---------------------------------------------------------------------------------------------

STATEMENTS = """
import euler_ir as ei

class Holder:
    pass

def build():
    holder, table, x = Holder(), {}, ei.input("x", (4,))
    hidden = ei.exp(x)
    hidden = ei.exp(
        ei.sin(hidden),
    )
    holder.state = ei.exp(hidden)
    table["a"][0:1] = ei.exp(hidden) if False else table.setdefault("a", Rows(ei.exp(hidden)))
    hidden += ei.sin(hidden)
    scaled: object = hidden * 2.0
    first, second = ei.sin(x), ei.cos(x)
    one = ei.tanh(x); two = ei.tanh(x)
    three = ei.sqrt(x); three = ei.sqrt(three)
    ei.cos(x)
    def inner(y):
        return ei.log(y)
    out = inner(scaled)
    gr\u00f6\u00dfe = ei.sin(out)
    return [op.result.name for op in x.graph.ops]

class Rows(list):
    def __init__(self, value):
        self.value = value
    def __setitem__(self, at, value):
        pass
"""


def test_a_value_is_called_by_the_variable_and_the_operator(tmp_path):
    module = module_of(tmp_path / "statements.py", STATEMENTS)
    with ei.Graph():
        names = module.build()
    assert names == [
        "x", "hidden.exp", "hidden.sin", "hidden.exp#2", "state.exp", "table.exp", "hidden.sin#2", "hidden.add",
        "scaled.constant", "scaled.broadcast", "scaled.multiply", "sin", "cos", "tanh", "tanh#2", "three.sqrt",
        "three.sqrt#2", "cos#2", "log", "gr\u00f6\u00dfe.sin",
    ]  # fmt: skip


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "model.py"
    text = "import euler_ir as ei\ndef build():\n    {} = ei.exp(ei.input('x', ()))\n    return {}.name\n"
    for variable in ("a", "longer"):
        with ei.Graph():
            assert module_of(path, text.format(variable, variable)).build() == f"{variable}.exp"


def test_scopes_come_first_and_leaves_keep_their_own():
    with ei.Graph() as graph:
        with graph.scope("h.0"):
            weight = graph.parameter("h.0.weight", (3,), ei.initializers.Zeros())
            product = weight * weight
            ei.exp(product)
    assert [op.result.name for op in graph.ops] == ["h.0.weight", "h.0.product.multiply", "h.0.exp"]


def test_code_without_a_file():
    with ei.Graph() as graph:
        exec(compile("import euler_ir as ei\ny = ei.exp(ei.input('x', ()))", "<made up>", "exec"), {})
        exec(compile("import euler_ir as ei\ny = ei.exp(ei.input('z', ()))", "/no/such/file.py", "exec"), {})
    assert [op.result.name for op in graph.ops] == ["x", "exp", "z", "exp#2"]
    assert print_graph(parse_graph(print_graph(graph, True)), True) == print_graph(graph, True)


def test_a_name_given_by_the_user_is_made_unique():
    with ei.Graph() as graph:
        x = graph.input("x", ())
        ei.exp(x).named("h")
        assert ei.exp(x).named("h").name == "h#2"
        assert ei.exp(x).named("h#2").name == "h#2#2"
        assert ei.exp(x).named("x").name == "x#2"
        assert ei.exp(x).name == "exp"
        with pytest.raises(ei.GraphError, match="named by a string, not by 3"):
            ei.exp(x).named(3)
    verify(graph)


@pytest.mark.parametrize(
    ("name", "operator", "wanted"),
    [
        ("h.gelu", "tanh", "h.tanh"),
        ("h.gelu#7", "tanh", "h.tanh"),
        ("gelu", "tanh", "tanh"),
        ("weight", "sum", "weight.sum"),
        ("h.0.weight", "sum", "h.0.weight.sum"),
        ("", "sum", "sum"),
    ],
)
def test_derived_names(name, operator, wanted):
    assert derived_name(name, operator) == wanted


# -- that they stay ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TanhBehind(Pass):
    """Put a tanh behind the first value of a name."""

    name = "tanh-behind"
    value: str = ""

    def run(self, graph):
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            copied = rebuild.copy(op)
            if op.result.name == self.value:
                rebuild.values[op.result] = ei.tanh(copied.result)
        return rebuild.finish()


@pytest.fixture(scope="module")
def gpt2():
    return train_graph(PRESETS["124M"], 1, 64)


def test_an_operator_that_a_pass_inserts_changes_three_lines(gpt2):
    (place,) = [op.result for op in gpt2.ops if op.result.name == "h.6.mlp.c_fc.broadcast"]
    found = TanhBehind(value=place.name).run(gpt2)
    verify(found)
    assert len(changed_lines(print_graph(gpt2), print_graph(found))) == 3
    (new,) = [op for op in found.ops if op.via == ("tanh-behind",)]
    assert (new.result.name, new.location, new.scope) == ("h.6.mlp.c_fc.tanh", place.op.location, place.op.scope)


def test_an_operator_that_a_pass_inserts_renames_nothing_that_later_passes_make(gpt2):
    found = optimize(TanhBehind(value="h.6.mlp.c_fc.broadcast").run(gpt2))
    assert len(changed_lines(print_graph(optimize(gpt2)), print_graph(found))) <= 3


def test_an_operator_inserted_by_hand_changes_three_lines(gpt2):
    before = print_graph(gpt2)
    lines = before.splitlines(keepends=True)
    (place,) = [n for n, line in enumerate(lines) if line.startswith("  %h.6.mlp.c_fc.broadcast =")]
    shape = lines[place].split(" : ")[1]
    lines.insert(place + 1, f"  %new = tanh %h.6.mlp.c_fc.broadcast : {shape}")
    lines[place + 2] = lines[place + 2].replace("%h.6.mlp.c_fc.broadcast", "%new")
    after = print_graph(parse_graph("".join(lines)))
    assert after == "".join(lines)
    assert len(changed_lines(before, after)) == 3


MODEL = """
import euler_ir as ei
from euler_ir import nn, optim

class Block(nn.Module):
    def __init__(self):
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        hidden = ei.gelu(self.first(x))
        return x + self.second(hidden)

class Model(nn.Module):
    def __init__(self):
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = block(x)
        return x

def build():
    model = Model()
    x = ei.input("x", (4, 8))
    loss = ei.mean(model(x) ** 2)
    return loss
"""


def built(path, source, train=False):
    with ei.Graph("model") as graph:
        loss = module_of(path, source).build()
        if train:
            optim.SGD(learning_rate=0.1).step(loss)
        ei.output(loss=loss)
    return print_graph(graph)


@pytest.mark.parametrize(
    ("line", "more", "readers"),
    [
        ("            x = block(x)\n", "            x = ei.sin(x) if number == 1 else x\n", 2),
        ("    loss = ei.mean(model(x) ** 2)\n", "    loss = ei.tanh(loss)\n", 1),
        (
            "        hidden = ei.gelu(self.first(x))\n",
            "        hidden = hidden if x.op.name == 'add' else ei.sin(hidden)\n",
            1,
        ),
    ],
)
def test_a_line_of_python_that_adds_an_operator_changes_its_own_and_those_that_read_it(tmp_path, line, more, readers):
    assert line in MODEL
    before, after = (built(tmp_path / "model.py", source) for source in (MODEL, MODEL.replace(line, line + more)))
    assert len(changed_lines(before, after)) == 1 + 2 * readers


def test_a_line_of_python_renames_nothing_of_the_gradient(tmp_path):
    line = "        hidden = ei.gelu(self.first(x))\n"
    narrowed = line + "        narrow = ei.tanh(hidden)\n"
    source = MODEL.replace(line, narrowed).replace("second(hidden)", "second(narrow)")
    before, after = (built(tmp_path / "model.py", each, train=True) for each in (MODEL, source))
    lost = [line for line in changed_lines(before, after) if line.startswith("-")]
    # In each block the product that read hidden, its transpose for the weight's gradient, and the gradient of gelu.
    assert len(lost) <= 3 * 3


def test_passes_keep_names():
    with ei.Graph() as graph:
        x = ei.input("x", (4, 8))
        hidden = ei.gelu(x * 1.0).named("hidden")
        ei.output(y=ei.exp(ei.softmax(hidden, -1).named("shares")))
    found = optimize(graph)
    names = {op.result.name: op.name for op in found.ops}
    assert "hidden" in names and names["hidden"] != "gelu"
    assert "shares" in names and names["shares"] != "softmax"
    assert found.outputs["y"].name == graph.outputs["y"].name == "exp"


def test_a_name_that_was_given_up_for_another_is_free_again():
    with ei.Graph() as graph:
        ei.exp(ei.exp(ei.input("x", ())))
    rebuild = Rebuild(graph, "sines")
    made = []
    for op in rebuild:
        if op.name == "exp":
            made.append(ei.sin(*rebuild.operands(op)))
            assert made[-1].name == "sin"
            rebuild.replace(op, made[-1:])
        else:
            rebuild.copy(op)
    assert [value.name for value in made] == ["exp", "exp#2"]
    verify(rebuild.finish())


def test_names_are_there_once_after_every_pass(gpt2):
    PassManager(PIPELINE, instruments=[Verify()]).run(gpt2)
    names = value_names(optimize(gpt2))
    assert len(set(names.values())) == len(names)


def test_a_graph_read_from_text_goes_through_passes_under_the_same_names(gpt2):
    assert print_graph(optimize(parse_graph(print_graph(gpt2)))) == print_graph(optimize(gpt2))


# -- what made them ----------------------------------------------------------------------------------------------------


def test_what_a_user_asks_for_is_made_by_nothing_else_and_a_gradient_says_so():
    with ei.Graph() as graph:
        x = ei.input("x", (3,))
        y = ei.sum(ei.exp(x))
        before = len(graph.ops)
        ei.output(slope=ei.gradient(y, [x])[0])
    assert all(op.via == () for op in graph.ops[:before])
    assert all(op.via == ("gradient",) for op in graph.ops[before:])


def test_the_chain_grows_pass_by_pass(gpt2):
    found = optimize(gpt2)
    chains = {op.via for op in found.ops}
    assert () in chains and ("gradient",) in chains and ("gradient", "legalize") in chains
    assert all(a != b for chain in chains for a, b in zip(chain, chain[1:]))
    assert {op.location for op in found.ops} <= {op.location for op in gpt2.ops}
    shared = {id(op.via) for op in found.ops}
    assert len(shared) == len(chains)

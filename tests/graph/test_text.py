"""Text form: exact both ways, stable, and helpful about what is wrong in it."""

import cProfile
import math
import os
import pstats
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import euler_ir as e
from euler_ir.dtypes import DTYPES
from euler_ir.errors import Location
from euler_ir.graph_equality import structurally_equal
from euler_ir.initializers import Full, Initializer, Normal, Ones, Uniform, Zeros
from euler_ir.text import parse_graph, print_graph
from euler_ir.verify import verify

HEADER = "eir 1\ngraph @g {\n"


def check_round_trip(graph, locations=False):
    text = print_graph(graph, locations)
    parsed = parse_graph(text)
    verify(parsed)
    assert structurally_equal(graph, parsed, locations)
    assert print_graph(parsed, locations) == text
    return parsed


def training_step():
    graph = e.Graph("mlp")
    with graph:
        x = e.input("x", (8, 2))
        labels = e.input("labels", (8,), e.i32)
        with graph.scope("block/0"):
            weight = e.parameter("fc.weight", (2, 4), Normal(0.02))
            hidden = e.tensor.dropout(e.gelu(x @ weight), 0.25, 7, 0).named("hidden")
        loss = e.mean(e.cross_entropy(hidden, labels))
        (gradient,) = e.gradient(loss, [weight])
        e.random_normal((3,), 1, 2)
        e.output(loss=loss, hidden=hidden)
        e.update(weight, weight - 0.1 * gradient)
    return graph


def test_the_look():
    graph = e.Graph("look")
    with graph:
        q, k, v = (e.input(name, (1, 4, 5)) for name in "qkv")
        out, lse = e.attention_with_logsumexp(q, k, v, scale=0.25)
        half = e.constant(0.5).named("half")
        scale = e.parameter("scale", (), Full(1.5))
        e.output(total=e.sum(out.named("out") * half), lse=lse)
        e.update(scale, scale * half)
    assert print_graph(graph) == (
        "eir 1\n"
        "graph @look {\n"
        '  %q = input {name = "q"} : f32[1, 4, 5]\n'
        '  %k = input {name = "k"} : f32[1, 4, 5]\n'
        '  %v = input {name = "v"} : f32[1, 4, 5]\n'
        "  %out, %attention.1 = attention %q, %k, %v {causal = true, scale = 0.25} : f32[1, 4, 5], f32[1, 4]\n"
        "  %half = constant {value = 0.5} : f32[]\n"
        '  %scale = parameter {initializer = full(1.5), name = "scale"} : f32[]\n'
        "  %broadcast = broadcast %half : f32[1, 4, 5]\n"
        "  %multiply = multiply %out, %broadcast : f32[1, 4, 5]\n"
        "  %sum = sum %multiply {axes = [0, 1, 2]} : f32[]\n"
        "  %multiply#2 = multiply %scale, %half : f32[]\n"
        '  output "total" = %sum\n'
        '  output "lse" = %attention.1\n'
        '  update "scale" = %multiply#2\n'
        "}\n"
    )
    check_round_trip(graph)


@pytest.mark.parametrize("locations", [False, True])
def test_a_training_step_round_trips(locations):
    graph = training_step()
    parsed = check_round_trip(graph, locations)
    assert parsed._streams == graph._streams == 3
    if locations:
        assert [op.location for op in parsed.ops] == [op.location for op in graph.ops]
        assert [op.scope for op in parsed.ops] == [op.scope for op in graph.ops]
    else:
        assert all(op.location is None and op.scope == "" for op in parsed.ops)


def test_new_random_ops_of_a_parsed_graph_take_new_streams():
    parsed = parse_graph(print_graph(training_step()))
    with parsed:
        e.random_uniform((3,), 1, 2)
    verify(parsed)


def test_locations_look():
    graph = e.Graph()
    with graph.scope("head"):
        e.exp(graph.input("x", ()))
        e.exp(graph.leaf("x"))
    graph.ops[0].location = Location('/a "b".py', 3, "<module>")
    graph.ops[1].location = graph.ops[2].location = Location(os.path.join(os.getcwd(), "train.py"), 12, "step")
    graph.ops[1].via = graph.ops[2].via = ("gradient", "simplify.mul-one")
    text = print_graph(graph, locations=True)
    assert "%head.exp = exp %x : f32[] @1\n  %head.exp#2 = exp %x : f32[] @1\n}" in text
    assert text.endswith(
        '}\nloc @0 = "/a \\"b\\".py":3 in "<module>" scope "head"\n'
        'loc @1 = "train.py":12 in step scope "head" via gradient, "simplify.mul-one"\n'
    )
    check_round_trip(graph, locations=True)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_bit_pattern_of_a_constant_round_trips(dtype):
    count = min(2**dtype.bits, 2**16)
    if dtype.kind == "bool":
        patterns = np.array([0, 1], np.uint8)
    elif dtype.bits <= 16:
        patterns = np.arange(count).astype(f"u{dtype.itemsize}")
    else:
        patterns = np.random.default_rng(0).integers(0, 2**dtype.bits, 3000, f"u{dtype.itemsize}", endpoint=False)
        edges = [0, 1, 2 ** (dtype.bits - 1), 2**dtype.bits - 1]
        special = [math.inf, -math.inf, math.nan, -math.nan] if dtype.is_float else []
        special = np.array(special, dtype.numpy).view(patterns.dtype)
        patterns = np.concatenate([patterns, np.array(edges, patterns.dtype), special])
    arrays = np.array_split(patterns.view(dtype.numpy), max(1, len(patterns) // 16))
    graph = e.Graph()
    for array in arrays:
        graph.constant(array)
    parsed = check_round_trip(graph)
    found = np.concatenate([op.attributes["value"] for op in parsed.ops])
    assert found.tobytes() == patterns.tobytes()


def test_floats_are_short():
    graph = e.Graph()
    usual = [(0.1, "f32"), (0.1, "bf16"), (-0.0, "f32"), (1e30, "f64"), (math.nan, "f16"), (math.inf, "f32")]
    for value, dtype in usual:
        graph.constant(value, dtype)
    graph.constant(np.array(0x7FC00001, np.uint32).view(np.float32))
    texts = [line.split("value = ")[1].split("}")[0] for line in print_graph(graph).splitlines()[2:-1]]
    assert texts == ["0.1", "0.1", "-0.0", "1e+30", "nan", "inf", "nan(0x7fc00001)"]


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 2, 1, 3), (0,), (2, 0, 3), (4, 4), (17,), (3, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64", "bool"])
def test_array_shapes(shape, dtype):
    graph = e.Graph()
    numbers = np.arange(math.prod(shape)).reshape(shape)
    graph.constant(numbers % 2 if dtype == "bool" else numbers, dtype)
    large = math.prod(shape) > 16
    assert ("sha256(" in print_graph(graph)) == ("\nresource" in print_graph(graph)) == large
    check_round_trip(graph)


def test_arrays_that_do_not_lie_in_order():
    graph = e.Graph()
    graph.emit("constant", (), value=np.arange(60.0).reshape(6, 10).T)
    graph.emit("constant", (), value=np.broadcast_to(np.float32(3), (5, 5)))
    check_round_trip(graph)


NAMES = st.one_of(st.none(), st.text(max_size=6), st.sampled_from(["exp", "exp#2", "h", "h#2", "a.b", "0", "größe"]))


@given(st.lists(NAMES, max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_name_round_trips(names):
    graph = e.Graph()
    x = graph.input("x", ())
    for name in names:
        x = e.exp(x)
        if name is not None:
            x.named(name)
    check_round_trip(graph)


def test_odd_names_round_trip():
    graph = e.Graph('my "graph"\n')
    x = graph.input('x "y"\n%', ())
    graph.outputs = {"": x, "self": x, "ü\ud83d": x}
    check_round_trip(graph)


INITIALIZERS = [Zeros(), Ones(), Full(-0.0), Full(3), Full(math.nan), Normal(), Uniform(1e-9)]


@pytest.mark.parametrize("initializer", INITIALIZERS, ids=repr)
def test_initializers(initializer):
    graph = e.Graph()
    graph.parameter("w", (2,), initializer)
    parsed = check_round_trip(graph)
    assert repr(parsed.leaf("w").op.attributes["initializer"]) == repr(initializer)


def test_an_initializer_without_a_name_in_the_text_form():
    class Mine(Initializer):
        def fill(self, array, name, seed):
            array[...] = 2

    graph = e.Graph()
    graph.parameter("w", (2,), Mine())
    with pytest.raises(e.GraphError, match="add its class to INITIALIZERS"):
        print_graph(graph)


def test_nan_attributes_keep_their_bits():
    graph = e.Graph()
    x, w = graph.input("x", (2,)), graph.input("w", (2,))
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    for epsilon in (odd, math.nan, -0.0, 5e-324):
        graph.emit("layer_norm", (x, w, w), epsilon=epsilon)
    check_round_trip(graph)
    assert "epsilon = nan(0xfff8000000000123)" in print_graph(graph)


def test_equality_sees_what_differs():
    def graph(number=0.0, called="y", name="g", order=False, scope=""):
        graph = e.Graph(name)
        with graph.scope(scope):
            x = graph.input("x", ())
            y = e.exp(x * graph.constant(number))
        y.named(called)
        graph.set_outputs(**({"b": x, "a": y} if order else {"a": y, "b": x}))
        return graph

    assert structurally_equal(graph(), graph())
    assert structurally_equal(graph(), graph(scope="s"), names=False)
    assert structurally_equal(graph(), graph(called="h"), names=False)
    assert not structurally_equal(graph(), graph(scope="s"), locations=True, names=False)
    for other in (graph(-0.0), graph(called="h"), graph(name="other"), graph(order=True)):
        assert not structurally_equal(graph(), other)


def test_comments_and_free_layout():
    text = """eir 1  // version
    graph @g { // RUN: something
      %x = input {
        name = "x" } :
          f32[2,3]
      // output "a" = %x
      output "y" = %x }"""
    assert print_graph(parse_graph(text)) == HEADER + '  %x = input {name = "x"} : f32[2, 3]\n  output "y" = %x\n}\n'


# -- errors ------------------------------------------------------------------------------------------------------------

X = '%x = input {name = "x"} : f32[2, 3]\n'
ERRORS = [
    ("%y = exq %x : f32[2, 3]", 6, "there is no operator 'exq'", "did you mean exp?"),
    ("%y = exp %xx : f32[2, 3]", 10, "%xx is not defined before this use", "did you mean %x?"),
    ("%y = exp %y : f32[2, 3]", 10, "%y is not defined before this use", None),
    ("%x = exp %x : f32[2, 3]", 1, "%x is defined twice", None),
    ("%y = exp %x : f33[2, 3]", 15, "there is no element type 'f33'", "did you mean f32?"),
    ("%y = exp %x : f32[2 3]", 15, "[2 3] is not a shape", "sizes are separated by commas"),
    ("%y = exp %x : f32[2, 4]", 15, "exp gives f32[2, 3] here", None),
    ("%y, %z = exp %x : f32[2, 3]", 19, "2 values but 1 types", None),
    ("%y = exp %x", 12, "expected ':', found '}'", None),
    ("%y = exp : f32[2, 3]", 6, "exp takes 1 operand (operand), not 0", None),
    ("%y = add %x : f32[2, 3]", 6, "add takes 2 operands (left, right), not 1", None),
    ("%y = sum %x : f32[]", 6, "sum lacks attribute 'axes' of kind ints", None),
    ("%y = sum %x {axis = [0]} : f32[3]", 14, "sum has no attribute 'axis' here", "did you mean axes?"),
    ("%y = attention %x, %x : f32[2, 3]", 6, "takes 3 to 4 operands (query, key, value, visible_from), not 2", None),
    ("%y = exp %x {speed = 1} : f32[2, 3]", 14, "exp has no attribute 'speed' here", "exp takes none in braces"),
    ("%y = sum %x {axes = [0], axes = [0]} : f32[3]", 26, "attribute 'axes' is given twice", None),
    ("%y = sum %x {axes = [0, 9]} : f32[3]", 6, "axes (0, 9) do not fit", None),
    ("%y = sum %x {axes = [0, 0.5]} : f32[3]", 25, "sum, attribute 'axes': expected an integer", None),
    ("%y = sum %x {axes = 0} : f32[3]", 21, "expected a list of integers", None),
    ("%y = sum %x {axes = [0} : f32[3]", 23, "expected ',' or ']', found '}'", None),
    ("%y = sum %x {axes = :} : f32[3]", 21, "expected a number, a string, a word or a list", None),
    ('%y = gelu %x {approximate = "exact"} : f32[2, 3]', 6, "gelu: approximate is 'exact'", "use 'tanh' or 'none'"),
    ("%y = gelu %x {approximate = tanh} : f32[2, 3]", 29, "expected a string in double quotes", None),
    ("%y = cumsum %x {axis = 0, reverse = tru} : f32[2, 3]", 37, "expected true or false", "did you mean true?"),
    ("%y = constant {value = [1.0, 2.0]} : f32[3]", 24, "expected a list of 3 along axis 0 of f32[3]", None),
    ("%y = constant {value = [1.0]} : f32[]", 24, "expected a number of f32", None),
    ("%y = constant {value = 300} : u8[]", 24, "300 does not fit u8", None),
    ("%y = constant {value = 1.5} : i32[]", 24, "expected an integer", None),
    ("%y = constant {value = nan(0x1)} : f32[]", 24, "0x1 is not the bits of a NaN of f32", None),
    ("%y = constant {value = [1.0]} : f32[0]", 24, "expected [] for f32[0]", None),
    ("%y = constant {value = 1e39} : f32[]", 24, "1e39 is beyond the largest f32", None),
    ("%y = constant {value = 123456789012345678901} : i64[]", 24, "an integer of at most 64 bits", None),
    ("%y = constant {value = splat(1.5)} : i64[20]", 30, "expected an integer", None),
    ("%y = constant {value = splat(1, 2)} : i64[20]", 24, "expected a number, a list, splat or sha256", None),
    ("%y = constant {value = spalt(1)} : i64[20]", 24, "expected a number, a list, splat", "mean splat?"),
    ('%y = constant {value = sha256("AA")} : f32[20]', 31, "expected the 64 hexadecimal digits", None),
    ("%y = constant {value = sha256(7)} : f32[20]", 31, "expected a string in double quotes", None),
    ("%y = constant {value = splat(0)} : u8[9000000000000000, 9000]", 24, "is larger than any memory", None),
    ('%w = parameter {initializer = norml(0.02), name = "w"} : f32[]', 31, "expected an initializer", "mean normal?"),
    ('%w = parameter {initializer = normal(), name = "w"} : f32[]', 31, "normal takes 1 numbers, not 0", None),
    ('%w = input {name = "x"} : f32[]', 6, "graph 'g' already has input 'x'", None),
    ('%w = input {name = "\\x"} : f32[]', 20, "has an escape that JSON does not know", None),
    ('output "y" %x', 12, "expected '=', found '%x'", None),
    ("output y = %x", 8, "expected the name of the output in double quotes, found 'y'", None),
    ("outptu", 1, "expected a value, 'output', 'update' or '}', found 'outptu'", "did you mean output?"),
    ('output "y" = %x\noutput "y" = %x', 1, "output 'y' is given twice", None),
    ('update "x" = %x', 1, "only a parameter or a state can be updated", None),
    ('update "xx" = %x', 1, "'xx' is no parameter or state of the graph", None),
    ("%y = exp %x : f32[2, 3] ?", 25, "expected a value, 'output', 'update' or '}', found '?'", None),
    ("%y = exp %x : f32[2, 3] @x", 26, "expected the number of a location, found 'x'", None),
    ("%y = exp %x : f32[2, 3] @7", 26, "there is no location @7", None),
]


@pytest.mark.parametrize(("lines", "column", "message", "hint"), ERRORS, ids=[case[0] for case in ERRORS])
def test_errors_say_where_and_what(lines, column, message, hint):
    with pytest.raises(e.ParseError) as caught:
        parse_graph(HEADER + X + lines + "}", "model.eir")
    line = 4 + lines.count("\n")
    assert caught.value.message.startswith(f"model.eir:{line}:{column}: ")
    assert message in caught.value.message
    assert hint is None or hint in caught.value.hint
    source, caret = caught.value.details[:2]
    assert source == (lines + "}").splitlines()[-1]
    assert caret == " " * (column - 1) + "^"


def test_errors_outside_of_the_graph():
    for text, message in [
        ("", "<text>:1:1: expected 'eir', found the end of the text"),
        ("eir 2", "<text>:1:5: this is version 2 of the text form, not 1"),
        ("eir 1\ngraph g {}", "<text>:2:7: expected '@', found 'g'"),
        ("eir 1\ngraph @g {", "<text>:2:11: expected a value, 'output', 'update' or '}', found the end of the text"),
        ("eir 1\ngraph @g {}\n}", "<text>:3:1: expected nothing after the graph, found '}'"),
    ]:
        with pytest.raises(e.ParseError) as caught:
            parse_graph(text)
        assert caught.value.message == message


def test_a_long_line_is_cut_around_the_fault():
    text = HEADER + "%y = constant {value = [" + "1.0, " * 500 + "oops] } : f32[501]}"
    with pytest.raises(e.ParseError) as caught:
        parse_graph(text)
    source, caret = caught.value.details
    assert len(source) <= 100 and source[caret.index("^") :].startswith("oops")


def test_type_errors_show_the_operands():
    with pytest.raises(e.ParseError, match=r"x: f32\[2, 3\]"):
        parse_graph(HEADER + X + "%y = exp %x : f32[6]}")


# -- size --------------------------------------------------------------------------------------------------------------


def chain(length):
    graph = e.Graph()
    x = graph.input("x", (4,))
    with graph.derived_from(x.op, "test"):
        for _ in range(length):
            x = e.exp(x)
    graph.set_outputs(y=x)
    return graph


def test_deep_lists_are_refused():
    with pytest.raises(e.ParseError, match="lists are nested at most 64 deep"):
        parse_graph(HEADER + "%y = constant {value = " + "[" * 5000 + "1" + "]" * 5000 + "} : f32[1]}")
    value, shape = "[" * 64 + "1.0" + "]" * 64, ", ".join(["1"] * 64)
    deepest = f"{HEADER}  %y = constant {{value = {value}}} : f32[{shape}]\n}}\n"
    assert print_graph(parse_graph(deepest)) == deepest


def test_parsing_keeps_up():
    """Calls, not seconds: about 0.3 s for 20,000 ops, and 170 calls an op at most."""
    text = print_graph(chain(20_000))
    profile = cProfile.Profile()
    profile.runcall(lambda: verify(parse_graph(text)))
    assert pstats.Stats(profile).total_calls < 170 * 20_000

"""Large constants: by the hash of their content, with their data at the end of the text or in a file beside it."""

import hashlib
import math

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.dtypes import DTYPES
from euler_ir.graph_equality import structurally_equal
from euler_ir.passes import MergeEqual, optimize
from euler_ir.text import parse_graph, print_graph, read_graph, write_graph
from euler_ir.verify import verify
from euler_ir.widen import in_f64


def graph_of(*arrays):
    with ei.Graph("large") as graph:
        ei.output(**{f"y{n}": ei.constant(array) for n, array in enumerate(arrays)})
    return graph


def grid(count=40):
    return np.arange(count, dtype=np.float32)


def patterns(dtype, count=1000):
    """Arrays of every kind of bits: NaN payloads, both zeros, denormals, infinities."""
    if dtype.kind == "bool":
        return np.arange(count) % 3 == 0
    bits = np.random.default_rng(0).integers(0, 2**dtype.bits, count, f"u{dtype.itemsize}", endpoint=False)
    if dtype.is_float:
        special = np.array([math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0], dtype.numpy).view(bits.dtype)
        bits[: len(special)] = special
        bits[len(special) : len(special) + 2] = [1, bits[0] | 5]
    return bits.view(dtype.numpy)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_bit_comes_back_from_the_file_and_from_the_text(tmp_path, dtype):
    array = patterns(dtype).reshape(10, 100)
    graph = graph_of(array)
    write_graph(graph, tmp_path / "g.eir")
    for found in (read_graph(tmp_path / "g.eir"), parse_graph(print_graph(graph))):
        verify(found)
        assert structurally_equal(found, graph)
        value = found.outputs["y0"].op.attributes["value"]
        assert (value.tobytes(), value.dtype, value.shape) == (array.tobytes(), array.dtype, array.shape)


def test_the_text_says_the_hash_of_the_bytes(tmp_path):
    write_graph(graph_of(grid(), grid().reshape(8, 5), grid() + 1), tmp_path / "g.eir", locations=False)
    key = hashlib.sha256(grid().astype("<f4").tobytes()).hexdigest()
    text = (tmp_path / "g.eir").read_text()
    assert text.count(f'constant {{value = sha256("{key}")}}') == 2
    assert "resource" not in text and len(text) < 700
    stored = load_file(tmp_path / "g.safetensors")
    assert len(stored) == 2 and stored[key].tobytes() == grid().tobytes()


def test_small_and_repeated_arrays_need_no_resource(tmp_path):
    arrays = [np.zeros((3, 7), np.int8), np.full((4, 5), -0.0), np.arange(16), np.full(17, True), np.zeros((0, 99))]
    odd = np.full(20, 0x7FC00123, np.uint32).view(np.float32)
    graph = graph_of(*arrays, odd, np.broadcast_to(np.float32(2), (6, 6)))
    write_graph(graph, tmp_path / "g.eir", locations=False)
    assert [path.name for path in tmp_path.iterdir()] == ["g.eir"]
    text = (tmp_path / "g.eir").read_text()
    for literal in ("splat(0)", "splat(-0.0)", "splat(true)", "splat(nan(0x7fc00123))", "splat(2.0)"):
        assert literal in text
    found = read_graph(tmp_path / "g.eir")
    assert structurally_equal(found, graph)
    assert interpreter.run(found, {})[0]["y5"].tobytes() == odd.tobytes()


def test_zeros_of_two_signs_are_not_repeated():
    array = np.zeros(20)
    array[7] = -0.0
    assert "sha256(" in print_graph(graph_of(array))


def test_a_splat_takes_no_memory_and_runs():
    graph = parse_graph("eir 1\ngraph @g {\n  %y = constant {value = splat(1.5)} : f32[40]\n  output \"y\" = %y\n}\n")
    assert graph.ops[0].attributes["value"].strides == (0,)
    assert ei.compile(graph)()["y"].tolist() == [1.5] * 40
    wide = "eir 1\ngraph @g {\n  %y = constant {value = splat(1)} : u8[900000000000000]\n}\n"
    assert print_graph(parse_graph(wide)) == wide


# -- without the data --------------------------------------------------------------------------------------------------


@pytest.fixture
def without(tmp_path):
    """A graph over a large constant, and the same read from a file that has lost its data."""
    with ei.Graph("g") as graph:
        x = ei.input("x", (40,))
        ei.output(y=x + ei.constant(grid()) * ei.constant(grid()))
    path = tmp_path / "g.eir"
    write_graph(graph, path)
    (tmp_path / "g.safetensors").unlink()
    return graph, read_graph(path), path


def test_a_graph_without_its_data_is_printed_verified_and_rewritten(without):
    graph, lost, path = without
    verify(lost)
    assert print_graph(lost, locations=True) == path.read_text()
    assert structurally_equal(lost, graph, locations=True)
    assert structurally_equal(MergeEqual().run(lost), MergeEqual().run(graph))
    assert "sha256(" in print_graph(optimize(lost))
    assert "constant" in str(ei.compiler.lower(lost).plan)


@pytest.mark.parametrize(
    "run",
    [
        lambda graph: interpreter.run(graph, {"x": grid()}),
        lambda graph: ei.compile(graph),
        lambda graph: ei.compile(graph, backend="reference")(x=grid()),
        in_f64,
    ],
)
def test_running_it_says_which_data_are_missing_and_where_they_should_be(without, run):
    _, lost, path = without
    key = hashlib.sha256(grid().tobytes()).hexdigest()
    with pytest.raises(ei.ExecutionError, match=key) as caught:
        run(lost)
    assert f"expected in {path.with_suffix('.safetensors')}" in caught.value.hint


def test_a_text_that_lost_its_resource_lines():
    text = print_graph(graph_of(grid())).split("\nresource")[0] + "\n"
    with pytest.raises(ei.ExecutionError, match="no data here") as caught:
        interpreter.run(parse_graph(text), {})
    assert "a resource line" in caught.value.hint


# -- wrong data --------------------------------------------------------------------------------------------------------


def changed(path, change):
    data = load_file(path)
    save_file({key: change(array) for key, array in data.items()}, path, metadata={"euler_ir": "resources of a text"})


def flipped(array):
    array = array.copy()
    array[3] ^= 1
    return array


@pytest.mark.parametrize("change", [flipped, lambda array: array[:-1], lambda array: np.zeros_like(array)])
def test_data_that_are_not_those_of_the_hash_are_refused(tmp_path, change):
    write_graph(graph_of(grid()), tmp_path / "g.eir")
    changed(tmp_path / "g.safetensors", change)
    with pytest.raises(ei.ParseError, match=r"g\.safetensors: the data of sha256 .* have another hash"):
        read_graph(tmp_path / "g.eir")


def test_a_file_that_is_no_safetensors_file_is_refused(tmp_path):
    write_graph(graph_of(grid()), tmp_path / "g.eir")
    (tmp_path / "g.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ei.ParseError, match="is not a safetensors file"):
        read_graph(tmp_path / "g.eir")


def test_data_of_another_size_are_refused():
    text = print_graph(graph_of(grid())).replace("f32[40]", "f32[41]")
    with pytest.raises(ei.ParseError, match=r"160 bytes are no data of f32\[41\]"):
        parse_graph(text)
    text = print_graph(graph_of(np.arange(40, dtype=np.uint8))).replace("u8[40]", "bool[40]")
    with pytest.raises(ei.ParseError, match=r"40 bytes are no data of bool\[40\]"):
        parse_graph(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('= "AAAA', '= "AAAB', "these are not the data of sha256"),
        ('= "AAAA', '= "*AAA', "this is not base64"),
        ('resource "', 'resource "0', "these are not the data of sha256 0"),
        ('resource "', "resource @", "expected the hash of a resource in double quotes"),
        ('\nresource "', '\nresorce "', "expected nothing after the graph, found 'resorce'"),
    ],
)
def test_wrong_lines_are_refused(old, new, message):
    text = print_graph(graph_of(grid()))
    assert old in text
    with pytest.raises(ei.ParseError, match=message):
        parse_graph(text.replace(old, new))


def test_a_file_of_the_users_is_not_overwritten(tmp_path):
    save_file({"weight": np.ones(3)}, tmp_path / "g.safetensors")
    with pytest.raises(ei.GraphError, match="holds other data than constants"):
        write_graph(graph_of(grid()), tmp_path / "g.eir")
    assert list(load_file(tmp_path / "g.safetensors")) == ["weight"]
    assert not (tmp_path / "g.eir").exists()
    write_graph(graph_of(grid()), tmp_path / "h.eir")
    write_graph(graph_of(grid() + 1), tmp_path / "h.eir")
    assert interpreter.run(read_graph(tmp_path / "h.eir"), {})[0]["y0"][0] == 1

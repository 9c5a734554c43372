"""Modules: names, sharing, scopes, and the numbers of each layer."""

import gc
import weakref

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import nn
from euler_ir.initializers import Normal, Zeros


class Tower(nn.Module):
    def __init__(self):
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), ei.relu, nn.Linear(4, 4)) for _ in range(2))
        self.norm = nn.LayerNorm(4)
        self.scale = nn.Parameter((), Normal(1.0))

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.norm(x) * self.scale.value


class Tied(nn.Module):
    def __init__(self):
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.again = self.embedding
        self.head.weight = self.embedding.weight


def test_parameters_are_named_by_their_path_in_order():
    assert [name for name, _ in Tower().named_parameters()] == [
        *(f"h.{i}.{j}.{kind}" for i in (0, 1) for j in (0, 2) for kind in ("weight", "bias")),
        "norm.weight",
        "norm.bias",
        "scale",
    ]
    assert Tower().parameter_count() == 4 * (16 + 4) + 8 + 1


def test_a_tied_parameter_is_one_parameter_under_its_first_path():
    tied = Tied()
    assert [name for name, _ in tied.named_parameters()] == ["embedding.weight"]
    assert tied.parameter_count() == 15
    with ei.Graph() as graph:
        assert tied.head.weight.value is tied.embedding.weight.value
    assert len(graph.parameters) == 1


def test_a_replaced_or_removed_member_is_forgotten():
    module = nn.Linear(2, 2)
    old = module.weight
    module.weight = nn.Parameter((2, 2), Zeros())
    module.bias = None
    assert module.parameters() == [module.weight]
    assert old.path == ""


def test_a_parameter_is_one_value_in_each_graph():
    linear = nn.Linear(2, 3)
    for _ in range(2):
        with ei.Graph() as graph:
            x = ei.input("x", (1, 2))
            linear(x), linear(x)
        assert [value.op.attributes["name"] for value in graph.parameters] == ["weight", "bias"]


def test_ops_carry_the_path_of_their_module_as_scope():
    tower = Tower()
    with ei.Graph() as graph:
        result = tower(ei.input("x", (1, 4)))
        outside = result + 1
    assert [op.scope for op in graph.ops if op.name == "matmul"] == ["h.0.0", "h.0.2", "h.1.0", "h.1.2"]
    assert {op.scope for op in graph.ops if op.name == "layer_norm"} == {"norm"}
    assert outside.op.scope == ""


def test_two_parameters_of_one_path_are_refused_with_the_users_line():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    with ei.Graph(), pytest.raises(ei.GraphError) as raised:
        x = ei.input("x", (1, 2))
        second(first(x))
    message = str(raised.value)
    assert "already has another parameter 'weight'" in message
    assert "second(first(x))" in message and "hint: make both modules attributes of one Module" in message


def test_a_parameter_outside_of_modules_or_graphs_is_refused():
    with ei.Graph(), pytest.raises(ei.GraphError, match="belongs to no module"):
        nn.Parameter((2,), Zeros()).value  # noqa: B018
    with pytest.raises(ei.GraphError, match="no graph is being built"):
        nn.Linear(2, 2)(None)


def test_a_module_keeps_no_graph_alive():
    linear = nn.Linear(2, 2)
    with ei.Graph() as graph:
        linear(ei.input("x", (1, 2)))
    reference = weakref.ref(graph)
    del graph
    gc.collect()
    assert reference() is None


def test_layers_compute_what_they_say(backend):
    random = np.random.default_rng(1)
    x = random.standard_normal((3, 4)).astype(np.float32)
    ids = np.array([[2, 0], [1, 2]], np.int64)

    class Layers(nn.Module):
        def __init__(self):
            self.linear, self.norm, self.embedding = nn.Linear(4, 2), nn.LayerNorm(4), nn.Embedding(3, 2)

    layers = Layers()
    with ei.Graph() as graph:
        features = ei.input("x", x.shape)
        ei.output(
            linear=layers.linear(features),
            norm=layers.norm(features),
            embedding=layers.embedding(ei.input("ids", ids.shape, ei.i64)),
        )
    state = ei.initial_state(graph)
    found = ei.compile(graph, backend=backend)(state, x=x, ids=ids)
    np.testing.assert_allclose(found["linear"], x @ state["linear.weight"] + state["linear.bias"], rtol=1e-5)
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found["norm"], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found["embedding"], state["embedding.weight"][ids])
    assert np.abs(state["linear.weight"]).max() <= 0.5


def test_dropout_needs_randomness_to_act(backend):
    dropout = nn.Dropout(0.25)
    with ei.Graph() as graph:
        x = ei.input("x", (400, 100))
        assert dropout(x) is x
        ei.output(y=dropout(x, seed=3, step=4))
    y = ei.compile(graph, backend=backend)(x=np.ones((400, 100), np.float32))["y"]
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.01
    with pytest.raises(ValueError, match="rate < 1"):
        nn.Dropout(1.0)


def test_half_precision_layers():
    with ei.Graph():
        assert nn.Linear(4, 2, dtype=ei.bf16)(ei.input("x", (1, 4), ei.bf16)).dtype == ei.bf16


def test_a_module_is_no_part_of_itself():
    class Child(nn.Module):
        def __init__(self, parent):
            self.parent = parent

    root = nn.Module()
    with pytest.raises(ei.GraphError, match="a part of itself"):
        root.child = Child(root)
    with pytest.raises(ei.GraphError, match="a part of itself"):
        root.me = root


def test_what_is_assigned_twice_is_called_by_the_name_that_is_left():
    model = nn.Module()
    model.first = model.second = nn.Linear(2, 3)
    model.first = nn.Linear(4, 5)
    names = [name for name, _ in model.named_parameters()]
    assert sorted(names) == ["first.bias", "first.weight", "second.bias", "second.weight"]
    del model.first
    assert sorted(name for name, _ in model.named_parameters()) == ["second.bias", "second.weight"]


def test_a_plain_list_of_modules_is_refused():
    model = nn.Module()
    with pytest.raises(ei.GraphError, match="nn.ModuleList"):
        model.layers = [nn.Linear(2, 2)]


def test_dropout_needs_seed_and_step():
    with ei.Graph():
        with pytest.raises(ValueError, match="a seed and a step"):
            nn.Dropout(0.5)(ei.input("x", (4,)), seed=1)


def test_rms_norm_divides_by_the_root_mean_square(backend):
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    norm = nn.RMSNorm(4, epsilon=1e-3)
    with ei.Graph() as graph:
        ei.output(y=norm(ei.input("x", x.shape)))
    state = ei.initial_state(graph)
    assert list(state) == ["weight"] and (state["weight"] == 1).all()
    state["weight"] = np.array([1, 2, 3, 4], np.float32)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * [1, 2, 3, 4]
    np.testing.assert_allclose(ei.compile(graph, backend=backend)(state, x=x)["y"], expected, rtol=1e-5)


def turned_by_complex_numbers(x, positions, base):
    """Su et al., arXiv:2104.09864, 3.2.2: a pair of features is a complex number, turned by e^(i angle)."""
    half = x.shape[-1] // 2
    angles = np.multiply.outer(positions, float(base) ** (-2 * np.arange(half) / x.shape[-1]))
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[..., None, :]
    return np.concatenate([turned.real, turned.imag], axis=-1)


@pytest.mark.parametrize(("width", "base"), [(2, 10000.0), (6, 500.0), (64, 500000.0)])
def test_rotary_embeddings_turn_pairs_by_the_angle_of_the_position(backend, width, base):
    random = np.random.default_rng(width)
    x = random.standard_normal((2, 3, 5, width)).astype(np.float32)
    positions = np.array([[0, 1, 2], [7, 30000, 9]])
    rotate = nn.RotaryEmbedding(width, base)
    with ei.Graph() as graph:
        ei.output(y=rotate(ei.input("x", x.shape), rotate.turns(ei.input("positions", (2, 3), ei.i64))))
    found = ei.compile(graph, backend=backend)(x=x, positions=positions)["y"]
    np.testing.assert_allclose(found, turned_by_complex_numbers(x, positions, base), rtol=1e-5, atol=2e-6)


def test_scores_of_turned_vectors_depend_on_their_distance_alone():
    random = np.random.default_rng(0)
    rotate = nn.RotaryEmbedding(8)
    with ei.Graph() as graph:
        turns = rotate.turns(ei.arange(100))
        query, key = (rotate(ei.input(name, (100, 1, 8)), turns)[:, 0] for name in "qk")
        ei.output(scores=ei.matmul(query, key, transpose_right=True))
    query, key = (np.repeat(random.standard_normal((1, 1, 8)), 100, 0).astype(np.float32) for _ in range(2))
    scores = ei.compile(graph)(q=query, k=key)["scores"]
    for distance in (0, 1, 50, -20):
        along = np.diagonal(scores, distance)
        np.testing.assert_allclose(along, along[0], atol=1e-5)
    assert np.ptp(scores) > 0.5


@pytest.mark.parametrize("width", [0, 1, 7])
def test_rotary_embeddings_need_pairs(width):
    with pytest.raises(ValueError, match=f"even, not {width}"):
        nn.RotaryEmbedding(width)

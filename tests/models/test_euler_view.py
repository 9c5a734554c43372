"""GPT-2 as steps of a differential equation: the methods alone, and the models that they give."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import euler_ir as ei
from benchmarks import torch_gpt2
from benchmarks.workload import Workload
from examples import euler_view
from models.architectures import config_of, document_of
from models.euler_view import METHODS, EulerViewConfig, integrate
from models.generation.cache import decode_graph, prefill_graph
from models.gpt2 import GPT2Config
from models.gradient_check import check_model
from models.language_model import WholeTexts

ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4}
SIZES = {"vocab_size": 17, "context": 8, "layers": 4, "heads": 2, "width": 12}


# -- the methods -------------------------------------------------------------------------------------------------------


def solution_of(matrix, x):
    """exp(matrix) x, by way of its eigenvalues."""
    values, vectors = np.linalg.eig(matrix)
    return (vectors @ (np.exp(values) * np.linalg.solve(vectors, x.astype(complex)))).real


def errors(field, x, expected, method, steps):
    """The error at time 1 with each number of steps."""
    found = []
    for count in steps:
        at = x
        for _ in range(count):
            at = integrate(field, at, 1 / count, method)
        found.append(np.abs(at - expected).max())
    return found


def test_every_method_has_its_order():
    matrix = np.random.default_rng(0).standard_normal((5, 5)) / 2
    start = np.arange(1.0, 6.0)
    cases = (
        (lambda x: matrix @ x, start, solution_of(matrix, start)),
        # Not linear: there, methods of one order differ, and more conditions must hold.
        (lambda x: -x * x, np.ones(1), np.full(1, 0.5)),
    )
    assert METHODS.keys() == ORDERS.keys()
    for field, x, expected in cases:
        for method, order in ORDERS.items():
            coarse, fine = errors(field, x, expected, method, (16, 32))
            assert np.log2(coarse / fine) == pytest.approx(order, abs=0.2), method


def test_one_step_by_hand():
    """dx/dt = -x^2 from 1, one step of size 1."""
    expected = {"euler": 0.0, "midpoint": 0.75, "heun": 0.5, "rk4": 1 - (1 + 0.5 + 1.53125 + 0.054931640625) / 6}
    found = {method: integrate(lambda x: -x * x, np.ones(1), 1, method)[0] for method in METHODS}
    assert found == pytest.approx(expected, rel=1e-15)


def test_order_in_a_graph_in_f64():
    """The same as operators of the compiler: rotation by 1 radian."""
    matrix = np.array([[0.0, -1.0], [1.0, 0.0]])
    with ei.Graph() as graph:
        start, generator = ei.input("start", (2, 1), ei.f64), ei.input("generator", (2, 2), ei.f64)
        for method in METHODS:
            for count in (8, 16):
                x = start
                for _ in range(count):
                    x = integrate(lambda x: generator @ x, x, 1 / count, method)
                ei.output(**{f"{method}_{count}": x})
    found = ei.compile(graph)(start=np.array([[1.0], [0.0]]), generator=matrix)
    exact = np.array([[np.cos(1)], [np.sin(1)]])
    for method, order in ORDERS.items():
        coarse, fine = (np.abs(found[f"{method}_{count}"] - exact).max() for count in (8, 16))
        assert np.log2(coarse / fine) == pytest.approx(order, abs=0.3), method


# -- the models --------------------------------------------------------------------------------------------------------


def logits_graph(config, batch=2):
    with ei.Graph() as graph:
        tokens = ei.input("tokens", (batch, 8), ei.i32)
        model = config.build()
        ei.output(logits=model.logits(model(tokens, WholeTexts(8))))
    return graph


def random_state(graph):
    random = np.random.default_rng(2)
    state = ei.initial_state(graph)
    for name, array in state.items():
        state[name] = (array + 0.3 * random.standard_normal(array.shape)).astype(np.float32)
    return state


TOKENS = np.random.default_rng(1).integers(0, 17, size=(2, 8)).astype(np.int32)


def test_euler_steps_of_size_1_are_gpt2_bit_for_bit(backend):
    plain, euler = logits_graph(GPT2Config(**SIZES)), logits_graph(EulerViewConfig(**SIZES))
    state = random_state(plain)
    first, second = (ei.compile(graph, backend=backend)(state, tokens=TOKENS)["logits"] for graph in (plain, euler))
    assert np.array_equal(first, second)


def by_torch(config, state):
    """The logits, with every method written out by hand."""
    blocks = config.layers // config.sharing
    sizes = {key: getattr(config, key) for key in ("heads", "width", "context", "vocab_size")}
    model = torch_gpt2.GPT2(Workload(layers=blocks, batch=2, length=8, **sizes)).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            array = torch.from_numpy(state[name]).double()
            parameter.copy_(array.T if ".c_" in name and name.endswith("weight") else array)
        x = model.wte(torch.from_numpy(TOKENS).long()) + model.wpe.weight
        for block in model.h:
            def attended(x, block=block):
                shape = (2, 8, 3, config.heads, config.width // config.heads)
                query, key, value = block.attn["c_attn"](block.ln_1(x)).view(shape).permute(2, 0, 3, 1, 4)
                mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                return block.attn["c_proj"](mixed.transpose(1, 2).reshape(2, 8, config.width))

            def transformed(x, block=block):
                return block.mlp["c_proj"](functional.gelu(block.mlp["c_fc"](block.ln_2(x)), approximate="tanh"))

            for _ in range(config.sharing):
                for f in (attended, transformed):
                    x = one_step(f, x, config.step_size, config.method)
        return functional.linear(model.ln_f(x), model.wte.weight).numpy()


def one_step(f, x, h, method):
    first = f(x)
    if method == "euler":
        return x + h * first
    if method == "midpoint":
        return x + h * f(x + h / 2 * first)
    if method == "heun":
        return x + h / 2 * (first + f(x + h * first))
    second = f(x + h / 2 * first)
    third = f(x + h / 2 * second)
    return x + h / 6 * (first + 2 * second + 2 * third + f(x + h * third))


@pytest.mark.parametrize(
    ("method", "step_size", "sharing"),
    [("euler", 0.5, 2), ("midpoint", 1.0, 1), ("heun", 0.25, 4), ("rk4", 0.5, 2)],
)
def test_variants_compute_what_is_written_out_in_torch(method, step_size, sharing):
    config = EulerViewConfig(**SIZES, method=method, step_size=step_size, sharing=sharing)
    graph = logits_graph(config)
    state = random_state(graph)
    found, expected = ei.compile(graph)(state, tokens=TOKENS)["logits"], by_torch(config, state)
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


def test_sharing_saves_parameters_and_methods_cost_evaluations():
    def count(**options):
        config = EulerViewConfig(**SIZES, **options)
        return config.build().parameter_count(), config.evaluations

    block = 12 * 12**2 + 13 * 12
    whole = 17 * 12 + 8 * 12 + 2 * 12 + 4 * block
    assert count() == (whole, 4)
    assert count(method="rk4", step_size=0.1) == (whole, 16)
    assert count(sharing=2) == (whole - 2 * block, 4)
    assert count(sharing=4, method="heun") == (whole - 3 * block, 8)


@pytest.mark.parametrize(
    ("method", "width", "elements"), [("heun", 4, 1), pytest.param("rk4", 12, 8, marks=pytest.mark.slow)]
)
def test_gradients_are_those_of_finite_differences(method, width, elements):
    sizes = {"vocab_size": 7, "context": 4, "layers": 2, "heads": 2, "width": width, "dropout": 0.1}
    config = EulerViewConfig(**sizes, method=method, step_size=0.7, sharing=2)
    rows = check_model(config, elements)
    assert {row.name.split(" ")[0] for row in rows} == {name for name, _ in config.build().named_parameters()}
    assert all(row.passes() for row in rows), rows


def test_a_text_goes_on_by_way_of_the_cache():
    config = EulerViewConfig(**SIZES, method="rk4", step_size=0.5, sharing=2)
    whole, prefill, decode = logits_graph(config, 1), prefill_graph(config, 1, 8), decode_graph(config, 1, 8)
    state = random_state(whole)
    tokens = TOKENS[:1]
    expected = ei.compile(whole)(state, tokens=tokens)["logits"][0]
    state.add(prefill)
    beginning = ei.compile(prefill)(state, tokens=np.where(np.arange(8) < 4, tokens, 0), position=np.array([3]))
    found = [beginning["logits"][0]]
    run = ei.compile(decode)
    for position in range(4, 8):
        found.append(run(state, tokens=tokens[:, position], position=np.array([position]))["logits"][0])
    assert np.abs(np.array(found) - expected[3:]).max() < 2e-5 * np.abs(expected).max()


def test_checkpoints_keep_the_options():
    config = EulerViewConfig(**SIZES, method="heun", step_size=0.25, sharing=2)
    assert config_of(json.loads(json.dumps(document_of(config)))) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "leapfrog"}, "no method 'leapfrog' here. There are euler, midpoint, heun, rk4"),
        ({"sharing": 3}, "4 layers do not divide into runs of 3"),
        ({"sharing": 0}, "runs of 0"),
        ({"step_size": 0}, "step size must be above 0, not 0"),
        ({"step_size": float("nan")}, "step size must be above 0, not nan"),
        ({"heads": 5}, "width of 12 does not divide into 5 heads"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EulerViewConfig(**{**SIZES, **options})


# -- the example -------------------------------------------------------------------------------------------------------


def test_the_table_by_hand():
    plain = EulerViewConfig(**SIZES)
    runs = [
        euler_view.Run("plain", plain, None, [0, 10, 20], [0.0, 1.0, 2.0], [4.0, 3.0, 2.0]),
        euler_view.Run("costly", replace(plain, method="rk4"), None, [0, 10, 20], [0.0, 4.0, 8.0], [4.0, 2.0, 1.0]),
    ]
    _, _, first, second = (line.split() for line in euler_view.comparison(runs))
    # 80 evaluations are 20 steps of one and 5 of the other; 2 seconds are 20 steps and 5.
    assert first[-6:] == [f"{plain.build().parameter_count():,}", "4", "2.0", "2.000", "2.000", "2.000"]
    assert second[-5:] == ["16", "8.0", "1.000", "3.000", "3.000"]


def test_the_variants_are_what_they_are_called():
    plain = EulerViewConfig(**SIZES)
    found = {name: euler_view.variant_of(plain, options) for name, options in euler_view.VARIANTS.items()}
    halves = found["Euler, 2 steps of 1/2 a block"]
    assert found["Euler, h = 1: GPT-2"] == plain
    assert (halves.layers, halves.sharing, halves.step_size, halves.evaluations) == (8, 2, 0.5, 8)
    assert halves.build().parameter_count() == plain.build().parameter_count()
    assert found["one block, RK4"] == replace(plain, sharing=4, method="rk4")
    finer = euler_view.with_other_method(found["one block, RK4"], steps=2)
    assert finer == replace(plain, sharing=8, layers=8, step_size=0.5, method="rk4")


def test_the_example_runs(tmp_path, capsys, monkeypatch):
    for table, kept in (("VARIANTS", ("Heun",)), ("OTHER_METHODS", ("as trained", "2 steps of half the size"))):
        monkeypatch.setattr(euler_view, table, {name: getattr(euler_view, table)[name] for name in kept})
    corpus = tmp_path / "text.txt"
    corpus.write_text("so it goes, and so it went\n" * 40)
    sizes = "--steps 20 --width 8 --heads 2 --layers 2 --context 8 --batch-size 4".split()
    assert euler_view.main(["--corpus", str(corpus), "--out", str(tmp_path / "out"), *sizes]) == 0
    printed = capsys.readouterr().out
    trained = next(float(line.split()[-1]) for line in printed.splitlines() if line.startswith("Heun: validation loss"))
    # As trained it is the model that was trained.
    assert f"  as trained{trained:26.3f}" in printed
    assert (tmp_path / "out" / "losses.png").read_bytes().startswith(b"\x89PNG")


def test_wrong_use_is_one_line(tmp_path, capsys):
    for arguments in (["--corpus", str(tmp_path / "nothing")], ["--width", "9"]):
        assert euler_view.main([*arguments, "--out", str(tmp_path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1

"""The benchmarks run, count and report rightly; no test here looks at a time."""

import dataclasses
import functools
import importlib
import json
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import __main__ as command_line
from benchmarks import compile as compile_table
from benchmarks import (
    euler_gpt2,
    euler_kernels,
    infer,
    kernel_cases,
    kernels,
    memory,
    nanogpt,
    nanogpt_run,
    page,
    peers,
    text,
    text_run,
    timing,
    tokenizer,
    tokenizer_corpus,
    tokenizer_peers,
    train,
    workload,
)
from benchmarks.kernel_cases import Case
from benchmarks.machine import Ceilings, environment, with_ceilings
from benchmarks.peers import BASELINE
from benchmarks.remote import PeerError, Remote
from benchmarks.report import Table, number, spread
from benchmarks.workload import WORKLOADS, Workload
from models.architectures import PRESETS
from models.training.settings import PretrainingSettings

TINY = Workload(layers=2, heads=2, width=16, context=12, vocab_size=40, batch=2, length=8)
CEILINGS = {"threads": 2, "fma": 100.0, "read": 10.0, "triad": 8.0, "bandwidth": 10.0}
# A case of each kind, small.
SIZES = {
    "attention": (2, 3, 5, 4),
    "attention, both ways": (2, 3, 5, 4),
    "gather": (7, 11, 6),
    "scatter-add": (7, 11, 6),
}
KINDS = tuple(kernel_cases._OPERANDS)


def small(kind):
    sizes = SIZES.get(kind, (9, 7, 5) if kind.startswith(("matmul", "linear")) else (9, 7))
    return Case("rows", kind, sizes, 0, 2000)


class Here:
    """A Remote in this process."""

    def __init__(self, name, make, *arguments):
        self.name, self._object = name, make(*arguments)

    def call(self, method, *arguments):
        return getattr(self._object, method)(*arguments)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


@pytest.fixture
def quick(monkeypatch):
    """Ceilings that take no time."""
    rates = {**CEILINGS, "one_thread": CEILINGS}
    monkeypatch.setattr(command_line, "with_ceilings", lambda threads, measure: (measure(), rates))


# -- training step and memory ------------------------------------------------------------------------------------------


def test_a_training_step_against_torch(quick, monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    monkeypatch.setitem(WORKLOADS, "nano", TINY)
    monkeypatch.setattr(train, "GFLOP_A_TURN", 3 * TINY.gflop)
    file = tmp_path / "result.json"
    options = ["train", "--only", "nano", "--peers", "torch", "--threads", "1", "--rounds", "2"]
    assert command_line.main([*options, "--json", str(file)]) == 0
    assert "torch" in capsys.readouterr().out

    written = json.loads(file.read_text())
    assert written["environment"]["threads"] == 1
    assert written["command"] == f"--only nano --peers torch --threads 1 --rounds 2 --json {file}"
    (result,) = written["results"]
    assert result["workload"]["tokens"] == TINY.tokens and result["part"] == "nano"
    euler, torch = result["peers"]["euler_ir"], result["peers"]["torch"]
    assert euler["time_ratio"] == 1
    assert torch["losses"] == pytest.approx(euler["losses"], rel=1e-5) and len(torch["losses"]) == 3
    assert len(set(euler["losses"])) == 3
    for record in (euler, torch):
        step = record["step_ms"]
        assert step["samples"] == 6 and 0 < step["min"] <= step["median"] <= step["max"]
        assert min(record[key] for key in ("build_seconds", "first_step_seconds")) > 0
        assert record["peak_mib"] > 10


def test_the_training_table_by_hand():
    def peer(ms, ratio):
        step = {"median": ms, "min": ms / 2, "max": 2 * ms, "samples": 6}
        more = {"build_seconds": 1.25, "first_step_seconds": 0.5, "losses": [6.0, 5.0, 4.56789], "peak_mib": 1234.5}
        return {"step_ms": step, "time_ratio": ratio, **more}

    sizes = {**dataclasses.asdict(TINY), "tokens": 16, "gflop": 20.0, "causal_gflop": 10.0}
    result = {"part": "tiny", "workload": sizes, "peers": {"euler_ir": peer(200.0, 1.0), "jax": peer(400.0, 2.0)}}
    (table,) = train.tables([result], CEILINGS)
    mine, theirs = table.rows
    # 10 GFLOP in 0.2 s are half of the ceiling of 100 GFLOP/s.
    assert mine == ("euler_ir", "200 [100, 400]", "1.00", "80", "100", "50", "50 %", "1230", "1.2", "0.5")
    assert theirs[1:7] == ("400 [200, 800]", "2.00", "40", "50", "25", "25 %")
    assert "4.5679" in table.note


def test_memory_is_planned_and_taken(quick, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(WORKLOADS, "nano", TINY)
    file = tmp_path / "memory.json"
    assert command_line.main(["memory", "--only", "nano", "--peers", "none", "--json", str(file)]) == 0
    (result,) = json.loads(file.read_text())["results"]
    mine = result["peers"]["euler_ir"]
    parameters = TINY.parameters + TINY.context * TINY.width
    # Parameters and both moments, and what else a step needs.
    assert mine["planned"]["total"] > 3 * 4 * parameters + mine["planned"]["arena"]
    assert mine["planned"]["arena"] >= mine["planned"]["least_arena"] > 0
    assert 0 < mine["begun_mib"] < mine["peak_mib"]
    arena = mine["planned"]["arena"] / mine["planned"]["least_arena"]
    assert f"{arena:.3f}" in capsys.readouterr().out


def test_the_memory_tables_by_hand():
    mib = 2**20
    planned = {"total": 405 * mib, "arena": 105 * mib, "least_arena": 100 * mib}
    peers_ = {
        "euler_ir": {"planned": planned, "peak_mib": 500.0, "begun_mib": 20.0},
        "torch": {"planned": None, "peak_mib": 1000.0, "begun_mib": 20.0},
    }
    first, second = memory.tables([{"part": "tiny", "peers": peers_}], CEILINGS)
    assert first.rows == (("tiny", "105", "100", "1.050", "405", "500", "95"),)
    assert second.rows == (("tiny", "500", "1000", "0.50"),)


def test_other_losses_are_refused():
    train.check_losses("torch", [6.0, 5.0], [6.00001, 5.0])
    for losses in ([6.0, 5.001], [6.0, float("nan")]):
        with pytest.raises(PeerError, match="loss of step 2"):
            train.check_losses("torch", losses, [6.0, 5.0])


def test_a_peer_that_dies_is_named():
    impossible = dataclasses.replace(TINY, heads=3)
    with pytest.raises(PeerError, match="euler_ir died with exit code 1"), train.training(impossible, (), 1):
        pass


def test_operations_and_parameters_of_a_step():
    # From the table of sizes in GPT-2's paper and its code: 124,439,808 parameters with the positions.
    assert WORKLOADS["124M-T256"].parameters + 1024 * 768 == 124_439_808
    assert WORKLOADS["nano"].parameters + 128 * 128 == 875_264
    counts = {name: round(workload.gflop, 1) for name, workload in WORKLOADS.items()}
    assert counts == {"nano": 12.2, "small": 164.7, "124M-T256": 197.2, "124M-T1024": 875.7}
    # Half of the pairs of tokens: 6 layers width T a token less.
    workload = WORKLOADS["small"]
    assert workload.gflop - workload.causal_gflop == pytest.approx(2048 * 6 * 6 * 384 * 256 / 1e9)


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["torch", "jax", "numpy"])
def test_peers_compute_what_euler_ir_computes(peer, monkeypatch):
    module = pytest.importorskip(peers.PEERS[peer].module) and importlib.import_module(f"benchmarks.{peer}_kernels")
    monkeypatch.setattr(kernel_cases, "TABLE", (11, 6))
    monkeypatch.setattr("os.sched_setaffinity", lambda *cores: None)
    met = 0
    for case in map(small, KINDS):
        prepared = module.prepare(case, 1)
        if prepared is None:
            continue
        met += 1
        found, expected = (_after_one_call(*each) for each in (prepared, euler_kernels.prepare(case, 1)))
        kernels.check_results(peer, case, found, expected)
    assert met == {"torch": len(KINDS), "jax": len(KINDS), "numpy": 3}[peer]


def test_two_graphs_compute_what_one_does():
    case = small("linear+gelu")
    both = euler_kernels.prepare, euler_kernels.prepare_in_two
    once, twice = (_after_one_call(*prepare(case, 1)) for prepare in both)
    kernels.check_results(kernels.IN_TWO, case, twice, once)
    assert euler_kernels.prepare_in_two(small("gelu"), 1) is None


def _after_one_call(run, results):
    run()
    return [kernels.some_elements(array) for array in results()]


def test_other_results_are_refused():
    case = small("gelu")
    right = [kernels.some_elements(np.arange(100.0))]
    kernels.check_results("torch", case, right, right)
    for wrong in (np.arange(100.0) + 0.1, np.full(100, np.nan), np.arange(50.0)):
        with pytest.raises(PeerError, match="result 0 of gelu 9 x 7 is not euler_ir's"):
            kernels.check_results("torch", case, [kernels.some_elements(wrong)], right)


def test_every_part_has_cases_and_every_kind_is_timed():
    cases = [case for part in kernel_cases.PARTS for case in kernel_cases.cases(part)]
    assert {case.kind for case in cases} == set(KINDS)
    assert len({case.name for case in cases}) == len(cases)
    by_name = {case.name: case for case in cases}
    head = by_name["matmul NN 256 x 768 x 50257"]
    assert head.flops == 2 * 256 * 768 * 50257
    assert head.nbytes == 4 * (256 * 768 + 768 * 50257 + 256 * 50257)
    # Both gradients of a product take what it takes.
    gradients = [by_name[name] for name in ("matmul NT 256 x 50257 x 768", "matmul TN 768 x 256 x 50257")]
    assert [gradient.flops for gradient in gradients] == [head.flops] * 2
    assert by_name["adamw 8192 x 4096"].nbytes == 28 * 8192 * 4096
    assert by_name["layer norm 2048 x 768"].nbytes == 2 * 4 * 2048 * 768
    attention = by_name["attention 1 x 12 x 1024 x 64"]
    assert attention.flops == 2 * 2 * 12 * 64 * (1024 * 1025 // 2)
    assert by_name["attention, both ways 1 x 12 x 1024 x 64"].flops == 7 * attention.flops // 2


def test_kernels_run_and_report(quick, monkeypatch, tmp_path, capsys):
    # The processes import the module anew, so only what is handed to them may differ.
    monkeypatch.setattr(kernel_cases, "cases", lambda part: [small("softmax"), small("gelu")])
    file = tmp_path / "kernels.json"
    options = ["kernels", "--only", "rows", "--peers", "numpy", "--rounds", "2", "--threads", "1", "--json", str(file)]
    assert command_line.main(options) == 0
    results = json.loads(file.read_text())["results"]
    assert [result["case"]["name"] for result in results] == ["softmax 9 x 7", "gelu 9 x 7"]
    assert all(set(result["peers"]) == {"euler_ir"} for result in results)  # numpy has products only
    assert "gelu 9 x 7" in capsys.readouterr().out


def test_the_kernel_table_by_hand():
    def one(ms, ratio):
        return {"ms": {"median": ms, "min": ms, "max": ms, "samples": 1}, "time_ratio": ratio}

    case = {"name": "matmul", "flops": 50 * 10**6, "nbytes": 5 * 10**6}
    three = {"euler_ir": one(1.0, 1.0), "torch": one(2.0, 2.0), "numpy": one(1.5, 1.5)}
    split = {"euler_ir": one(1.0, 1.0), kernels.IN_TWO: one(1.2, 1.2), "torch": one(2.0, 2.0)}
    results = [
        {"part": "gemm", "case": case, "peers": three},
        {"part": "gemm", "case": case, "peers": {"euler_ir": one(2.0, 1.0), "torch": one(1.0, 0.5)}},
        {"part": "epilogue", "case": case, "peers": split},
        {"part": "rows", "case": {**case, "flops": 0}, "peers": {"euler_ir": one(1.0, 1.0)}},
    ]
    products, epilogues, rows = kernels.tables(results, CEILINGS)
    assert products.columns[:4] == ("kernel", "euler_ir ms", "GFLOP/s", "of ceiling")
    assert products.rows[0] == (
        *("matmul", "1 [1, 1]", "50", "50 %"),
        *("2 [2, 2]", "2.00", "1.5 [1.5, 1.5]", "1.50", "1.50"),
    )
    assert products.rows[1][-3:] == ("", "", "0.50")
    assert epilogues.rows[0][4:] == ("1.2 [1.2, 1.2]", "1.20", "2 [2, 2]", "2.00", "2.00")
    assert rows.columns[2] == "GB/s" and rows.rows == (("matmul", "1 [1, 1]", "5", "50 %", ""),)


# -- decoding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["torch", "jax"])
def test_peers_decode_as_euler_ir_does(peer, monkeypatch, tmp_path):
    pytest.importorskip(peers.PEERS[peer].module)
    monkeypatch.setattr("os.sched_setaffinity", lambda *cores: None)
    weights, logits = tmp_path / "weights.npz", {}
    tokens = np.array([3, 1, 4, 1, 5, 9, 2], np.int32)
    for name in (BASELINE, peer):
        module, decoder, _ = infer._DECODERS[name]
        decoder = getattr(importlib.import_module(module), decoder)(TINY, weights, 1, TINY.context)
        logits[name] = [decoder.begin(tokens[:5]), *map(decoder.next, tokens[5:].tolist())]
        # The cache holds what a longer prompt would have put there.
        assert np.allclose(decoder.begin(tokens), logits[name][-1], rtol=0, atol=1e-6)
    for mine, theirs in zip(logits[BASELINE], logits[peer], strict=True):
        assert mine.shape == (TINY.vocab_size,) and np.allclose(mine, theirs, rtol=0, atol=1e-5)
    infer.check_logits(peer, *([kernels.some_elements(each) for each in logits[name]] for name in (peer, BASELINE)))


def test_other_logits_are_refused():
    right = [kernels.some_elements(np.arange(100.0))] * 2
    wrong = [right[0], kernels.some_elements(np.arange(100.0) + 1)]
    with pytest.raises(PeerError, match="logits 1 after the prompt"):
        infer.check_logits("torch", wrong, right)


def test_the_decoding_table_by_hand():
    times = {"median": 20.0, "min": 10.0, "max": 40.0, "samples": 6}
    one = {"token_ms": times, "time_ratio": 1.0, "prompt_ms": times, "weight_bytes": 50_000_000}
    (table,) = infer.tables([{"part": "tiny", "peers": {"euler_ir": one}}], CEILINGS)
    # 50 MB in 20 ms are a quarter of 10 GB/s.
    assert table.rows == (("euler_ir", "50", "20 [10, 40]", "1.00", "2.5", "25 %", "20 [10, 40]"),)


def test_the_table_of_texts_by_hand():
    times = {"median": 20.0, "min": 10.0, "max": 40.0, "samples": 6}
    one = {"weight_bytes": 50_000_000, "step_ms": {"1": times, "4": times}}
    (table,) = infer.tables([{"part": "texts", "peers": {"euler_ir": one}}], CEILINGS)
    # A step of 20 ms is 50 a second, each of which reads 50 MB.
    assert table.rows[0] == ("euler_ir", "1", "20 [10, 40]", "50", "2.5", "25 %")
    assert table.rows[1] == ("euler_ir", "4", "20 [10, 40]", "200", "2.5", "25 %")


def test_texts_are_timed(quick, tmp_path, monkeypatch):
    monkeypatch.setitem(infer._SIZES, infer._TEXTS_OF, dataclasses.replace(TINY, vocab_size=300, context=256))
    monkeypatch.setattr(infer, "Remote", Here)
    monkeypatch.setattr("os.sched_setaffinity", lambda *cores: None)
    monkeypatch.setattr(infer, "BATCHES", (1, 2))
    monkeypatch.setattr(infer, "TOKENS", 3)
    file = tmp_path / "infer.json"
    options = ["infer", "--only", "texts", "--peers", "none", "--rounds", "1", "--json", str(file)]
    assert command_line.main(options) == 0
    (result,) = json.loads(file.read_text())["results"]
    assert result["peers"].keys() == set(infer.OWN)
    assert all(one["step_ms"].keys() == {"1", "2"} for one in result["peers"].values())


# -- compilation -------------------------------------------------------------------------------------------------------


def test_seconds_to_the_first_step_and_of_a_chain(quick, tmp_path, capsys):
    file = tmp_path / "compile.json"
    options = ["compile", "--only", "nano,chain", "--peers", "none", "--rounds", "1", "--json", str(file)]
    assert command_line.main(options) == 0
    for result in json.loads(file.read_text())["results"]:
        mine = result["peers"]["euler_ir"]
        assert set(mine) == {"cold", "cached"} and min(state["median"] for state in mine.values()) > 0


def test_a_process_that_fails_is_named():
    with pytest.raises(PeerError, match="euler_ir died with exit code"):
        compile_table._seconds(BASELINE, "no such part", 1, "")


# -- text --------------------------------------------------------------------------------------------------------------


def test_the_time_that_text_takes(quick, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(text, "_run", lambda peer, part: text_run.euler_ir("chain"))
    monkeypatch.setattr(text_run, "OPERATORS", 30)
    file = tmp_path / "result.json"
    assert command_line.main(["text", "--only", "chain", "--peers", "none", "--rounds", "2", "--json", str(file)]) == 0
    assert "operators in a chain" in capsys.readouterr().out
    (result,) = json.loads(file.read_text())["results"]
    assert result["part"] == "chain" and list(result["peers"]) == ["euler_ir"]
    assert result["peers"]["euler_ir"]["operators"] == 30
    assert all(result["peers"]["euler_ir"][step]["samples"] == 2 for step in ("read", "verify", "print"))


def test_only_the_chain_is_there_in_the_words_of_xdsl(monkeypatch):
    run = {"operators": 9, "read": 1.0, "verify": 2.0, "print": 3.0}
    monkeypatch.setattr(text, "_run", lambda peer, part: {**run, "read": 8.0 if peer == "xdsl" else 1.0})
    chain, gpt2 = text.tables(text.measure(("chain", "gpt2"), ("xdsl",), 1, 2), CEILINGS)
    assert chain.rows[1] == ("xdsl", "9", "8 [8, 8]", "2 [2, 2]", "3 [3, 3]")
    assert [row[0] for row in gpt2.rows] == ["euler_ir"]


# -- nanoGPT's setting -------------------------------------------------------------------------------------------------


@pytest.fixture
def two_steps(monkeypatch):
    """Runs of two steps on little text, in this process."""

    def run(peer, *rest):
        return nanogpt_run.run(peer, *rest) | {"seconds": 2.0, "first_step_seconds": 1.0, "processor_seconds": 3.0}

    monkeypatch.setattr(nanogpt, "_run", run)
    for name, value in {"BATCH": 2, "CONTEXT": 8, "STEPS": 2, "WARMUP": 1, "EVALUATE_EVERY": 2}.items():
        monkeypatch.setattr(nanogpt_run, name, value)
    monkeypatch.setattr(nanogpt_run, "EVALUATION_BATCHES", 1)
    monkeypatch.setattr(nanogpt, "CORPUS", peers.__file__)
    tiny = functools.partial(dataclasses.replace, TINY, context=8, length=8, biases=False, gelu="none")
    monkeypatch.setattr(nanogpt_run, "workload", lambda vocab_size: tiny(vocab_size=vocab_size))


def test_nanogpts_setting_against_torch(quick, two_steps, tmp_path, capsys):
    pytest.importorskip("torch")
    file = tmp_path / "result.json"
    options = ["nanogpt", "--only", "nanogpt-rate", "--peers", "torch", "--rounds", "2", "--threads", "1"]
    assert command_line.main([*options, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "nanogpt-rate: 32 characters in 2 steps, at a rate of up to 0.001" in printed
    assert "validation loss, 20 batches" in printed
    (result,) = json.loads(file.read_text())["results"]
    assert result["tokens"] == 2 * 2 * 8
    euler, torch = (result["peers"][name] for name in ("euler_ir", "torch"))
    # Two steps from the same weights on the same batches: what is reached is the same too.
    for key in ("estimate", "validation"):
        assert torch[key]["median"] == pytest.approx(euler[key]["median"], rel=1e-4)
    for one in (euler, torch):
        first, second = one["estimates"]
        assert [each["step"] for each in first] == [0, 2] and first != second


def test_the_rate_of_nanogpts_setting():
    expected = {0: 1e-3 / 101, 99: 1e-3 * 100 / 101, 100: 1e-3, 1050: 5.5e-4}
    assert {step: nanogpt_run.learning_rate(step, 1e-3) for step in expected} == pytest.approx(expected)
    assert 1e-4 < nanogpt_run.learning_rate(1999, 1e-3) < 1.00001e-4
    assert nanogpt_run.workload(65).parameters == pytest.approx(0.80e6, rel=0.01)


def test_the_preset_of_nanogpts_setting_is_what_is_measured():
    settings = PretrainingSettings.for_preset("text", "nanogpt-cpu")
    assert euler_gpt2.config_of(nanogpt_run.workload(65)) == PRESETS["nanogpt-cpu"]
    assert (settings.batch_size, settings.context, settings.steps) == (12, 64, 2000)
    assert (settings.betas, settings.weight_decay) == (nanogpt_run.BETAS, workload.WEIGHT_DECAY)
    assert settings.validate_every == nanogpt_run.EVALUATE_EVERY and settings.dropout == 0
    for step in (0, 99, 100, 1999):
        assert settings.learning_rate_of(step) == pytest.approx(nanogpt_run.learning_rate(step, 1e-3))
    assert nanogpt_run.PEAK_RATES["nanogpt-rate"] == 1e-3


def test_a_run_of_another_model_is_refused(monkeypatch, two_steps):
    runs = {"euler_ir": [4.0, 3.9], "torch": [4.0, 3.8]}
    monkeypatch.setattr(nanogpt, "_run", lambda peer, *rest: {"losses": runs[peer]})
    with pytest.raises(PeerError, match="torch computes something else: its loss of step 2"):
        nanogpt.measure(("nanogpt-rate",), ("torch",), 1, 1)


def test_a_run_that_fails_is_named():
    with pytest.raises(PeerError, match="torch died with exit code"):
        nanogpt._run("torch", "no such file", "", "nanogpt-rate", 0, 1)


# -- tokenizers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def little_text(monkeypatch, tmp_path):
    """A file with a beginning of the plays, of which 600 ids are learned."""
    for variable in ("RAYON_NUM_THREADS", "EULER_IR_THREADS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(tokenizer, "Remote", Here)
    monkeypatch.setattr(tokenizer_peers, "VOCABULARY", 600)
    monkeypatch.setattr(tokenizer_peers, "DOCUMENT", 1000)
    path = tmp_path / "plays.txt"
    path.write_bytes(tokenizer_corpus.SHAKESPEARE.read_bytes()[:20_000])
    return path


def test_tokenizers_learn_and_encode_alike(quick, little_text, tmp_path, capsys):
    for peer in tokenizer.PEERS:
        pytest.importorskip(peer)
    file = tmp_path / "result.json"
    options = ["--corpus", str(little_text), "--megabytes", "1", "--rounds", "1", "--json", str(file)]
    assert command_line.main(["tokenizer", *options]) == 0
    assert "plays.txt, 50 times over" in capsys.readouterr().out
    train_, encode, files = json.loads(file.read_text())["results"]
    assert list(train_["peers"]) == ["euler_ir", "tokenizers", "rustbpe"] and train_["bytes"] == 1_000_000
    assert list(encode["peers"]) == ["euler_ir", "tiktoken", "tokenizers"] and encode["bytes"] == 100_000
    assert list(files["peers"]) == ["one thread", "all threads"]
    assert train_["peers"]["rustbpe"]["peak_mib"] >= train_["peers"]["rustbpe"]["idle_mib"] > 0


@pytest.mark.parametrize(("method", "part"), [("learned", "train"), ("digest", "encode")])
def test_other_merges_or_ids_are_refused(monkeypatch, little_text, method, part):
    pytest.importorskip("tokenizers")
    monkeypatch.setattr(tokenizer_peers.TokenizerPeer, method, lambda self, *like: id(self))
    with pytest.raises(PeerError, match="tokenizers computes something else"):
        tokenizer.measure((part,), ("tokenizers",), 1, 1, little_text, 1)


def test_documents_are_cut_where_no_piece_is(little_text):
    text = little_text.read_text()
    documents = tokenizer_peers.documents_of(text)
    assert "".join(documents) == text and len(documents) > 10
    assert all(document[0] in " \n" and not before[-1].isspace() for before, document in pairwise(documents))


def test_the_corpus_is_of_the_size_asked_for(monkeypatch, tmp_path):
    text, words = tokenizer_corpus.corpus_of(None, 1_200_000)
    assert len(text) == 1_200_000 and "Shakespeare" in words and "times over" not in words
    file = tmp_path / "odd.txt"
    file.write_text("é你")
    # A character that is cut goes.
    assert tokenizer_corpus.corpus_of(file, 6) == ("é你".encode(), "odd.txt, 2 times over")
    file.write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="odd.txt is empty"):
        tokenizer_corpus.corpus_of(file, 6)


def test_the_tables_of_tokenizers_by_hand():
    def times(ms):
        return {"ms": {"median": ms, "min": ms, "max": ms, "samples": 1}, "time_ratio": ms / 1000}

    one = times(2000) | {"peak_mib": 100, "idle_mib": 50, "again": times(500)}
    results = [{"part": part, "corpus": "x", "bytes": 10_000_000, "peers": {"a": one}} for part in tokenizer.PARTS]
    train_, encode, files = tokenizer.tables(results, CEILINGS)
    # 10 MB in 2 s are 5 MB/s.
    assert train_.rows == (("a", "2 [2, 2]", "2.00", "5", "100", "50"),)
    assert encode.rows == (("a", "2000 [2000, 2000]", "2.00", "5", "20", "0.50"),)
    assert files.rows == (("a", "2000 [2000, 2000]", "5"),)


# -- peers, numbers, tables, page --------------------------------------------------------------------------------------


def test_an_absent_peer_is_left_out_by_name(quick, monkeypatch, capsys):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    measured = []
    monkeypatch.setattr(train, "measure", lambda parts, peers_, *rest: measured.append((parts, peers_)) or [])
    assert command_line.main(["train", "--only", "nano", "--peers", "jax,torch"]) == 0
    assert measured == [(("nano",), ())]
    error = capsys.readouterr().err
    assert "jax is left out" in error and "pip install 'jax[cpu]'" in error and "pip install torch" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "invalid choice: 'trian'"),
        ([], "required: TABLE"),
        (["train", "--peers", "tensorflow"], "there is no peer 'tensorflow': choose of torch, torch-compile, jax"),
        (["train", "--peers", "numpy"], "there is no peer 'numpy'"),
        (["kernels", "--only", "gemv"], "there is no part 'gemv': choose of gemm"),
        (["kernels", "--rounds", "0"], "must be at least 1"),
    ],
)
def test_refusals(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        command_line.main(arguments)
    assert stop.value.code == 2 and message in capsys.readouterr().err


class Counter:
    """For a process of its own."""

    def __init__(self, start):
        self.count = start

    def add(self, number_):
        self.count += number_
        return self.count


def test_a_remote_object_keeps_what_it_is():
    with Remote("counter", Counter, 5) as remote:
        assert [remote.call("add", 1), remote.call("add", 2)] == [6, 8]
        with pytest.raises(PeerError, match="counter died"):
            remote.call("subtract", 1)


def test_ratios_are_taken_by_round():
    slow_round = [100.0, 100.0]
    mine, theirs = [[2.0, 2.0], slow_round, [2.0, 4.0]], [[1.0, 1.0], [50.0, 50.0], [1.0, 1.0]]
    assert timing.ratio(mine, theirs) == 2.0
    assert timing.summary(mine) == {"median": 3.0, "min": 2.0, "max": 100.0, "samples": 6}


def test_numbers_are_short():
    shown = {0: "0", 0.012345: "0.0123", 1.5: "1.5", 99.96: "100", 123.4: "123", 12345.0: "12300"}
    assert [number(value) for value in shown] == list(shown.values())
    assert spread({"median": 2.0, "min": 1.234567, "max": 30.0}) == "2 [1.23, 30]"
    assert command_line._short({"a": [1.23456789, 3, "x"]}) == {"a": [1.23457, 3, "x"]}


def test_ceilings_are_measured_before_and_after():
    measured, rates = with_ceilings(2, lambda: "measured")
    assert measured == "measured" and (rates["threads"], rates["one_thread"]["threads"]) == (2, 1)
    for each in (rates, rates["one_thread"]):
        assert each["bandwidth"] == max(each["read"], each["triad"]) > 0 and each["fma"] > 0


def test_the_best_ceilings_count(monkeypatch):
    from euler_ir.backends.cpu import ceilings

    runs = iter([(5.0, 1.0, 3.0), (1.0, 1.0, 1.0), (4.0, 2.0, 3.0), (2.0, 2.0, 2.0)])
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda threads: ceilings.Ceilings(threads, *next(runs)))
    seen = Ceilings(2)
    seen.measure()
    seen.measure()
    rates = seen.rates()
    assert (rates["fma"], rates["read"], rates["bandwidth"], rates["one_thread"]["fma"]) == (5.0, 2.0, 3.0, 2.0)


def test_the_page_says_all_of_each_run(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    record = {
        "table": "memory",
        "command": "--only nano",
        "environment": json.loads(json.dumps(environment(2))),
        "ceilings": {**CEILINGS, "one_thread": CEILINGS},
        "results": [],
    }
    (tmp_path / "benchmarks" / "memory.json").write_text(json.dumps(record))
    shown = Table("Title", ("name", "ms"), (("a", "1"), ("b", "2")), "A note.")
    written = page.write({"memory": lambda results, ceilings: [shown], "train": None}, tmp_path).read_text()
    assert "## memory" in written and "python -m benchmarks memory --only nano" in written
    assert "### Title\n\n| name | ms |\n|---|---|\n| a | 1 |\n| b | 2 |\n\nA note." in written
    assert record["environment"]["date"] in written and "multiply-adds 100 GFLOP/s" in written
    with pytest.raises(page.PageError, match="no results"):
        page.write({"train": None}, tmp_path)

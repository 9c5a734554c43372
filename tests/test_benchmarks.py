"""The benchmark runs and reports; no test here looks at a time."""

import dataclasses
import json

import pytest

from benchmarks import __main__ as command_line
from benchmarks import train_step
from benchmarks.train_step import Measurement, PeerError, check_losses, measure
from benchmarks.workload import WORKLOADS, Workload

TINY = Workload(layers=2, heads=2, width=16, vocab_size=40, batch=2, length=8)


def test_a_training_step_against_torch(monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    monkeypatch.setitem(WORKLOADS, "nano", TINY)
    file = tmp_path / "result.json"
    options = ["train", "--presets", "nano", "--peers", "torch", "--threads", "1", "--rounds", "2", "--steps", "3"]
    assert command_line.main([*options, "--json", str(file)]) == 0
    assert "torch" in capsys.readouterr().out

    written = json.loads(file.read_text())
    assert written["environment"]["threads"] == 1
    (result,) = written["results"]
    assert Workload(**result["workload"]) == TINY
    euler, torch = result["peers"]
    assert (euler["peer"], torch["peer"]) == ("euler_ir", "torch")
    assert euler["ratio_to_euler_ir"] == 1
    assert torch["losses"] == pytest.approx(euler["losses"], rel=1e-5) and len(torch["losses"]) == 3
    assert len(set(euler["losses"])) == 3
    for record in (euler, torch):
        step = record["step_ms"]
        assert [len(of_round) for of_round in step["rounds"]] == [3, 3]
        assert 0 < step["min"] <= step["median"] <= step["max"]
        assert record["tokens_per_second"] == pytest.approx(TINY.tokens / step["median"] * 1e3)
        assert min(record[key] for key in ("gflop_per_second", "build_seconds", "first_step_seconds")) > 0
        assert record["peak_rss_mb"] > 10


def test_other_losses_are_refused():
    check_losses("torch", [6.0, 5.0], [6.00001, 5.0])
    for losses in ([6.0, 5.001], [6.0, float("nan")]):
        with pytest.raises(PeerError, match="loss of step 2"):
            check_losses("torch", losses, [6.0, 5.0])


def test_a_missing_peer_is_named(monkeypatch, capsys):
    monkeypatch.setattr(train_step.importlib.util, "find_spec", lambda name: None)
    assert command_line.main(["train", "--peers", "torch"]) == 1
    assert "pip install torch" in capsys.readouterr().err


def test_a_peer_that_dies_is_named():
    impossible = dataclasses.replace(TINY, heads=3)
    with pytest.raises(PeerError, match="euler_ir died with exit code 1"):
        measure(impossible)


def test_operations_of_a_step():
    counts = {name: round(workload.gflop, 2) for name, workload in WORKLOADS.items()}
    assert counts == {"nano": 12.16, "small": 164.66}


def test_ratios_are_taken_by_round():
    slow_round = [100.0, 100.0]
    mine = Measurement("torch", [[2.0, 2.0], slow_round, [2.0, 4.0]], 1.0, 1.0, [], 1.0)
    theirs = Measurement("euler_ir", [[1.0, 1.0], [50.0, 50.0], [1.0, 1.0]], 1.0, 1.0, [], 1.0)
    assert mine.ratio_to(theirs) == 2.0
    assert (mine.median_ms, mine.fastest_ms, mine.slowest_ms) == (3.0, 2.0, 100.0)

"""Logs of training runs: as they are written, and as other programs read them."""

import csv
import runpy
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from test_examples import run
from training_runs import ROOT

from models.training.evaluation import Score
from models.training.export import write_csv, write_tensorboard
from models.training.metrics import MetricsFile

RECORDS = [
    {"step": 1, "loss": 6.25, "learning_rate": 1e-3, "seconds": 0.5},
    {"step": 2, "loss": None, "learning_rate": 2e-3, "seconds": 0.25, "skipped": True},
    {"step": 3, "loss": 5.0, "learning_rate": 2e-3, "seconds": 0.25, "validation_loss": 5.5, "bits_per_byte/größe": 3.1},
]


def write_log(folder, records=RECORDS):
    folder.mkdir()
    with MetricsFile(folder / "metrics.jsonl") as log:
        for record in records:
            log.append(record)
    return folder


# --- Scores ---


def test_perplexity_is_that_of_all_tokens_not_a_mean_of_means():
    total = Score(2.0 * 1000, 1000, 4000) + Score(5.0 * 10, 10, 40)
    assert total.perplexity == pytest.approx(7.612, abs=5e-4)
    assert total.bits_per_byte == pytest.approx(2050 / np.log(2) / 4040)
    assert Score(1e9, 1, 1).perplexity < np.inf


def test_mixed_scores_are_those_of_a_text_with_the_shares():
    first, second = Score(300.0, 100, 250), Score(40.0, 10, 55)
    text = first.per_token(0.75) + second.per_token(0.25)
    assert text.loss == pytest.approx(0.75 * 3.0 + 0.25 * 4.0)
    assert text.bits_per_byte == pytest.approx(text.loss / np.log(2) / (0.75 * 2.5 + 0.25 * 5.5))


# --- Tables, TensorBoard, pictures ---


def test_a_table_has_a_row_for_each_step(tmp_path):
    write_csv(RECORDS, tmp_path / "log.csv")
    with open(tmp_path / "log.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["loss"] for row in rows] == ["6.25", "", "5.0"]
    assert [row["bits_per_byte/größe"] for row in rows] == ["", "", "3.1"]
    assert list(rows[0]) == ["step", *list(RECORDS[0])[1:], "skipped", "validation_loss", "bits_per_byte/größe"]


def test_tensorboard_reads_what_is_written_for_it(tmp_path):
    write_tensorboard(RECORDS, tmp_path / "events")
    (path,) = (tmp_path / "events").iterdir()
    found = {}
    for data in RawEventFileLoader(str(path)).Load():  # checks the masked CRC-32C of each record
        event = Event.FromString(data)
        for value in event.summary.value:
            found.setdefault(value.tag, {})[event.step] = value.simple_value
    assert found["loss"] == {1: 6.25, 3: 5.0}
    assert found["learning_rate"] == {1: np.float32(1e-3), 2: np.float32(2e-3), 3: np.float32(2e-3)}
    assert found["validation_loss"] == {3: 5.5} and found["skipped"] == {2: 1.0}
    assert len(found) == 6 and "step" not in found


def test_the_example_exports_and_compares_runs(tmp_path):
    first, second = write_log(tmp_path / "first"), write_log(tmp_path / "second", RECORDS[:1])
    outputs = ["--csv", tmp_path / "both.csv", "--tensorboard", tmp_path / "events", "--plot", tmp_path / "both.png"]
    finished = run("export_metrics.py", first, second, *outputs)
    assert finished.returncode == 0 and finished.stdout == finished.stderr == ""
    assert (tmp_path / "both.csv").read_text().splitlines()[-1].startswith("second,1,6.25,0.001,0.5")
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == ["first", "second"]
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["none", "--csv", "x.csv"], "none holds no training run"),
        (["empty", "--csv", "x.csv"], "holds no finished step yet"),
        (["full"], "say what to write"),
        (["full", "--csv", "missing/x.csv"], "does not exist"),
    ],
)
def test_what_cannot_be_exported_is_said(tmp_path, monkeypatch, capsys, flags, message):
    write_log(tmp_path / "full")
    write_log(tmp_path / "empty", [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["export_metrics.py", *flags])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / "examples" / "export_metrics.py"), run_name="__main__")
    assert stop.value.code == 2 and message in capsys.readouterr().err

"""The benchmarks for GPUs count and report rightly, and run, small, where there is no GPU: no test looks at a time."""

import dataclasses
import json
import sys

import pytest

from benchmarks import __main__ as command_line
from benchmarks import gpu
from benchmarks.attention_cases import CASES, AttentionCase
from benchmarks.devices import PEAK_TFLOPS, in_words, peak_tflops, utilisation
from benchmarks.remote import PeerError
from benchmarks.workload import WORKLOADS


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("Tesla T4", None),
        ("NVIDIA A1000", None),
        ("emulator", None),
    ],
)
def test_peaks_of_devices_by_the_names_that_drivers_give(name, peak):
    assert peak_tflops(name) == peak


def test_a_more_special_name_comes_first():
    parts = [part for part, _ in PEAK_TFLOPS]
    for place, part in enumerate(parts):
        assert not any(f" {other} " in f" {part} " for other in parts[:place]), part


def test_utilisation_by_hand():
    # 98.95 TFLOP in 200 ms are half of 989.5 TFLOP/s.
    assert utilisation(98.95e3, 200.0, "NVIDIA H100") == pytest.approx(0.5)
    assert in_words(utilisation(98.95e3, 200.0, "NVIDIA H100")) == "50.0 %"
    assert in_words(utilisation(98.95e3, 200.0, "a GPU of tomorrow")) == "n/a"


def test_a_step_of_124m_counts_as_palm_does():
    workload = gpu.TRAININGS["124M"]
    assert workload.gflop == pytest.approx(32 * WORKLOADS["124M-T1024"].gflop)
    # 6 N + 12 L H Q T operations a token.
    assert workload.gflop * 1e9 == pytest.approx(32 * 1024 * (6 * workload.parameters + 12 * 12 * 768 * 1024))


def test_operations_of_attention_by_hand():
    assert {case.batch * case.length for case in CASES} == {16384}
    forward = AttentionCase(2, 3, 4, 5, backward=False)
    # Two products of 4 x 4 x 5 multiply-adds for each of 6 heads, of which the mask leaves half.
    assert forward.gflop * 1e9 == pytest.approx(2 * 6 * (2 * 4 * 4 * 5) / 2)
    assert dataclasses.replace(forward, backward=True).gflop == pytest.approx(3.5 * forward.gflop)


def test_tables_by_hand():
    def peer(ms, ratio, mib=None):
        return {"ms": {"median": ms, "min": ms, "max": ms, "samples": 1}, "time_ratio": ratio, "device_mib": mib}

    attention = {
        "part": "attention",
        "device": "NVIDIA H200",
        "case": {"name": "forward 1 x 2", "gflop": 989.5},
        "peers": {"euler_ir": peer(2.0, 1.0), "torch": peer(4.0, 2.0)},
    }
    training = {
        "part": "train",
        "device": "unheard of",
        "case": {"name": "124M", "batch": 2, "length": 8, "tokens": 16, "gflop": 10.0},
        "losses": [6.0, 5.4321],
        "peers": {"euler_ir": peer(8.0, 1.0, 1234.0)},
    }
    of_attention, of_training = gpu.tables([attention, training], {})
    assert of_attention.rows[0] == ("forward 1 x 2, euler_ir", "2 [2, 2]", "1.00", "495", "50.0 %")
    assert of_attention.rows[1][2:] == ("2.00", "247", "25.0 %")
    assert of_training.rows == (("euler_ir", "8 [8, 8]", "1.00", "2000", "n/a", "1234"),)
    assert "unheard of: 2 x 8 tokens" in of_training.title and "5.4321" in of_training.note


def test_what_is_computed_otherwise_is_refused():
    gpu.check_losses("torch", [6.0], [6.05])
    with pytest.raises(PeerError, match="its loss of step 1 is 6.0, not 6.1"):
        gpu.check_losses("torch", [6.0], [6.1])
    right = [gpu._some(AttentionCase(1, 2, 20, 16, False).arrays()["query"][0, 0])]
    gpu.check_results("torch", right, right)
    with pytest.raises(PeerError, match="result 0 of attention is not euler_ir's"):
        gpu.check_results("torch", [(right[0][0] + 0.2, 1.0)], right)


def test_who_cannot_use_the_device_is_told_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(command_line, "with_ceilings", lambda threads, measure: (measure(), {}))
    monkeypatch.setattr(gpu, "Remote", Here)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert command_line.main(["gpu", "--device", "cuda:7", "--peers", "none"]) == 1
    assert capsys.readouterr().err.startswith("there is no CuPy, which reaches the GPU\n  hint: pip install cupy")
    torch_cuda = pytest.importorskip("benchmarks.torch_cuda", exc_type=ImportError)
    monkeypatch.setattr(torch_cuda.torch.cuda, "is_available", lambda: False)
    command = ["gpu", "--device", "cuda-emulator", "--peers", "torch"]
    monkeypatch.setattr(torch_cuda, "torch_device", lambda device: "cuda")
    assert command_line.main(command) == 1
    assert "can use no GPU here" in capsys.readouterr().err


@pytest.mark.slow
def test_both_parts_run_in_the_emulator_beside_torch(monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(command_line, "with_ceilings", lambda threads, measure: (measure(), {}))
    cases = tuple(AttentionCase(1, 2, 20, 16, backward) for backward in (False, True))
    monkeypatch.setattr(gpu, "CASES", cases)
    tiny = dataclasses.replace(WORKLOADS["nano"], layers=1, heads=2, width=32, vocab_size=40, batch=1, length=8)
    monkeypatch.setattr(gpu, "TRAININGS", {"tiny": tiny})
    monkeypatch.setattr(gpu, "Remote", Here)
    for setting in ("CALLS", "WARM_UP", "STEPS"):
        monkeypatch.setattr(gpu, setting, 1)
    file = tmp_path / "gpu.json"
    options = ["--device", "cuda-emulator", "--peers", "torch", "--rounds", "1", "--batch", "2", "--json", str(file)]
    assert command_line.main(["gpu", *options]) == 0
    results = json.loads(file.read_text())["results"]
    assert results[2]["case"]["batch"] == 2
    assert [result["part"] for result in results] == ["attention", "attention", "train"]
    assert all(set(result["peers"]) == {"euler_ir", "torch"} for result in results)
    assert len(set(results[2]["losses"])) == 3
    assert "n/a" in capsys.readouterr().out


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

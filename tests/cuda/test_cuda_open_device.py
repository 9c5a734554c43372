"""What people are told who have no GPU, or one that does not fit; and that CuPy has all that we use of it."""

import ast
import re
import sys
import types
from pathlib import Path

import pytest

import euler_ir as ei
from euler_ir.backends.cuda import nvrtc, open_device, toolkit
from euler_ir.errors import LoweringError

A100 = {"name": b"NVIDIA A100", "major": 8, "minor": 0}


class CudaError(RuntimeError):
    pass


def bindings(driver=12040, runtime=12090, count=2, properties=A100, error=None):
    """What `open_device` asks of CuPy, with these answers."""

    def device_count():
        if error:
            raise CudaError(error)
        return count

    cuda = types.SimpleNamespace(
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: runtime,
        getDeviceCount=device_count,
        getDeviceProperties=lambda number: properties,
        CUDARuntimeError=CudaError,
    )
    return types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=cuda))


@pytest.mark.parametrize(
    ("answers", "number", "parts"),
    [
        ({"driver": 0}, 0, ["there is no NVIDIA driver", "install NVIDIA's driver", "docker run --gpus all"]),
        ({"driver": 11080}, 0, ["knows CUDA 11.8 at most", "needs 12", "update the driver; the backend"]),
        ({"driver": 12040, "runtime": 13000}, 0, ["knows CUDA 12.4", "needs 13", "cupy-cuda12x"]),
        ({"error": "cudaErrorNoDevice"}, 0, ["there is no GPU that CUDA can use", "cudaErrorNoDevice", "nvidia-smi"]),
        ({"count": 2}, 2, ["there is no GPU 2: there are 2, counted from 0"]),
        ({"properties": A100 | {"major": 7, "minor": 5}}, 0, ["GPU 0, NVIDIA A100, has compute capability 7.5", "8.0"]),
    ],
)
def test_who_cannot_use_a_gpu_is_told_why_and_what_to_do(answers, number, parts):
    with pytest.raises(LoweringError) as refusal:
        open_device._expect_gpu(bindings(**answers), number)
    for part in (*parts, 'the backend "cpu" needs no GPU'):
        assert part in str(refusal.value)


def test_a_compiler_newer_than_the_driver_is_refused(monkeypatch):
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    open_device._expect_gpu(bindings(), 1)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    with pytest.raises(LoweringError, match="NVRTC is of CUDA 13.0, and the NVIDIA driver knows 12.4 at most"):
        open_device._expect_gpu(bindings(), 1)


def test_the_older_compiler_is_taken_wherever_it_is(monkeypatch, tmp_path):
    """torch may bring one that is newer than the driver."""
    for package, name in (("of_torch", "libnvrtc.so.13"), ("of_extra", "libnvrtc.so.12")):
        (tmp_path / package / "lib").mkdir(parents=True)
        (tmp_path / package / "lib" / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(toolkit.ctypes, "CDLL", lambda path: path)
    found = toolkit.load_library(nvrtc._NAMES, ("of_torch", "of_extra"), "NVRTC", hint="")
    assert found == str(tmp_path / "of_extra" / "lib" / "libnvrtc.so.12")


def test_cupy_may_be_absent_broken_or_old(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with ei.Graph() as graph:
        ei.output(y=ei.input("x", (2,)) + 1)
    with pytest.raises(LoweringError, match="there is no CuPy(.|\n)*pip install cupy-cuda12x(.|\n)*backend \"cpu\""):
        ei.compile(graph, "cuda")
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for code, message in (
        ("raise ImportError('libcudart.so.12 is damaged')", "does not load(.|\n)*libcudart.so.12 is damaged"),
        ("import what_cupy_needs", "lacks the package what_cupy_needs"),
        ("__version__ = '12.9.1'", "CuPy 12.9.1 is too old: 13"),
    ):
        (tmp_path / "cupy.py").write_text(code)
        sys.modules.pop("cupy", None)
        with pytest.raises(LoweringError, match=message):
            open_device._cupy()
    sys.modules.pop("cupy", None)


def test_a_device_is_opened_once():
    device = open_device.open_device("cuda-emulator")
    assert device is open_device.open_device("cuda-emulator") and device.architecture == "sm_90"
    with pytest.raises(ValueError, match="unknown backend 'cuda:x'"):
        ei.compile(ei.Graph(), "cuda:x")


def test_a_gpu_newer_than_the_compiler_gets_code_that_its_driver_compiles():
    assert nvrtc.target_for(9, 0) == "sm_90"
    newest = nvrtc.target_for(99, 0)
    assert re.fullmatch(r"compute_\d+", newest)
    compiled = nvrtc.compile_cuda('extern "C" __global__ void f() {}', newest)
    assert not compiled.cubin and ".entry f" in compiled.ptx
    with pytest.raises(LoweringError, match="knows no GPU as old as sm_30"):
        nvrtc.target_for(3, 0)


# -- CuPy's names: nothing else of `cupy_device` can be checked without a GPU ------------------------------------------

SOURCE = Path(open_device.__file__).with_name("cupy_device.py")


def names_used():
    """Dotted names that `cupy_device` uses of CuPy, and the numbers of arguments that it calls its functions with."""
    tree = ast.parse(SOURCE.read_text())
    prefixes = {"cupy": "cupy", "driver": "cupy.cuda.driver", "cuda": "cupy.cuda.runtime"}

    def dotted(node):
        if isinstance(node, ast.Name):
            return prefixes.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = dotted(node.value)
            return owner and f"{owner}.{node.attr}"
        return None

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            # self._device.do(function, ...) calls what it is given.
            function, arguments = node.func, node.args
            if isinstance(function, ast.Attribute) and function.attr == "do" and arguments:
                function, arguments = arguments[0], arguments[1:]
            name = dotted(function)
            starred = any(isinstance(each, ast.Starred) for each in arguments)
            if name:
                yield name, None if starred else len(arguments)
        elif isinstance(node, ast.Attribute) and dotted(node):
            yield dotted(node), None


def test_cupy_has_what_is_used_of_it():
    used = dict.fromkeys(names_used())
    assert {name for name, _ in used} >= {"cupy.cuda.driver.launchKernel", "cupy.cuda.runtime.memcpyAsync"}
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: its names are checked where it is")
    for name, count in used:
        found = cupy
        for part in name.split(".")[1:]:
            assert hasattr(found, part), f"CuPy {cupy.__version__} has no {name}"
            found = getattr(found, part)
        signature = re.match(rf"{name.split('.')[-1]}\((.*?)\)", found.__doc__ or "")
        if signature and count is not None:
            parameters = [each for each in signature[1].split(",") if each.strip()]
            required = [each for each in parameters if "=" not in each]
            assert len(required) <= count <= len(parameters), f"{name}({signature[1]}) is called with {count}"
    for class_, methods in (
        (cupy.cuda.Stream, ("ptr", "record", "wait_event", "synchronize", "begin_capture", "end_capture")),
        (cupy.cuda.Event, ("done", "synchronize")),
        (cupy.cuda.Graph, ("launch",)),
    ):
        # `ptr` of a stream is an attribute of its objects, which only a GPU's driver makes.
        assert all(hasattr(class_, method) or method == "ptr" for method in methods)

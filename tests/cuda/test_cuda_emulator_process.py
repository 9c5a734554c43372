"""A fault in a kernel is the kernel's: the process, its threads, their signal handlers and children go on."""

import faulthandler
import os
import re
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from launching import launch

from euler_ir import cache
from euler_ir.backends.cuda.emulator import build, memory, toolchain
from euler_ir.errors import ExecutionError, LoweringError

ROOT = Path(__file__).parents[2]

SOURCE = """
extern "C" __global__ void waits(volatile int* flag) { while (*flag == 0) {} }
extern "C" __global__ void adds(int* x, int n) { for (int i = 0; i < n; ++i) atomicAdd(x + threadIdx.x, 1); }
extern "C" __global__ void reads(int* x, long long offset) { x[0] = x[offset]; }
extern "C" __global__ void halves(float* x) { x[threadIdx.x] *= 0.5f; }
extern "C" __global__ void greets() {
    if (threadIdx.x < 2) printf("thread %d of block %d\\n", threadIdx.x, blockIdx.x);
}
"""


def test_other_threads_run_while_a_kernel_does():
    """The kernel waits for what another thread of this process writes."""
    module, flag = build.load(SOURCE), memory.from_array(np.zeros(1, np.int32), "flag")
    thread = threading.Thread(
        target=module.launch, args=("waits", 1, 1, 0, [struct.pack("<Q", flag)]), kwargs={"block_seconds": 60}
    )
    thread.start()
    memory.upload(flag, np.ones(1, np.int32))
    thread.join()
    memory.free(flag)


@pytest.mark.usefixtures("cpp_compiler")
def test_launches_of_several_threads_take_turns():
    failures = []

    def work(number):
        for _ in range(20):
            x = np.zeros(64, np.int32)
            launch(SOURCE, "adds", 3, 64, x, number)
            if (x != 3 * number).any():
                failures.append((number, x))
            try:
                launch(SOURCE, "reads", 1, 1, np.zeros(1, np.int32), np.int64(number))
            except ExecutionError as error:
                if "'argument 0'" not in str(error):
                    failures.append(error)
            else:
                failures.append("no fault")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1000, 1004)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_launches():
    launch(SOURCE, "adds", 1, 64, np.zeros(64, np.int32), 1)
    child = os.fork()
    if child == 0:
        x = np.zeros(64, np.int32)
        launch(SOURCE, "adds", 2, 64, x, 5)
        os._exit(0 if (x == 10).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def run_python(text):
    begin = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nSOURCE = {SOURCE!r}\n"
    script = begin + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.usefixtures("cpp_compiler")
def test_handlers_of_the_process_are_as_before_and_faults_outside_of_kernels_are_theirs():
    run = run_python("""
        import ctypes, faulthandler, signal, threading
        import numpy as np
        from launching import launch
        from euler_ir.errors import ExecutionError, LoweringError
        faulthandler.enable()
        caught = []
        signal.signal(signal.SIGFPE, lambda *_: caught.append("mine"))
        try:
            launch(SOURCE, "reads", 1, 1, np.zeros(1, np.int32), np.int64(100))
        except ExecutionError:
            print("reported", flush=True)
        signal.raise_signal(signal.SIGFPE)
        print(caught, flush=True)
        ctypes.string_at(8)
    """)
    assert run.stdout == "reported\n['mine']\n"
    assert "Fatal Python error: Segmentation fault" in run.stderr and run.returncode < 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_the_same_signals_are_caught_before_and_after_a_launch():
    def caught():
        return re.search(r"SigCgt:\s*(\w+)", Path("/proc/self/status").read_text())[1]

    faulthandler.disable()  # it catches what the emulator does
    try:
        before = caught()
        with pytest.raises(ExecutionError):
            launch(SOURCE, "reads", 1, 1, np.zeros(1, np.int32), 100)
        assert caught() == before
    finally:
        faulthandler.enable()


@pytest.mark.usefixtures("cpp_compiler")
def test_a_fault_of_another_thread_during_a_launch_is_no_fault_of_the_kernel():
    run = run_python("""
        import ctypes, faulthandler, struct, threading
        import numpy as np
        from euler_ir.backends.cuda.emulator import build, memory
        faulthandler.enable()
        module, flag = build.load(SOURCE), memory.from_array(np.zeros(1, np.int32))
        arguments = ("waits", 1, 1, 0, [struct.pack("<Q", flag)])
        threading.Thread(target=module.launch, args=arguments, daemon=True).start()
        print("running", flush=True)
        ctypes.string_at(8)
    """)
    assert run.stdout == "running\n"
    assert "Fatal Python error: Segmentation fault" in run.stderr and run.returncode < 0


def test_denormals_are_kept_whatever_the_thread_has_set():
    torch = pytest.importorskip("torch")
    x = np.array([1.5e-38, 1e-40, 3.0], np.float32)
    expected = (x.astype(np.float64) / 2).astype(np.float32)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        launch(SOURCE, "halves", 1, 3, x)
        assert torch.tensor([1e-40], dtype=torch.float32).mul(2).item() == 0, "what the thread has set is there again"
    finally:
        torch.set_flush_denormal(False)
    assert x.tolist() == expected.tolist() and x[1] != 0


def test_what_kernels_print(capfd):
    launch(SOURCE, "greets", 2, 32, order="ascending")
    assert capfd.readouterr().out == "".join(f"thread {t} of block {b}\n" for b in (0, 1) for t in (0, 1))


def test_libraries_come_from_the_cache_unless_they_are_damaged(tmp_path, monkeypatch):
    compiled, compile_library = [], toolchain._compile
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(
        toolchain, "_compile", lambda name, *rest: compiled.append(name) or compile_library(name, *rest)
    )

    def answer(text, *options):
        return toolchain.load(toolchain.library("answer.cu", text, options)).answer()

    text = 'extern "C" int answer() { return NUMBER; }'
    assert answer(text, "-DNUMBER=42") == answer(text, "-DNUMBER=42") == 42 and len(compiled) == 1
    assert answer(text, "-DNUMBER=43") == 43 and len(compiled) == 2
    for entry in (tmp_path / "cache").iterdir():
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.write_bytes(content)
    assert answer(text, "-DNUMBER=42") == 42 and len(compiled) == 3


def test_a_folder_for_temporary_files_without_room_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(LoweringError, match="a file in .*none: No such file or directory\n  hint: set TMPDIR"):
        toolchain.load(b"")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(LoweringError, match="file too short"):
        toolchain.load(b"\x7fELF")
    assert not list(tmp_path.iterdir())


def test_without_a_compiler_the_message_says_what_to_install():
    run = run_python("""
        import os
        os.environ["PATH"] = "/nowhere"
        from euler_ir.backends.cuda.emulator import build
        build.load(SOURCE)
    """)
    assert "LoweringError: the emulator needs g++, and there is none\n  hint: " in run.stderr

import contextlib
import functools
import importlib.metadata
import os
import shutil
import signal
import tempfile

import pytest

import euler_ir as ei
from euler_ir.threads import THREADS_VARIABLE
from euler_ir.cache import FOLDER_VARIABLE
from euler_ir.errors import LoweringError


def pytest_addoption(parser):
    parser.addoption("--threads", help="worker threads of programs that ask for no number (default: all cores)")
    parser.addoption("--update-docs", action="store_true", help="write what the transcripts of the docs print now")


def pytest_configure(config):
    """Ctrl-C acts as in a terminal. One cache a session, shared by the processes of `-n`: the user's own is neither read
    nor written.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A script's background job ignores Ctrl-C, and so would every process that tests start and interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.threads is not None:
        os.environ[THREADS_VARIABLE] = config.option.threads
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="euler_ir_cache_")
        os.environ[FOLDER_VARIABLE] = folder.name
        config.add_cleanup(folder.cleanup)


@functools.cache
def gpu_absence():
    """Why nothing can run on a GPU here, in a line; None where there is one."""
    from euler_ir.backends.cuda.open_device import open_device

    try:
        open_device("cuda")
    except LoweringError as error:
        return error.message
    return None


TOOLS = {"g++": "g++", "NVRTC": "nvidia-cuda-nvrtc", "nvdisasm": "nvidia-cuda-nvdisasm"}
"""What the CUDA backend's errors call the tools it needs here, and the program or the package that is each."""


def is_installed(tool):
    packages = (distribution.name or "" for distribution in importlib.metadata.distributions())
    return shutil.which(tool) is not None or any(package.startswith(tool) for package in packages)


@contextlib.contextmanager
def skipped_without_tools():
    """Skip a test in which something is refused for want of a tool that is not installed."""
    try:
        yield
    except LoweringError as error:
        for name, tool in TOOLS.items():
            if name in error.message and "there is no" in error.message and not is_installed(tool):
                pytest.skip(f"{error.message} ({error.hint})")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and gpu_absence() is not None:
        pytest.skip(gpu_absence())
    with skipped_without_tools():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with skipped_without_tools():
        return (yield)


@pytest.fixture
def cpp_compiler():
    """For tests that would take the want of g++ for what they look for."""
    from euler_ir.backends.cuda.emulator import toolchain

    toolchain.compiler()


@pytest.fixture
def gpu_compiler():
    """For tests that would take the want of NVRTC or nvdisasm for what they look for."""
    from euler_ir.backends.cuda import nvrtc, sass

    sass.disassemble(nvrtc.compile_cuda('extern "C" __global__ void nothing() {}', "sm_80").cubin)


ON_A_GPU = (
    pytest.param("cuda-emulator", marks=pytest.mark.slow),
    pytest.param("cuda", marks=pytest.mark.gpu),
)
"""The CUDA backend, on the CPU where there is time and on a GPU where there is one."""


@pytest.fixture(params=["reference", "cpu", *ON_A_GPU])
def backend(request):
    """The name of each backend."""
    return request.param


@pytest.fixture(scope="module")
def compiled_once():
    """Graphs of the same text are compiled once for all tests of a file: most runs of it are of one model."""
    compiled, compile_graph = {}, ei.compile

    def compile_once(graph, **options):
        key = str(graph), *sorted(options.items())
        if key not in compiled:
            compiled[key] = compile_graph(graph, **options)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ei, "compile", compile_once)
        yield

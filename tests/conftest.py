import functools
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


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and gpu_absence() is not None:
        pytest.skip(gpu_absence())


def skip_without_compiler(error):
    """Skip the test that raised ``error`` when the emulator did so for want of a C++ compiler."""
    if shutil.which("g++") is None and "g++" in error.message:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup():
    try:
        return (yield)
    except LoweringError as error:
        skip_without_compiler(error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    try:
        return (yield)
    except LoweringError as error:
        skip_without_compiler(error)
        raise


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

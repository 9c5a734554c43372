"""Programs on many threads, in forks, under signals and on busy machines: no deadlock, and every bit right.

Each scene is a process of its own with a time limit: what hangs fails, and hangs nothing else.
"""

import os
import subprocess
import sys
import textwrap

PREAMBLE = """
import gc, os, signal, sys, threading
from pathlib import Path
import numpy as np
import euler_ir as ei
from models.gpt2 import GPT2Config
from models.language_model import train_graph

CONFIG = GPT2Config(vocab_size=61, context=16, layers=2, heads=2, width=24)
GRAPH = train_graph(CONFIG, 2, 16)
FIRST = ei.initial_state(GRAPH)

def batch(seed=0):
    tokens, targets = np.random.default_rng(seed).integers(0, 61, (2, 2, 16)).astype(np.int32)
    return {"tokens": tokens, "targets": targets, "learning_rate": np.float32(1e-3)}

def bits(state):
    return b"".join(state[name].tobytes() for name in sorted(state))

def trained(step, steps=3):
    state = FIRST.copy()
    for number in range(steps):
        step(state, **batch(number))
    return bits(state)

def at_once(works):
    failures = []
    def guarded(work):
        try:
            work()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures

def in_child(work):
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def scene(script: str, timeout: float = 60, **environment: str | None) -> None:
    """Run ``script`` after the preamble; a variable of the environment that is None is not set."""
    command = [sys.executable, "-W", "ignore:.*fork.*:DeprecationWarning", "-c", PREAMBLE + textwrap.dedent(script)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    environment = {name: value for name, value in environment.items() if value is not None}
    result = subprocess.run(command, check=False, env=environment, timeout=timeout, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_programs_of_several_numbers_of_threads_at_once():
    """Each with states of its own, and beside them one that all of them only read."""
    scene("""
        with ei.Graph() as product:
            table = ei.parameter("wte.weight", (61, 24), ei.initializers.Zeros())
            ei.output(y=ei.input("x", (3, 24)) @ ei.transpose(table))
        shared, x = ei.initial_state(GRAPH), np.ones((3, 24), np.float32)
        steps = {n: ei.compile(GRAPH, threads=n) for n in (1, 2, 3, 7)}
        products = {n: ei.compile(product, threads=n) for n in (1, 2, 5)}
        wanted, wanted_y = trained(steps[1], 5), products[1](shared, x=x)["y"].tobytes()

        def train(step):
            for _ in range(4):
                assert trained(step, 5) == wanted

        def read(run):
            for _ in range(200):
                assert run(shared, x=x)["y"].tobytes() == wanted_y

        at_once([lambda s=s: train(s) for s in (*steps.values(), steps[2])]
                + [lambda r=r: read(r) for r in products.values()])
    """)


def test_several_threads_compile_for_the_first_time_at_once():
    scene(
        """
        results = {}

        def work(number):
            results[number] = trained(ei.compile(GRAPH, threads=1 + number % 3))

        at_once([lambda n=n: work(n) for n in range(4)])
        assert len(results) == 4 and len(set(results.values())) == 1
        """,
        EULER_IR_CACHE="off",
    )


def test_a_fork_beside_a_thread_that_compiles_and_runs():
    """The child compiles, runs, and finds every State as some step left it."""
    scene(
        """
        with ei.Graph("pair") as pair:
            a, b = ei.state("a", (1 << 16,)), ei.state("b", (1 << 16,))
            ei.update(a, a + 1)
            ei.update(b, ei.flip(a) * 2 + 2)
        counted, count = ei.compile(pair, threads=2), ei.initial_state(pair)
        step, stop, ready = ei.compile(GRAPH, threads=2), threading.Event(), threading.Barrier(3)
        wanted = trained(step)

        def until_stopped(work):
            work()
            ready.wait()
            while not stop.is_set():
                work()

        def child():
            whole = (count["b"] == 2 * count["a"][0]).all() and (count["a"] == count["a"][0]).all()
            return whole and trained(step) == wanted and trained(ei.compile(GRAPH, threads=3)) == wanted

        def fork():
            ready.wait()
            try:
                for _ in range(2):
                    in_child(child)
            finally:
                stop.set()

        at_once([
            lambda: until_stopped(lambda: counted(count)),
            lambda: until_stopped(lambda: ei.compile(GRAPH, threads=2)),
            fork,
        ])
        assert trained(step) == wanted
        """,
        EULER_IR_CACHE="off",
    )


def test_an_interrupt_leaves_every_state_whole():
    """However often: a step is done or not begun, and the next ones go on from there."""
    scene("""
        step = ei.compile(GRAPH, threads=2)
        after, state = [], FIRST.copy()
        for _ in range(400):
            after.append(bits(state))
            step(state, **batch())
        after = {held: number for number, held in enumerate(after)}
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        state, interrupts = FIRST.copy(), 0
        while interrupts < 20:
            before = after[bits(state)]
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0001 * interrupts)
                while True:
                    step(state, **batch())
                    if after[bits(state)] > 350:
                        before, state = 0, FIRST.copy()
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupts += 1
                assert after[bits(state)] >= before
        position = after[bits(state)]
        step(state, **batch())
        assert after[bits(state)] == position + 1
    """)


def test_signals_every_millisecond():
    scene("""
        step = ei.compile(GRAPH, threads=3)
        wanted, seen = trained(step, 30), []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while len(seen) < 100:
            assert trained(step, 30) == wanted
        signal.setitimer(signal.ITIMER_REAL, 0)
    """)


def test_a_handler_runs_other_programs_while_other_threads_run_them():
    """Whatever the interrupted thread holds, no thread that the handler waits for waits for it."""
    scene("""
        steps = [ei.compile(GRAPH, threads=2) for _ in range(2)]
        wanted, stop, seen = trained(steps[0]), threading.Event(), []

        def handle(*_):
            seen.append(trained(steps[1]))
            signal.setitimer(signal.ITIMER_REAL, 0.001)

        def other():
            while not stop.is_set():
                assert trained(steps[1]) == wanted

        thread = threading.Thread(target=other)
        thread.start()
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while len(seen) < 30:
            assert trained(steps[0]) == wanted
        signal.setitimer(signal.ITIMER_REAL, 0)
        stop.set()
        thread.join()
        assert set(seen) == {wanted}
    """)


def test_programs_are_dropped_while_others_run():
    scene("""
        step = ei.compile(GRAPH, threads=3)
        wanted, stop = trained(step), threading.Event()

        def drop():
            try:
                for number in range(6):
                    assert trained(ei.compile(GRAPH, threads=1 + number % 4), 3) == wanted
                    gc.collect()
            finally:
                stop.set()

        def run():
            while not stop.is_set():
                assert trained(step) == wanted

        at_once([drop, run])
    """)


def test_one_thread_starts_none():
    """But for those that OpenBLAS starts when it is loaded, which sleep for good."""
    scene("""
        from euler_ir.backends.cpu import openblas
        openblas.description()
        before = os.listdir("/proc/self/task")
        trained(ei.compile(GRAPH, threads=1))
        assert set(os.listdir("/proc/self/task")) <= set(before)
    """)


def test_the_cores_of_the_process_are_its_threads():
    scene(
        """
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        step = ei.compile(GRAPH)
        assert step.program.pool.threads == 1
        assert trained(step) == trained(ei.compile(GRAPH, threads=3))
        """,
        OMP_NUM_THREADS="7",
        EULER_IR_THREADS=None,
    )


def test_a_busy_machine_changes_nothing():
    """Other processes want every core twice."""
    spin = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    others = [subprocess.Popen(spin, stdout=subprocess.PIPE) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        for other in others:
            other.stdout.readline()
        scene("""
            assert len({trained(ei.compile(GRAPH, threads=threads)) for threads in (1, 2, 16)}) == 1
        """)
    finally:
        for other in others:
            other.kill()
            other.wait()
            other.stdout.close()


def test_thousands_of_runs_too_small_to_share():
    scene("""
        with ei.Graph() as graph:
            n = ei.state("n", ())
            ei.update(n, n + 1)
        runs, state = [ei.compile(graph, threads=threads) for threads in (1, 2, 3)], ei.initial_state(graph)
        for _ in range(2_000):
            for run in runs:
                run(state)
        assert state["n"] == 6_000
    """)


def test_the_callers_settings_of_arithmetic_change_no_bit_and_stay():
    """Those of one thread alone would make the parts of a result differ."""
    scene("""
        import ctypes
        library = ctypes.CDLL("libm.so.6")
        with ei.Graph() as graph:
            ei.output(y=ei.input("x", (1 << 16,)) / 3 * 1.1)
        x = np.random.default_rng(0).standard_normal(1 << 16, np.float32)
        x[::2] *= np.float32(1e-39)
        runs = [ei.compile(graph, threads=threads) for threads in (1, 2, 3)]
        wanted = runs[0](x=x)["y"].tobytes()
        upward = {"x86_64": 0x800, "aarch64": 0x400000}[os.uname().machine]
        assert not library.fesetround(upward)
        for run in runs:
            assert run(x=x)["y"].tobytes() == wanted
            assert library.fegetround() == upward
    """)


def test_a_fork_in_a_handler_of_a_run():
    scene("""
        step, forks = ei.compile(GRAPH, threads=2), []
        wanted = trained(step)

        def fork(*_):
            in_child(lambda: trained(step) == wanted)
            forks.append(1)

        signal.signal(signal.SIGALRM, fork)
        while len(forks) < 5:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            assert trained(step) == wanted
    """)

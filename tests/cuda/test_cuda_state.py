"""A State whose arrays a device has: who reads or writes it where, always sees the newest elements."""

import copy
import os
import random
import threading

import numpy as np
import pytest
from on_device import GPU, new_device, on_device

import euler_ir as ei
from euler_ir.backends.cuda.emulator import device as emulated
from euler_ir.backends.cuda.emulator.device import EmulatedDevice
from euler_ir.backends.cuda.runtime import Runtime


@pytest.fixture(params=[0, GPU])
def device(request):
    return new_device(request.param)


@pytest.fixture(scope="module")
def training():
    """A parameter that grows by an input, and a count."""
    with ei.Graph("training") as graph:
        w, x = ei.parameter("w", (3,), ei.initializers.Ones()), ei.input("x", (3,))
        count = ei.state("count", (), ei.initializers.Zeros(), ei.i64)
        ei.update(w, w + x)
        ei.update(count, count + 1)
    return graph


@pytest.fixture(scope="module")
def reading():
    with ei.Graph("reading") as graph:
        ei.output(y=ei.parameter("w", (3,), ei.initializers.Ones()) * 2)
    return graph


ONE = np.ones(3, np.float32)


class Transfers:
    """Counts the bytes of uploads and downloads."""

    def __init__(self, patch):
        self.up = self.down = 0
        upload, download = emulated._Stream.upload, emulated._Stream.download
        patch.setattr(emulated._Stream, "upload", lambda s, to, array: self._count("up", array) or upload(s, to, array))
        patch.setattr(
            emulated._Stream, "download", lambda s, array, at: self._count("down", array) or download(s, array, at)
        )

    def _count(self, way, array):
        setattr(self, way, getattr(self, way) + array.nbytes)

    def since(self):
        found, self.up, self.down = (self.up, self.down), 0, 0
        return found


def test_nothing_is_copied_between_runs(training, reading, monkeypatch):
    device = EmulatedDevice()
    train, read, state = on_device(training, device), on_device(reading, device), ei.initial_state(training)
    staged, results = train.program.input_layout.nbytes, read.program.result_layout.nbytes
    transfers = Transfers(monkeypatch)
    train(state, x=ONE)
    assert transfers.since() == (staged + 12 + 8, 0)
    for _ in range(3):
        train(state, x=ONE)
        read(state)
        train(state, x=ONE)
    assert transfers.since() == (6 * staged, 3 * results)
    np.testing.assert_array_equal(state["w"], 8 * ONE)
    assert transfers.since() == (0, 12)
    np.testing.assert_array_equal(state["w"], 8 * ONE)
    train(state, x=ONE)
    assert transfers.since() == (staged + 12, 0)
    # What a device has only read is not fetched.
    np.testing.assert_array_equal(state["w"], 9 * ONE)
    transfers.since()
    read(state)
    np.testing.assert_array_equal(state["w"], 9 * ONE)
    assert transfers.since() == (12, results)


def test_programs_of_one_device_share_one_copy(training, reading, device):
    train, read, state = on_device(training, device), on_device(reading, device), ei.initial_state(training)
    train(state, x=ONE)
    place = Runtime.of(device).resident(state.kept(training.parameters[0])).address
    for count in range(2, 5):
        np.testing.assert_array_equal(read(state)["y"], 2 * count * ONE)
        train(state, x=ONE)
    assert place == Runtime.of(device).resident(state.kept(reading.parameters[0])).address


@pytest.mark.parametrize("other", ["cpu", "reference"])
def test_a_program_of_the_host_reads_and_writes_the_newest(training, reading, other, device):
    train, read, state = on_device(training, device), on_device(reading, device), ei.initial_state(training)
    host_train, host_read = ei.compile(training, other), ei.compile(reading, other)
    for count in range(1, 4):
        train(state, x=ONE)
        np.testing.assert_array_equal(host_read(state)["y"], (4 * count) * ONE)
        host_train(state, x=ONE)
        np.testing.assert_array_equal(read(state)["y"], (4 * count + 2) * ONE)
    assert state["count"] == 6


def test_two_devices_hand_a_state_to_and_fro(training):
    one, two = on_device(training, seed=1), on_device(training, seed=2)
    state = ei.initial_state(training)
    for _ in range(3):
        one(state, x=ONE)
        two(state, x=2 * ONE)
    np.testing.assert_array_equal(state["w"], 10 * ONE)


def test_a_write_is_never_lost(training, device):
    train, state = on_device(training, device), ei.initial_state(training)
    before = state["w"]
    before[0] = 5  # the host owns it
    train(state, x=ONE)
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 7
    now = state["w"]
    assert now is before and now.tolist() == [6, 2, 2]
    now[0] = 8
    train(state, x=ONE)
    assert state["w"].tolist() == [9, 3, 3]
    train(state, x=ONE)
    state["w"] = 4 * ONE
    train(state, x=ONE)
    state["w"] = state["w"] * 2
    train(state, x=ONE)
    assert state["w"].tolist() == [11, 11, 11] and state["count"] == 5
    state["w"].flags.writeable = False  # as its owner wants it
    train(state, x=ONE)
    assert state["w"].tolist() == [12, 12, 12] and not state["w"].flags.writeable


def test_a_call_works_on_what_was_there_when_it_began(reading, device):
    read, state = on_device(reading, device), ei.initial_state(reading)
    outputs = []
    for value in range(3):
        state["w"][:] = value
        outputs.append(read(state))
        state["w"][:] = 7
        outputs.append(read(state))
        state["w"] = 9 * ONE
    assert [each["y"][0] for each in outputs] == [0, 14, 2, 14, 4, 14]


def test_a_whole_array_that_is_overwritten_is_not_fetched(training, monkeypatch):
    train, state = on_device(training), ei.initial_state(training)
    train(state, x=ONE)
    transfers = Transfers(monkeypatch)
    state["w"] = ONE
    with pytest.raises(ei.ExecutionError, match="cannot take"):
        state["w"] = np.ones(4, np.float32)
    assert "count" in state and "c" not in state and list(state) == ["w", "count"]
    assert len(state) == 2 and "20 bytes" in repr(state)
    state.add(training)
    state.view()
    assert transfers.since() == (0, 0)


def test_views_and_copies(training, reading, device):
    train, read, state = on_device(training, device), on_device(reading, device), ei.initial_state(training)
    train(state, x=ONE)
    view, copied = state.view(), state.copy()
    train(view, x=ONE)
    np.testing.assert_array_equal(read(copied)["y"], 4 * ONE)
    np.testing.assert_array_equal(read(state)["y"], 6 * ONE)
    np.testing.assert_array_equal(view["w"], 3 * ONE)
    np.testing.assert_array_equal(copy.deepcopy(dict(state))["w"], 3 * ONE)
    assert dict(copied)["w"].flags.writeable


def test_an_input_may_be_the_state_that_is_updated(training, device):
    train, state = on_device(training, device), ei.initial_state(training)
    for _ in range(3):
        train(state, x=state["w"])
    np.testing.assert_array_equal(state["w"], 8 * ONE)


def test_threads_may_read_what_a_device_has(training, reading, device):
    wrong = []
    train, read, state = on_device(training, device), on_device(reading, device), ei.initial_state(training)
    train(state, x=ONE)

    def work(number):
        for _ in range(20):
            found = read(state)["y"] / 2 if number % 2 else state["w"]
            if not np.array_equal(found, 2 * ONE):
                wrong.append(found)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_the_state_and_no_device(training, reading, device):
    train, state, on_cpu = on_device(training, device), ei.initial_state(training), ei.compile(reading, threads=1)
    for _ in range(2):
        train(state, x=ONE)
    child = os.fork()
    if not child:
        status = 0
        if not np.array_equal(on_cpu(state)["y"], 6 * ONE) or not np.array_equal(state["w"], 3 * ONE):
            status = 1
        refusals = []

        def attempt():
            try:
                train(state, x=ONE)
            except ei.ExecutionError as error:
                refusals.append("forked" in error.message)

        attempt()
        thread = threading.Thread(target=attempt)  # which finds no lock held
        thread.start()
        thread.join(20)
        status = status or (0 if refusals == [True, True] else 2)
        state["w"][0] = 7
        os._exit(status)
    state["w"][:] = 5  # which the call before the fork does not see
    assert os.waitpid(child, 0)[1] == 0
    train(state, x=ONE)
    np.testing.assert_array_equal(state["w"], 6 * ONE)


def test_a_state_that_is_gone_leaves_the_device(training):
    device = EmulatedDevice()
    train = on_device(training, device)
    runtime = Runtime.of(device)
    train(state := ei.initial_state(training), x=ONE)
    kept = device.memory()[0]
    for _ in range(3):  # an executable holds the last State that it was called with
        state = ei.initial_state(training)
        train(state, x=ONE)
        assert runtime.free_memory() >= kept


class Uses:
    """States and what each should hold, used at random by two devices and the CPU; outputs are looked at later."""

    def __init__(self, seed, graphs):
        self.random = random.Random(seed)
        devices = [EmulatedDevice(seed=seed), EmulatedDevice(seed=seed + 1)]
        self.runs = [[on_device(graph, device) for graph in graphs] for device in devices]
        self.runs.append([ei.compile(graph, threads=1) for graph in graphs])
        self.kept, self.outputs = [], []
        state = ei.State()
        state["w"], state["v"] = self.numbers(), self.numbers()
        self.kept.append((state, {name: state[name].copy() for name in "wv"}))

    def numbers(self):
        return np.array([self.random.randint(-3, 3) for _ in range(3)], np.float32)

    def add(self, runs, state, wanted):
        """w grows by x, v by the old w, which is an output."""
        x = state["v"] if self.random.random() < 0.2 else self.numbers()
        old, added = wanted["w"], x.copy()
        self.outputs.append((runs[0](state, x=x), old))
        wanted["v"], wanted["w"] = (wanted["v"] + old) % 8, (old + added) % 8

    def trade(self, runs, state, wanted):
        runs[1](state)
        wanted["v"], wanted["w"] = wanted["w"], wanted["v"]

    def look(self, runs, state, wanted):
        name = self.random.choice("wv")
        np.testing.assert_array_equal(state[name], wanted[name])

    def overwrite(self, runs, state, wanted):
        name = self.random.choice("wv")
        wanted[name] = self.numbers()
        state[name] = wanted[name]

    def write(self, runs, state, wanted):
        name = self.random.choice("wv")
        wanted[name] = np.array([*wanted[name][:2], 7], np.float32)
        state[name][2] = 7

    def copy(self, runs, state, wanted):
        self.kept.append((state.copy(), dict(wanted)))

    def view(self, runs, state, wanted):
        self.kept.append((state.view(), wanted))

    def forget(self, runs, state, wanted):
        if len(self.kept) > 1:
            self.kept.pop(self.random.randrange(len(self.kept)))

    def read(self, runs, state, wanted):
        if self.outputs:
            outputs, old = self.outputs.pop(self.random.randrange(len(self.outputs)))
            np.testing.assert_array_equal(outputs["old"], old)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 60))])
def test_any_uses_one_after_the_other_see_the_newest(seed):
    with ei.Graph("adding") as adding:
        w, v = ei.parameter("w", (3,), ei.initializers.Ones()), ei.state("v", (3,))
        ei.update(v, (v + w) % 8)
        ei.update(w, (w + ei.input("x", (3,))) % 8)
        ei.output(old=w)
    with ei.Graph("trading") as trading:
        w, v = ei.parameter("w", (3,), ei.initializers.Ones()), ei.state("v", (3,))
        ei.update(w, v)
        ei.update(v, w)
    uses = Uses(seed, (adding, trading))
    kinds = (uses.add, uses.add, uses.trade, uses.look, uses.overwrite, uses.write, uses.copy, uses.view, uses.forget)
    for _ in range(60):
        use, runs, (state, wanted) = (uses.random.choice(each) for each in ((*kinds, uses.read), uses.runs, uses.kept))
        use(runs, state, wanted)
    for state, wanted in uses.kept:
        for name in "wv":
            np.testing.assert_array_equal(state[name], wanted[name])
    while uses.outputs:
        uses.read(None, None, None)

"""The disk cache: what goes in comes out, and nothing that happens to its folder does more than cost a compilation."""

import concurrent.futures
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import cache
from euler_ir.backends.cpu import jit
from euler_ir.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of the test's own, not there yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(path))
    monkeypatch.setattr(cache, "_has_warned", False)
    monkeypatch.setattr(cache, "_stored_since_look", cache.LIMIT_BYTES)
    return path


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def only_entry(folder):
    (path,) = folder.iterdir()
    return path


# -- entries -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_warning")
def test_entries_by_kind_and_key(folder):
    assert cache.load("object", "a", "b") is None and not folder.exists()
    values = {
        ("object", "a", "b"): b"1",
        ("object", "ab"): b"",
        ("object", "a", "b", ""): b"\0" * 9,
        ("other", "a", "b"): b"4",
    }
    for key, value in values.items():
        cache.store(value, *key)
    assert {key: cache.load(*key) for key in values} == values
    cache.store(b"new", "object", "ab")
    assert cache.load("object", "ab") == b"new"
    assert len(list(folder.iterdir())) == len(values)


@pytest.mark.parametrize("fact", [None, 3, "blocked", {"winner": "own", "seconds": [1e-3, 2.5]}])
def test_facts(fact):
    cache.store_fact(fact, "product", "256x768x50257", "2 threads")
    assert cache.load_fact("product", "256x768x50257", "2 threads") == fact
    assert cache.load_fact("product", "256x768x50257", "3 threads") is None


def test_the_first_answer_is_everybodys(folder):
    """Two who tried the same thing at once must not go by two answers; a damaged one is nobody's."""
    assert cache.store_fact("first", "product") == "first"
    assert cache.store_fact("second", "product") == cache.load_fact("product") == "first"
    path = only_entry(folder)
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.store_fact("third", "product") == cache.load_fact("product") == "third"
    assert only_entry(folder) == path


def settle(number, barrier):
    barrier.wait()
    return [cache.store_fact(number, "product", str(key)) for key in range(100)]


def test_processes_that_find_out_the_same_thing_at_once_agree():
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, concurrent.futures.ProcessPoolExecutor(3, context) as processes:
        barrier = manager.Barrier(3)
        answers = [processes.submit(settle, number, barrier) for number in range(3)]
        first, *others = (answer.result(timeout=60) for answer in answers)
    assert None not in first and all(other == first for other in others)


def test_no_answer_is_kept_where_none_can_be(monkeypatch):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "off")
    assert cache.store_fact("first", "product") is None


@pytest.mark.usefixtures("no_warning")
def test_nobody_else_can_write_or_read_entries(folder):
    before = os.umask(0)
    try:
        cache.store(b"code", "object", "text")
    finally:
        os.umask(before)
    assert cache.is_usable()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert only_entry(folder).stat().st_mode & 0o777 == 0o600


# -- where -------------------------------------------------------------------------------------------------------------


def test_where(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/someone")
    for chosen, caches, expected in [
        ("/chosen", "/caches", Path("/chosen")),
        (None, "/caches", Path("/caches/euler_ir")),
        (None, "relative", Path("/home/someone/.cache/euler_ir")),
        (None, None, Path("/home/someone/.cache/euler_ir")),
        ("", "/caches", None),
        ("off", "/caches", None),
    ]:
        for variable, value in [(cache.FOLDER_VARIABLE, chosen), ("XDG_CACHE_HOME", caches)]:
            monkeypatch.delenv(variable, raising=False)
            if value is not None:
                monkeypatch.setenv(variable, value)
        assert cache.folder() == expected


def test_switched_off(monkeypatch, folder):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "off")
    monkeypatch.chdir(folder.parent)
    cache.store(b"code", "object", "text")
    assert cache.load("object", "text") is None and not cache.is_usable()
    assert cache.usage() == cache.clear() == cache.Usage(0, 0)
    assert not list(folder.parent.iterdir())


# -- what can go wrong -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("damage", ["bit", "truncated", "empty", "longer", "version", "other's", "writable"])
def test_damaged_entries_are_none_and_are_replaced(folder, damage):
    cache.store(b"other code", "object", "other text")
    other = only_entry(folder).read_bytes()
    cache.clear()
    cache.store(b"code" * 100, "object", "text")
    path = only_entry(folder)
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-7] ^= 4
    changed = {"truncated": content[:-1], "empty": b"", "longer": content + b"x", "other's": other}
    changed["version"] = content.replace(b"cache 1", b"cache 2")
    path.write_bytes(changed.get(damage, content))
    if damage == "writable":
        path.chmod(0o666)
    assert cache.load("object", "text") is None
    cache.store(b"code" * 100, "object", "text")
    assert cache.load("object", "text") == b"code" * 100


def test_every_damaged_byte_is_seen(folder):
    cache.store(b"some code", "object", "text")
    path = only_entry(folder)
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert cache.load("object", "text") is None, position


def unusable(path, how):
    """Make a folder that cannot hold a cache."""
    match how:
        case "a file":
            path.write_text("")
        case "writable by others":
            path.mkdir()
            path.chmod(0o777)
        case "below a file":
            path.parent.joinpath("file").write_text("")
            os.environ[cache.FOLDER_VARIABLE] = str(path.parent / "file" / "cache")
        case "of another user":
            path.mkdir()


@pytest.mark.parametrize("how", ["a file", "writable by others", "below a file", "of another user"])
def test_an_unusable_folder_costs_one_warning(folder, how, monkeypatch):
    unusable(folder, how)
    if how == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="not kept in .*EULER_IR_CACHE") as warned:
        for text in ("a", "b"):
            cache.store(b"code", "object", text)
            assert cache.load("object", text) is None
            assert not cache.is_usable()
    assert len(warned) == 1
    assert how == "a file" or not (folder.exists() and list(folder.iterdir()))


def test_an_entry_through_a_link_is_not_followed(folder):
    cache.store(b"code", "object", "text")
    path = only_entry(folder)
    path.rename(folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")
    with pytest.warns(RuntimeWarning):
        assert cache.load("object", "text") is None


def test_no_home(monkeypatch):
    monkeypatch.delenv(cache.FOLDER_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does when nobody knows
    with pytest.warns(RuntimeWarning) as warned:
        cache.store(b"code", "object", "text")
        assert cache.load("object", "text") is None
    assert len(warned) == 1


def run(script, **variables):
    """Run ``script`` in a Python of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_a_full_disk_costs_one_warning_and_leaves_nothing(folder):
    # The limit of a file's size stands for a full disk: the same write fails half-way.
    result = run("""
        import resource
        from euler_ir import cache
        cache.store(b"small", "object", "small")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for _ in range(3):
            cache.store(b"x" * 100_000, "object", "large")
        print(cache.load("object", "large"), cache.load("object", "small"))
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "None b'small'\n"
    assert result.stderr.count("not kept in") == 1
    only_entry(folder)


def test_a_writer_killed_at_any_moment_leaves_whole_entries(folder):
    script = """
        import itertools
        from euler_ir import cache
        for number in itertools.count():
            cache.store(bytes([number % 256]) * 200_000, "object", str(number % 5))
            if number == 0:
                print("ready", flush=True)
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], env=environment, stdout=subprocess.PIPE
        )
        writer.stdout.readline()
        for _ in range(50):
            for number in range(5):
                data = cache.load("object", str(number))
                assert data is None or data == data[:1] * 200_000
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    for path in folder.iterdir():
        if "." in path.name:
            os.utime(path, (0, 0))
    cache._keep_within_limit(os.open(folder, os.O_RDONLY), cache.LIMIT_BYTES)
    assert not [path for path in folder.iterdir() if "." in path.name]


def hammer(seed):
    for number in range(200):
        key = str((seed + number) % 7)
        cache.store(key.encode() * 10_000, "object", key)
        data = cache.load("object", key)
        assert data is None or data == key.encode() * 10_000
        if number % 50 == seed:
            cache.clear()
    return True


def test_processes_and_threads_at_once():
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(3, context) as processes:
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            results = [pool.submit(hammer, seed) for seed in range(3) for pool in (processes, threads)]
            assert all(result.result(timeout=60) for result in results)


# -- the limit ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_warning")
def test_what_was_not_used_for_longest_goes_first(folder, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT_BYTES", 100_000)
    before = time.time() - 10_000
    for number in range(9):
        cache.store(bytes(10_000), "object", str(number))
        for path in folder.iterdir():
            if path.stat().st_mtime > before + 9_000:
                os.utime(path, (before + number, before + number))
    (folder / "notes.txt").write_text("x" * 1_000_000)
    assert cache.load("object", "0") is not None  # used just now
    cache.store(bytes(40_000), "object", "large")
    kept = [number for number in range(9) if cache.load("object", str(number)) is not None]
    assert 0 in kept and kept[1:] == list(range(9 - len(kept[1:]), 9)) and 2 < len(kept) < 7
    assert cache.load("object", "large") is not None
    assert cache.usage().bytes <= 75_000
    assert (folder / "notes.txt").exists()


@pytest.mark.usefixtures("no_warning")
def test_the_folder_is_not_listed_at_every_store(monkeypatch):
    looks = []
    monkeypatch.setattr(cache, "_entries", lambda *arguments, **named: looks.append(1) or [])
    for number in range(100):
        cache.store(bytes(1000), "object", str(number))
    assert len(looks) == 1


# -- the command -------------------------------------------------------------------------------------------------------


def test_command(folder, capsys):
    assert main(["cache"]) == 0
    assert "0 entries, 0 bytes" in capsys.readouterr().out
    cache.store(b"code", "object", "text")
    cache.store(b"code", "object", "text 2")
    (folder / "notes.txt").write_text("mine")
    size = sum(path.stat().st_size for path in folder.iterdir()) - 4
    assert main(["cache"]) == 0
    printed = capsys.readouterr().out
    assert f"2 entries, {size} bytes" in printed and str(folder) in printed
    assert main(["cache", "--json"]) == 0
    expected = {"folder": str(folder), "entries": 2, "bytes": size, "limit": cache.LIMIT_BYTES}
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert main(["cache", "clear"]) == 0
    assert "removed 0 entries" in capsys.readouterr().out


def test_command_on_what_is_no_cache(folder, capsys, monkeypatch):
    folder.mkdir()
    folder.chmod(0o777)
    assert main(["cache"]) == 2
    assert "writable by no other" in capsys.readouterr().err
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "off")
    assert main(["cache"]) == 0
    assert "switched off" in capsys.readouterr().out
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] is None


# -- compiled code -----------------------------------------------------------------------------------------------------


def compilations(monkeypatch):
    """A list that grows by the text of each module that is compiled in earnest."""
    texts, really = [], jit._Compiler.optimized
    monkeypatch.setattr(jit._Compiler, "optimized", lambda compiler, text: texts.append(text) or really(compiler, text))
    return texts


def small_model(width):
    with ei.Graph("model") as graph:
        x = ei.input("x", (3, 40))
        ei.output(y=ei.sum(ei.exp(x) * 2, axes=1), z=ei.tanh(ei.input("z", (width,))))
    return graph


def run_small_model(width=8):
    x = np.linspace(-1, 1, 120, dtype=np.float32).reshape(3, 40)
    return ei.compile(small_model(width))(x=x, z=np.ones(width, np.float32))


def test_a_second_program_compiles_only_what_is_new(monkeypatch):
    texts = compilations(monkeypatch)
    first = run_small_model()
    assert len(texts) > 2
    texts.clear()
    again = run_small_model()
    assert texts == []
    assert all(np.array_equal(first[name], again[name]) for name in first)
    run_small_model(width=9)
    nests = [text for text in texts if "define void @nest_" in text]
    assert len(nests) == 1 and "tanh" in nests[0]


def test_another_machine_or_pipeline_compiles_anew(monkeypatch):
    text = "define i64 @f() {\n  ret i64 3\n}\n"
    texts = compilations(monkeypatch)
    jit.compile_object(text)
    monkeypatch.setattr(jit, "host_description", lambda: "another machine")
    jit.compile_object(text)
    jit.compile_object(text, jit.CALLS)
    jit.compile_object(text, jit.CALLS)
    assert len(texts) == 3


def test_damaged_objects_are_compiled_again(folder, monkeypatch):
    expected = run_small_model()
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    texts = compilations(monkeypatch)
    result = run_small_model()
    assert texts and all(np.array_equal(result[name], expected[name]) for name in expected)
    texts.clear()
    run_small_model()
    assert texts == []


def test_another_process_finds_the_objects(folder):
    script = """
        import numpy as np
        import euler_ir as ei
        from euler_ir.backends.cpu import jit
        really, count = jit._Compiler.optimized, []
        jit._Compiler.optimized = lambda *arguments: count.append(1) or really(*arguments)
        with ei.Graph("g") as graph:
            ei.output(y=ei.exp(ei.input("x", (5,))))
        print(ei.compile(graph)(x=np.arange(5, dtype=np.float32))["y"].tobytes().hex(), bool(count))
    """
    cold, cached, off = run(script), run(script), run(script, EULER_IR_CACHE="off")
    assert [result.stderr for result in (cold, cached, off)] == [""] * 3
    values = [result.stdout.split() for result in (cold, cached, off)]
    assert [compiled for _, compiled in values] == ["True", "False", "True"]
    assert len({value for value, _ in values}) == 1

"""Compilation and linking: what comes out, and how each kind of fault is reported."""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading
from pathlib import Path

import pytest

from euler_ir.backends.cpu import jit
from euler_ir.errors import LoweringError

ADD = "define i64 @add(i64 %x, i64 %y) {\n  %sum = add i64 %x, %y\n  ret i64 %sum\n}\n"
TWICE = "declare i64 @add(i64, i64)\ndefine i64 @twice(i64 %x) {\n  %y = call i64 @add(i64 %x, i64 %x)\n  ret i64 %y\n}"


def call(code, symbol, *arguments):
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))(code.address(symbol))(*arguments)


def test_objects_link_with_each_other():
    code = jit.LoadedCode([jit.compile_object(ADD), jit.compile_object(TWICE)], ["twice", "add"])
    assert call(code, "add", 2, 3) == 5
    assert call(code, "twice", 21) == 42


def test_registered_symbols_are_asked_for_only_when_mentioned():
    asked = []
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x + 1)

    def address():
        asked.append(True)
        return ctypes.cast(function, ctypes.c_void_p).value

    jit.register_symbol("test_successor", address)
    jit.LoadedCode([jit.compile_object(ADD)], ["add"])
    assert not asked
    text = "declare i64 @test_successor(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @test_successor(i64 %x)\n"
    code = jit.LoadedCode([jit.compile_object(text + "  ret i64 %y\n}")], ["f"])
    assert call(code, "f", 4) == 5


def test_inspection():
    text = "define internal i64 @id(i64 %x) alwaysinline {\n  ret i64 %x\n}\n" + (
        "define i64 @f(i64 %x) {\n  %y = call i64 @id(i64 %x)\n  ret i64 %y\n}"
    )
    assert "call" not in jit.optimized_ir(text)
    assert "f:" in jit.assembly(text)
    assert "llvm-" in jit.host_description()
    assert jit.vector_bytes() in (16, 32, 64)


UNDOMINATED = """define i64 @f(i1 %c) {
  br i1 %c, label %then, label %done
then:
  %x = add i64 1, 2
  br label %done
done:
  ret i64 %x
}"""


@pytest.mark.parametrize("text", ["define i32 @f() { ret i64 0 }", "nonsense", UNDOMINATED])
def test_invalid_text(text):
    with pytest.raises(LoweringError, match="not valid"):
        jit.compile_object(text)


def test_faults_of_linking():
    good = jit.compile_object(ADD)
    for objects, exports, reason in [
        ([jit.compile_object(TWICE)], ["twice"], "twice"),
        ([good], ["subtract"], "subtract"),
        ([good, good], ["add"], "uplicate"),
        ([good[: len(good) // 2]], ["add"], "past the end"),
        ([b"not an object"], ["add"], "not recognized"),
    ]:
        with pytest.raises(LoweringError, match=reason):
            jit.LoadedCode(objects, exports)
    assert call(jit.LoadedCode([good], ["add"]), "add", 1, 1) == 2


def test_several_threads_compile():
    results = {}

    def work(index):
        text = f"define i64 @f() {{\n  ret i64 {index}\n}}"
        results[index] = call(jit.LoadedCode([jit.compile_object(text)], ["f"]), "f")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: i for i in range(8)}


def test_code_outlives_its_linker():
    data = jit.compile_object(ADD)
    kept = [jit.LoadedCode([data], ["add"]) for _ in range(2 * jit._LIBRARIES_PER_LINKER)]
    assert {call(code, "add", 20, 22) for code in kept} == {42}
    del kept[::2]
    assert {call(code, "add", 20, 22) for code in kept} == {42}


def test_nothing_is_kept_of_what_was_compiled_and_linked(monkeypatch):
    monkeypatch.setenv("EULER_IR_CACHE", "off")

    def pages():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    def work(times):
        for _ in range(times):
            jit.LoadedCode([jit.compile_object(ADD)], ["add"])

    work(2 * jit._LIBRARIES_PER_LINKER)
    before = pages()
    work(4 * jit._LIBRARIES_PER_LINKER)
    assert (pages() - before) * mmap.PAGESIZE < 1 << 20  # 20 KB a time would be 5 MB

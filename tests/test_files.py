"""Files appear whole or not at all, and what a command is stopped by is one message, never a traceback."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.cli import INTERRUPTED, READER_GONE
from euler_ir.files import write_file
from euler_ir.text import parse_graph, resources, write_graph

MLP = f"{Path(__file__).parents[1] / 'examples' / 'mlp.py'}:train_graph"


def euler_ir(*arguments, **options):
    command = [sys.executable, "-m", "euler_ir", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_a_file_is_replaced_with_its_permissions_and_through_its_link(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    write_file(file, "first")
    file.chmod(0o640)
    link.symlink_to(file)
    write_file(link, "zweite \N{LATIN SMALL LETTER E WITH ACUTE}")
    assert link.is_symlink() and file.read_text("utf-8") == "zweite \N{LATIN SMALL LETTER E WITH ACUTE}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640 and sorted(tmp_path.iterdir()) == [file, link]


def test_a_pipe_is_written_to(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"content")
    reader.join()
    assert read == [b"content"] and stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("path", ["missing/file", ".", "n" * 300])
def test_what_cannot_be_written_is_said_of_the_file_that_was_asked_for(tmp_path, path):
    with pytest.raises(OSError) as error:
        write_file(tmp_path / path, "text")
    assert error.value.filename == str(tmp_path / path) and list(tmp_path.iterdir()) == []


def test_a_writer_that_is_stopped_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_file(file, "old")

    def stopped(*paths):
        assert file.read_text() == "old"
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_file(file, "new")
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_text_has_its_constants_wherever_its_writer_is_stopped(tmp_path, monkeypatch, writes):
    graphs = []
    for number in range(2):
        graph = ei.Graph("large")
        graph.set_outputs(y=graph.constant(np.arange(5000, dtype=np.float32) * (number + 1)))
        graphs.append(graph)
    path = tmp_path / "large.eir"
    write_graph(graphs[0], path)
    left = iter(range(writes))

    def until_stopped(path, content):
        if next(left, None) is None:
            raise KeyboardInterrupt
        write_file(path, content)

    monkeypatch.setattr(resources, "write_file", until_stopped)
    try:
        write_graph(graphs[1], path)
    except KeyboardInterrupt:
        assert writes < 3
    read = parse_graph(path.read_text(), str(path))
    assert str(read) == str(graphs[writes >= 2])


def test_a_full_disk_is_one_message_and_loses_nothing(tmp_path):
    out = tmp_path / "out.eir"
    assert euler_ir("dump", MLP, "--stage", "graph", "-o", out).returncode == 0
    before = out.read_text()
    limited = f'ulimit -f 1; trap "" XFSZ; exec {sys.executable} -m euler_ir dump {MLP} --stage plan -o {out}'
    full = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
    assert full.returncode == 2 and full.stderr == f"euler-ir: [Errno 27] File too large: '{out}'\n"
    assert out.read_text() == before and list(tmp_path.iterdir()) == [out]


def test_stdout_that_takes_no_more(tmp_path):
    with open("/dev/full", "w") as full:
        finished = subprocess.run(
            [sys.executable, "-m", "euler_ir", "passes"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert finished.returncode == 2 and finished.stderr == "euler-ir: [Errno 28] No space left on device\n"
    gone = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m euler_ir passes > >(exec true); sleep 0"], capture_output=True, text=True
    )
    assert gone.stderr == "" and READER_GONE == 128 + signal.SIGPIPE


def test_an_interrupt_is_no_traceback(tmp_path):
    model = tmp_path / "model.py"
    model.write_text("import os, signal\ndef step():\n    os.kill(os.getpid(), signal.SIGINT)\n")
    stopped = euler_ir("dump", f"{model}:step", "--stage", "graph")
    assert (stopped.returncode, stopped.stderr) == (INTERRUPTED, "euler-ir: interrupted\n")


def test_a_terminal_without_a_character(tmp_path):
    model = tmp_path / "model.py"
    model.write_text(
        "import euler_ir as ei\nwith ei.Graph('g') as g:\n"
        "    ei.output(y=ei.input('\\N{GREEK SMALL LETTER BETA}', ()))\n"
    )
    printed = euler_ir("dump", f"{model}:g", "--stage", "graph", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert printed.returncode == 0 and printed.stderr == "" and "\\u03b2" in printed.stdout


def test_stdin_that_is_no_text():
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-m", "euler_ir", "run", "-"]
    refused = subprocess.run(command, input=b"eir 1\n\xff\xfe", capture_output=True, env=strict)
    assert refused.returncode == 2 and refused.stderr.startswith(b"euler-ir: stdin is not text")

"""Files of models appear whole or not at all, and what never ends is not read."""

import os
import stat

import pytest

from models.chat.conversation import read_conversations
from models.data.corpus import read_corpus
from models.data.sources import SourceFiles
from models.files import read_json, replacing
from models.tokenizer.formats import load_tokenizer
from models.training.checkpoint import Checkpoint


def write(path, content):
    with replacing(path) as file:
        file.write(content)


def test_a_link_and_permissions_stay(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    write(file, b"first")
    file.chmod(0o640)
    link.symlink_to(file)
    write(link, b"second")
    assert link.is_symlink() and file.read_bytes() == b"second"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640 and sorted(tmp_path.iterdir()) == [file, link]


def test_a_file_and_its_name_survive_a_power_failure(tmp_path, monkeypatch):
    flushed, fsync, replace = [], os.fsync, os.replace

    def flush(descriptor):
        flushed.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    def rename(*paths):
        flushed.append("renamed")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    write(tmp_path / "file", b"content")
    assert flushed == [False, "renamed", True]


def test_only_a_regular_file_is_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "full"
    os.mkfifo(pipe)
    link.symlink_to("/dev/full")
    for path in (pipe, link):
        with pytest.raises(OSError, match=f"{path} is a device or a pipe"):
            write(path, b"content")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and sorted(tmp_path.iterdir()) == [link, pipe]


def test_what_cannot_be_written_is_said_of_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / ("n" * 250)
    with pytest.raises(OSError, match="too long") as error:
        write(path, b"content")
    assert error.value.filename == str(path)
    other = OSError(5, "Input/output error", "another file")
    with pytest.raises(OSError) as error, replacing(tmp_path / "file"):
        raise other
    assert error.value is other and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "read",
    [read_conversations, read_corpus, read_json, load_tokenizer, Checkpoint.load, lambda path: SourceFiles.of([path])],
)
def test_what_never_ends_is_not_read(tmp_path, read):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        with pytest.raises(OSError, match=f"{path} is a device or a pipe"):
            read(str(path))

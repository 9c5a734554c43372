"""The docs say what happens: every transcript is run again, and every command has a page with one.

    pytest tests/test_docs.py --update-docs

writes what the commands print now into the pages.
"""

import difflib
import json
import os
import re

import pytest
from transcripts import ROOT, Command, Session, matches, rewritten, shortened, transcripts

from euler_ir.cache import FOLDER_VARIABLE
from euler_ir.commands import COMMANDS
from euler_ir.passes import PASSES, Pass

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INDEX = ROOT / "docs" / "commands" / "README.md"


@pytest.fixture
def session(tmp_path, monkeypatch):
    return begun(tmp_path, monkeypatch, dict(os.environ))


@pytest.fixture
def session_of_a_page(tmp_path, monkeypatch):
    """One that begins as a new user's does, with nothing compiled."""
    return begun(tmp_path, monkeypatch, {name: text for name, text in os.environ.items() if name != FOLDER_VARIABLE})


def begun(folder, monkeypatch, environment):
    session = Session(folder, environment)
    for name in os.environ.keys() - environment.keys():
        monkeypatch.delenv(name)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    return session


def page_of(command):
    return INDEX.with_name(f"{command}.md")


def with_transcripts():
    return [page for page in PAGES if any(block.not_run is None for block in transcripts(page.read_text()))]


def need_compilers(commands, request):
    """Skip the test if one of ``commands`` compiles CUDA with what is not installed."""
    for compiler, called in {"cpp_compiler": "emulator", "gpu_compiler": r"\b(resources|ptx|sass)\b"}.items():
        if any(re.search(called, command.text) for command in commands):
            request.getfixturevalue(compiler)


@pytest.mark.parametrize("page", with_transcripts(), ids=lambda page: str(page.relative_to(ROOT)))
def test_transcripts_are_what_is_printed(page, session_of_a_page, request):
    text = page.read_text()
    commands = [command for block in transcripts(text) if block.not_run is None for command in block.commands]
    need_compilers(commands, request)
    now = rewritten(text, session_of_a_page)
    if request.config.option.update_docs:
        page.write_text(now)
    elif now != text:
        changes = "\n".join(difflib.unified_diff(text.splitlines(), now.splitlines(), "the page", "now", lineterm=""))
        pytest.fail(f"{page.relative_to(ROOT)} says what is no longer so:\n{changes}", pytrace=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_in_the_index(command):
    assert page_of(command).is_file(), f"write docs/commands/{command}.md"
    lines = [line for line in INDEX.read_text().splitlines() if line.startswith(f"| [{command}]({command}.md) |")]
    assert len(lines) == 1, f"docs/commands/README.md lists {command} {len(lines)} times"
    assert first_call(command) is not None, f"docs/commands/{command}.md has no transcript that begins with it"


def first_call(name):
    """The commands of the page of ``name`` up to the first plain call of it, or None."""
    before = []
    for block in transcripts(page_of(name).read_text()):
        for command in block.commands if block.not_run is None else ():
            before.append(command)
            if (command.arguments() or [None])[0] == name:
                return before
    return None


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_as_json(name, session, request):
    *before, call = first_call(name)
    need_compilers([call], request)
    for command in before:
        session.run(command)
    text = "\n".join(session.run(Command(f"{call.text} --json", ())))
    assert isinstance(json.loads(text), dict | list)


def test_the_index_lists_commands_only():
    listed = [line[3:].split("]")[0] for line in INDEX.read_text().splitlines() if line.startswith("| [")]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if "://" not in link and not page.parent.joinpath(link).exists()]
    assert not missing


# -- the runner itself -------------------------------------------------------------------------------------------------

PAGE = """\
# A page

```console
$ echo one; echo two 3 ms
one
two 4 ms
$ cat > note.txt <<END
> a note
>
> END
$ cat note.txt
...
```

<!-- not run: it takes a day -->
```console
$ sleep 86400
```

<!-- figures vary -->
```console
$ echo "rate   12.5 GB/s"
rate 3 GB/s
```
"""


def test_blocks_of_a_page():
    first, second, third = transcripts(PAGE)
    assert [command.text for command in first.commands] == [
        "echo one; echo two 3 ms",
        "cat > note.txt <<END\na note\n\nEND",
        "cat note.txt",
    ]
    assert first.commands[0].output == ("one", "two 4 ms") and first.line == 3
    assert (second.not_run, third.figures_vary) == ("it takes a day", True)


def test_what_still_holds_is_left_alone(session):
    assert rewritten(PAGE, session) == PAGE
    assert (session.folder / "note.txt").read_text() == "a note\n\n"


def test_what_changed_is_rewritten(session):
    changed = PAGE.replace("one\ntwo 4 ms", "one\ntwo 4 mm").replace("rate 3", "pace 3")
    now = rewritten(changed, session)
    assert now == PAGE.replace("two 4 ms", "two 3 ms").replace("rate 3 GB", "rate   12.5 GB")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```console\nls\n```\n", "does not begin with"),
        ("```console\n```\n", "empty"),
        ("<!-- not run: -->\n```console\n$ ls\n```\n", "say why"),
    ],
)
def test_a_block_that_is_none(page, message):
    with pytest.raises(ValueError, match=message):
        transcripts(page)


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        (["a", "..."], ["a"], True),
        (["a", "...", "c"], ["a", "b", "b", "c"], True),
        (["...", "c", "..."], ["c", "b"], True),
        (["a", "...", "c"], ["a", "b"], False),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        (["took 3.1 ms at 0x7f0012ab"], ["took 12 ms at 0x7f00ffff"], True),
        (["time     n", " 3.1 ms  4"], ["  time  n", "13.1 ms  4"], True),
        (["4 operators"], ["5 operators"], False),
        (["a  4"], ["a   4"], False),
        (["3 ms of 4"], ["2 ms of 5"], False),
    ],
)
def test_matching(wanted, found, same):
    assert matches(wanted, found) is same


def test_matching_of_figures():
    assert matches(["── a   12.5%", "b 3"], ["──── a 7%", "b   -1e-7"], figures_vary=True)
    assert not matches(["a 12"], ["b 12"], figures_vary=True)


@pytest.mark.parametrize(
    ("wanted", "now"),
    [
        ("a", "a b c d e f"),
        ("a ...", "a ..."),
        ("a b ... f", "a b ... f"),
        ("x y ... z", "a b ... f"),
        ("... d e ...", "... d e ..."),
        ("a ... x e ... f", "a ... d e ... f"),
        ("...", "..."),
    ],
)
def test_what_a_page_leaves_out_stays_left_out(wanted, now):
    assert shortened(wanted.split(), "a b c d e f".split()) == now.split()


def test_an_error_is_part_of_the_transcript(session):
    (line,) = session.run(Command("euler-ir dump absent.py:f --stage graph", ()))
    assert line == "euler-ir: there is no file 'absent.py'"
    assert session.run(Command("euler-ir dump absent.py:f --stage graph || echo $?", ())) == [line, "2"]


def test_commands_in_a_shell_take_pytest_for_no_worker(session, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert session.run(Command("env | grep ^PYTEST_XDIST_ || echo none", ())) == ["none"]


PASS = """\
from euler_ir.passes import Pass


class OfAPage(Pass):
    '''Leave all as it is.'''

    name = "of-a-page"

    def run(self, graph):
        return graph
"""


def test_what_a_command_loads_is_loaded_for_it_alone(session):
    (session.folder / "of_a_page.py").write_text(PASS)
    (session.folder / "loads_it.py").write_text("import of_a_page\n")
    with_it, without = Command("euler-ir passes --load loads_it.py", ()), Command("euler-ir passes", ())
    for _ in range(2):  # a second time it is not loaded already
        assert any("of-a-page" in line for line in session.run(with_it))
        assert not any("of-a-page" in line for line in session.run(without))


def test_what_a_test_defines_is_not_known_to_commands(session):
    made = type("OfATest", (Pass,), {"__doc__": "None.", "__module__": "a_test", "name": "of-a-test", "run": None})
    try:
        assert not any("of-a-test" in line for line in session.run(Command("euler-ir passes", ())))
        assert PASSES["of-a-test"] is made
    finally:
        del PASSES["of-a-test"]

"""The page in a real browser: clicks, keys, search, what lights up where, and that nothing complains."""

import json
import re
from pathlib import Path

import pytest
from test_page import HOSTILE, hostile_graph
from test_record import stage_texts

from euler_ir.inspect.explorer.collect import explore
from euler_ir.inspect.explorer.page import page
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.compare import compare
from euler_ir.inspect.user_graph import load_graph
from euler_ir.text import parse_graph

ROOT = Path(__file__).parents[2]
MLP = f"{ROOT / 'examples' / 'mlp.py'}:train_graph"
GPT2 = f"{ROOT / 'examples' / 'gpt2_graphs.py'}:gpt2_step"
TANH = next(f"%{op.result.name}" for op in load_graph(MLP).ops if op.name == "tanh")
PANES = ("layers", "source", "stages", "kernels", "fusion", "memory")


@pytest.fixture
def mlp(browser, written):
    browser.size(1440, 900)
    browser.open(written(MLP))
    yield browser
    assert browser.complaints == []


def fragment(browser):
    return browser.run("location.hash")


def lit(browser, pane):
    """The text of the rows that are lit in ``pane``."""
    return browser.texts(f"#pane-{pane} .row.linked, #pane-{pane} .row.chosen")


def counts(browser):
    """How many things of each pane are linked to the selection, by the number beside its title."""
    found = {name: browser.texts(f"#tab-{name} .count") for name in PANES}
    return {name: int(texts[0]) for name, texts in found.items() if texts and texts[0]}


def row(pane, text, browser):
    """A selector of the first row of ``pane`` in which ``text`` is."""
    rows = browser.texts(f"#pane-{pane} .row")
    place = next((number for number, row in enumerate(rows) if text in row), None)
    assert place is not None, rows
    return f"#pane-{pane} .row:nth-child({place + 1}) > :last-child"


def test_the_page_opens_with_every_pane(mlp):
    assert "train_graph" in mlp.texts("#top p")[0] and mlp.run("document.title") == "train · euler_ir"
    assert "model = nn.Sequential(nn.Linear(2, 16), ei.tanh" in "".join(mlp.texts("#pane-source .row"))
    assert f"{TANH} = tanh %" in "".join(mlp.texts("#pane-stages .row"))
    assert {"0", "2", "optim"} <= set(mlp.texts("#pane-layers .layer-name"))
    mlp.wait("document.querySelectorAll('#pane-kernels .code-row').length")
    assert mlp.texts("#pane-memory rect title")


def test_a_line_lights_up_in_every_pane(mlp):
    mlp.click(row("source", "loss = ((model(x)", mlp))
    mlp.wait("location.hash.includes('line:examples/mlp.py:13')")
    assert len(lit(mlp, "source")) == 1
    assert any(f"{TANH} = tanh" in text for text in lit(mlp, "stages"))
    assert {"0", "2"} <= {text.split()[0][0] for text in lit(mlp, "layers")}
    assert lit(mlp, "kernels") and lit(mlp, "memory")
    assert set(counts(mlp)) == set(PANES)
    mlp.click("#tab-fusion")
    mlp.wait("document.querySelector('#pane-fusion .row.linked')")


@pytest.mark.parametrize(
    ("pane", "text", "selected"),
    [
        ("layers", "optim", "layer:optim"),
        ("stages", f"{TANH} = tanh", f"value:{TANH}"),
        ("kernels", "sqrt_subtract", "kernel:"),
        ("memory", "tanh", "buffer:"),
        ("fusion", "", "value:"),
    ],
)
def test_what_is_clicked_is_selected_and_linked_elsewhere(mlp, pane, text, selected):
    if pane == "fusion":
        mlp.click("#tab-fusion")
        mlp.wait("document.querySelector('#pane-fusion .row')")
    mlp.click(row(pane, text, mlp))
    mlp.wait(f"decodeURIComponent(location.hash).includes({json.dumps('select=' + selected)})")
    others = counts(mlp)
    assert set(PANES) - {"source", "layers"} <= set(others), others
    assert mlp.texts("#pane-details h3")[0]


def test_the_selection_says_why_a_value_goes_through_memory(mlp):
    mlp.click("#tab-fusion")
    mlp.wait("document.querySelector('#pane-fusion .row')")
    value = mlp.texts("#pane-fusion .row:first-child .code-name")[0]
    why = mlp.texts("#pane-fusion .row:first-child .aside")[0].split(" · ")[0]
    mlp.click("#pane-fusion .row:first-child .code-name")
    mlp.wait(f"document.querySelector('#pane-details h3').textContent === {json.dumps(value)}")
    assert any(f"{why}. To lift it: " in text for text in mlp.texts("#pane-details .reason"))


def test_search_by_keyboard_and_back(mlp):
    mlp.press("/")
    mlp.type("tanh")
    mlp.wait("document.querySelector('#search-found li b')?.textContent.includes('tanh')")
    assert mlp.run("document.activeElement.id") == "search-input"
    first = mlp.run("document.querySelector('#search-found [aria-selected=true]').textContent")
    mlp.press("ArrowDown")
    assert mlp.run("document.querySelector('#search-found [aria-selected=true]').textContent") != first
    mlp.press("ArrowUp", "Enter")
    mlp.wait("location.hash.includes('select=')")
    assert not mlp.run("document.getElementById('search').open")
    chosen = fragment(mlp)
    mlp.press("Escape")
    mlp.wait("!location.hash.includes('select=')")
    mlp.run("history.back()")
    mlp.wait(f"location.hash === {json.dumps(chosen)}")
    mlp.wait("document.querySelector('.row.chosen, .row.linked')")
    mlp.press("/")
    mlp.run("document.getElementById('search-input').value = ''")
    mlp.type("no such thing anywhere")
    mlp.wait("!document.getElementById('search-none').hidden")
    mlp.press("Escape")
    mlp.wait("!document.getElementById('search').open")


def test_the_fragment_opens_the_page_as_it_was(browser, written):
    browser.open(written(MLP), f"select=value:%25{TANH[1:]}&stage=2&right=fusion&view=diff")
    browser.wait("document.querySelector('#pane-fusion .row')")
    assert browser.texts("#pane-details h3") == [TANH]
    assert browser.run("document.querySelectorAll('.strip [aria-pressed=true]').length") == 1
    assert browser.run("[...document.querySelectorAll('.tick')].findIndex((t) => t.ariaPressed === 'true')") == 2
    assert browser.run("document.getElementById('tab-fusion').ariaSelected") == "true"
    browser.open(written(MLP), "select=value:%25nothing&stage=900&right=what")
    assert browser.complaints == []


def test_stages_by_keys_and_what_a_pass_changed(mlp):
    mlp.press("]")
    mlp.wait("location.hash.includes('stage=1')")
    mlp.press("[")
    mlp.wait("!location.hash.includes('stage=1')")
    names = mlp.run("[...document.querySelectorAll('.tick')].map((tick) => tick.ariaLabel)")
    changed = next(number for number, name in enumerate(names) if re.search(r"−[1-9].* \+[1-9]", name))
    mlp.run(f"document.querySelectorAll('.tick')[{changed}].click()")
    mlp.press("d")
    mlp.wait("document.querySelector('#pane-stages .row.added')")
    assert mlp.texts("#pane-stages .row.removed")
    simplify = next(number for number, name in enumerate(names) if name.startswith("simplify") and ", −" in name)
    mlp.run(f"document.querySelectorAll('.tick')[{simplify}].click()")
    mlp.click("#slot-stages .segmented [data-value=rules]")
    mlp.wait("document.querySelector('#pane-stages .rule-row')")
    mlp.click("#pane-stages .rule-row b")
    mlp.wait("location.hash.includes('rule:')")


def test_every_stage_is_shown_as_it_is(mlp):
    rows = (
        "[...document.querySelectorAll('#pane-stages .row')]"
        ".map((row) => [row.querySelector('.number').textContent, row.querySelector('code').textContent])"
    )
    for number, lines in enumerate(stage_texts(explore(load_graph(MLP)).record())):
        mlp.run(f"location.hash = 'stage={number}'")
        mlp.wait(f"document.querySelectorAll('.tick')[{number}].ariaPressed === 'true'")
        for key in ("Home", "End"):
            mlp.run("document.querySelector('#pane-stages .list').focus()")
            mlp.press(key)
            shown = {int(at): text for at, text in mlp.run(rows)}
            assert (1 if key == "Home" else len(lines)) in shown
            assert all(lines[at - 1] == text for at, text in shown.items())


def test_code_of_a_kernel_in_three_languages(mlp):
    mlp.wait("document.querySelector('#pane-kernels .code-row')")
    for view, mark in (("llvm", "define void @"), ("assembly", ".text"), ("loops", "nest (")):
        mlp.click(f"#pane-kernels .segmented [data-value={view}]")
        mlp.wait(f"document.querySelector('#pane-kernels .code-head [data-value={view}]').ariaPressed === 'true'")
        assert mark in "\n".join(mlp.texts("#pane-kernels .code-row code"))


def test_memory_by_line_and_in_place(mlp):
    for name, mark in (("lines", "mlp.py:13"), ("decisions", "in place"), ("all", "parameter"), ("peak", "f32[")):
        mlp.run(f"(() => {{ const which = document.querySelector('#slot-below select'); which.value = '{name}';"
                "which.dispatchEvent(new Event('change')); })()")
        assert any(mark in text for text in mlp.texts("#pane-memory .row")), name
    mlp.click("#pane-memory .row")
    mlp.wait("location.hash.includes('buffer:')")
    assert mlp.texts("#pane-memory rect.chosen title")


def test_numerics_are_shown_or_how_to_get_them(mlp, tmp_path):
    mlp.click("#tab-numerics")
    mlp.wait("document.querySelector('#pane-numerics .note')")
    assert "euler-ir explore --numerics" in mlp.texts("#pane-numerics .note")[0]
    graph, path = load_graph(MLP), tmp_path / "numerics.html"
    path.write_text(page(explore(graph, compared=compare(graph, given_arrays(graph)))), encoding="utf-8")
    mlp.open(path, "below=numerics")
    assert "no NaN" in mlp.texts("#pane-numerics .about")[0] and "ulp" in "".join(mlp.texts("#pane-numerics .row"))
    mlp.click("#pane-numerics .row")
    mlp.wait("location.hash.includes('value:')")
    assert lit(mlp, "numerics") and lit(mlp, "source")


def test_lists_and_the_tree_by_arrow_keys(mlp):
    mlp.run("document.querySelector('#pane-source .list').focus()")
    mlp.press("ArrowDown", "ArrowDown")
    assert mlp.run("document.activeElement.getAttribute('aria-activedescendant')")
    mlp.run("document.querySelector('#pane-layers .list').focus()")
    mlp.press("ArrowDown", "Enter")
    mlp.wait("location.hash.includes('select=layer:')")
    assert mlp.run("document.querySelector('#pane-layers [aria-selected=true]').role") == "treeitem"


def test_everything_that_is_operated_has_a_name_and_a_role(mlp):
    unnamed = mlp.run(
        "[...document.querySelectorAll('button, select, input, [tabindex]')]"
        ".filter((each) => !(each.ariaLabel || each.textContent.trim())"
        " || !(each.role || /BUTTON|SELECT/.test(each.tagName)))"
        ".map((each) => each.outerHTML)"
    )
    assert unnamed == []
    tree = mlp.call("Accessibility.getFullAXTree")["nodes"]
    roles = {node["role"]["value"] for node in tree if not node["ignored"]}
    assert {"tree", "treeitem", "listbox", "option", "tablist", "tab", "tabpanel", "heading"} <= roles


def test_paper_is_light_and_has_every_pane(browser, written):
    browser.size(1440, 900, "dark")
    browser.open(written(MLP))
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert browser.run("[...document.querySelectorAll('.slot')].every((each) => each.clientHeight > 100)")
    browser.call("Emulation.setEmulatedMedia", media="")


def test_light_and_dark(browser, written):
    paper = "getComputedStyle(document.body).backgroundColor"
    seen = []
    for theme in ("light", "dark"):
        browser.size(1024, 768, theme)
        browser.open(written(MLP))
        seen.append(browser.run(paper))
    browser.press("t")
    assert seen[0] != seen[1] and browser.run(paper) == seen[0]
    browser.size(1440, 900)
    assert browser.complaints == []


def test_panes_are_resized_and_enlarged(mlp):
    width = "document.getElementById('slot-layers').getBoundingClientRect().width"
    before = mlp.run(width)
    mlp.run("document.querySelector('main > .resizer').focus()")
    mlp.press("ArrowRight", "ArrowRight")
    assert mlp.run(width) > before
    mlp.run("document.querySelector('#pane-memory .list').focus()")
    mlp.press("m")
    mlp.wait("document.getElementById('slot-below').getBoundingClientRect().width > 1300")
    mlp.press("Escape")
    mlp.wait("document.getElementById('slot-below').getBoundingClientRect().width < 900")
    mlp.press("?")
    mlp.wait("document.getElementById('help').open")


def test_hostile_names_are_shown_as_they_are(browser, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(page(explore(hostile_graph(), HOSTILE)), encoding="utf-8")
    browser.open(path)
    assert browser.texts("h1") == [HOSTILE]
    assert browser.run("document.getElementById('evil')") is None
    browser.press("/")
    browser.type("evil")
    browser.wait("document.querySelector('#search-found li')")
    browser.press("Enter")
    browser.wait("location.hash.includes('select=')")
    assert HOSTILE in browser.texts("#pane-details h3")[0]
    assert browser.run("document.getElementById('evil')") is None and browser.complaints == []


EMPTY = "eir 1\ngraph @empty {\n}\n"
ONE = 'eir 1\ngraph @one {\n  %x = input {name = "x"} : f32[2]\n  output "y" = %x\n}\n'


@pytest.mark.parametrize("text", [EMPTY, ONE], ids=["empty", "one"])
def test_graphs_that_are_hardly_any(browser, tmp_path, text):
    path = tmp_path / "page.html"
    path.write_text(page(explore(parse_graph(text))), encoding="utf-8")
    browser.open(path)
    browser.wait("document.querySelector('#pane-stages .row')")
    assert "has none" in "".join(browser.texts("#pane-source .note"))
    assert browser.complaints == []


def test_the_step_of_gpt2_124m(browser, written):
    path = written(GPT2)
    assert path.stat().st_size < 5_000_000
    browser.size(1440, 900)
    browser.open(path)
    browser.wait("document.querySelector('#pane-stages .row')")
    assert browser.run("document.querySelectorAll('*').length") < 4000  # lists make what is in sight, and no more
    browser.press("/")
    browser.type("h.11.attn.c_proj.weight")
    browser.wait("document.querySelector('#search-found li')")
    browser.press("Enter")
    browser.wait("decodeURIComponent(location.hash).includes('h.11.attn.c_proj.weight')")
    assert set(counts(browser)) == set(PANES)
    assert browser.complaints == []

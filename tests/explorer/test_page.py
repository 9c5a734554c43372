"""The page as a file: one, complete, small, and safe whatever the graph is called. No browser is needed here."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.inspect.explorer import page as page_module
from euler_ir.inspect.explorer.collect import explore
from euler_ir.inspect.explorer.page import SCRIPTS, STYLES, page

ROOT = Path(__file__).parents[2]
FILES = Path(page_module.__file__).parent / "page"
HOSTILE = '</script><b id="evil">&amp;{{script}}'


class Reader(HTMLParser):
    """Collects the elements of a page: (tag, attributes), and the text of scripts by their id."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self._script = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._script = dict(attributes).get("id", "code") if tag == "script" else None

    def handle_endtag(self, tag):
        self._script = None

    def handle_data(self, data):
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def hostile_graph():
    with ei.Graph(HOSTILE) as graph:
        with graph.scope(HOSTILE):
            x = ei.input(HOSTILE, (2,)).exp().named(HOSTILE)  # </script><b id="evil">
        ei.output(**{HOSTILE: x})
    return graph


@pytest.fixture(scope="module")
def hostile():
    return explore(hostile_graph(), HOSTILE)


def test_names_are_never_read_as_html(hostile):
    reader = Reader(page(hostile))
    assert not [attributes for _, attributes in reader.elements if attributes.get("id") == "evil"]
    assert [tag for tag, _ in reader.elements].count("script") == 1 + len(hostile.parts)


def test_the_parts_decode_to_the_record(hostile):
    reader = Reader(page(hostile))
    for name, record in hostile.parts.items():
        text = zlib.decompress(base64.b64decode(reader.scripts[f"part-{name}"])).decode()
        assert json.loads(text) == json.loads(json.dumps(record))
    assert HOSTILE in json.loads(zlib.decompress(base64.b64decode(reader.scripts["part-places"])))["scopes"]


def test_nothing_comes_from_elsewhere(hostile):
    text = page(hostile)
    reader = Reader(text)
    for tag, attributes in reader.elements:
        assert "src" not in attributes and (tag != "link" or attributes["href"] == "data:,")
    policy = next(attributes for tag, attributes in reader.elements if attributes.get("http-equiv"))
    assert policy["content"].startswith("default-src 'none'; ")
    names = [*(f"{style}.css" for style in STYLES), *(f"{script}.js" for script in SCRIPTS)]
    own = "".join((FILES / name).read_text() for name in names)
    assert set(re.findall(r"https?://[^\s\"']+", own)) == {"http://www.w3.org/2000/svg"}
    assert "</" + "script" not in own and "@import" not in own and "innerHTML" not in own


def test_every_file_of_the_page_is_in_it():
    used = {"explorer.html", *(f"{script}.js" for script in SCRIPTS), *(f"{style}.css" for style in STYLES)}
    assert {path.name for path in FILES.iterdir()} == used


def test_ids_are_there_once_and_controls_have_names(hostile):
    elements = Reader(page(hostile)).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in elements:
        if attributes.get("role") == "separator" or tag in ("dialog", "input"):
            assert attributes.get("aria-label")


def luminance(colour):
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


INKS = ("ink", "soft", "accent", "code-name", "code-word", "code-type", "code-string")
GROUNDS = ("paper", "pane", "sunk", "linked", "chosen", "added", "removed")


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", INKS)
def test_contrast_is_enough_to_read(ink, theme):
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", (FILES / "base.css").read_text())
    colours = {name: pair[theme] for name, *pair in found}
    for ground in GROUNDS:
        assert contrast(colours[ink], colours[ground]) >= 4.5, f"{ink} on {ground}"


def test_the_command_writes_a_page_or_prints_json(tmp_path, capsys):
    target = f"{ROOT / 'examples' / 'mlp.py'}:train_graph"
    out = tmp_path / "out.html"
    assert main(["explore", target, "-o", str(out)]) == 0
    assert re.fullmatch(rf"wrote {re.escape(str(out))}, 0\.\d MB\n", capsys.readouterr().out)
    assert "<title>train · euler_ir</title>" in out.read_text(encoding="utf-8")
    assert main(["explore", target, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["version"] == 1 and record["title"] == "train"
    with pytest.raises(SystemExit):
        main(["explore", target])
    assert "say where to write the page" in capsys.readouterr().err
    assert main(["explore", target, "-o", str(tmp_path / "no" / "out.html")]) == 2

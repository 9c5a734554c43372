import pytest
from browser import Browser, find

from euler_ir.inspect.explorer.collect import explore
from euler_ir.inspect.explorer.page import page
from euler_ir.inspect.user_graph import load_graph

HOW_TO_GET_ONE = "no headless Chromium: run scripts/install_chromium.py, or apt-get install chromium-headless-shell"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if find() is None:
        pytest.skip(HOW_TO_GET_ONE)
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """``written(target)`` is the page of a target, made once."""
    made = {}

    def write(target):
        if target not in made:
            made[target] = tmp_path_factory.mktemp("page") / "page.html"
            made[target].write_text(page(explore(load_graph(target), target)), encoding="utf-8")
        return made[target]

    return write

"""Data flows downwards: a module imports from its own level and those below, never from above."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import euler_ir

ROOT = Path(euler_ir.__file__).parent.parent
LEVELS = [
    {"errors", "cache", "files", "pages", "threads", "residence"},
    {"dtypes"},
    {"shapes"},
    {"index"},
    {"initializers", "tensor", "absent"},
    {"ops"},
    {"graph", "names", "rebuild"},
    {
        *("builder", "edit", "state", "text", "verify", "interpreter"),
        *("graph_equality", "widen", "rounding", "gradient_samples"),
    },
    {"autodiff"},
    {"passes", "nn", "optim", "quantization"},
    {"loops"},
    {"plan"},
    {"compiler", "native"},
    {"inspect", "gradient_check"},
    {"cli", "commands", "testing", "__main__"},
]
LEVEL_OF = {module: level for level, modules in enumerate(LEVELS) for module in modules}
BACKENDS_MAY_SEE = {"backends", "loops", "plan", "dtypes", "shapes", "index", "errors"} | LEVELS[0]
USERS_MAY_SEE = {"euler_ir"} | {
    f"euler_ir.{name}" for name in ("nn", "optim", "passes", "initializers", "gradient_check", "quantization", "native")
}
UPWARDS = {("graph", "text")}  # str(graph) is its text


def imports(path):
    """(module, line) for each thing that a file imports, inside of functions too; relative imports made absolute."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield (name if is_module(name) else module), node.lineno


def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def part(module):
    """'passes' for 'euler_ir.passes.cse'; None for what is not ours or is the package itself."""
    names = module.split(".")
    return names[1] if names[0] == "euler_ir" and len(names) > 1 else None


def files(folder):
    return sorted(path for path in (ROOT / folder).rglob("*.py") if (ROOT / folder).exists())


def own_files():
    return [path for path in files("euler_ir") if path != ROOT / "euler_ir" / "__init__.py"]


def part_of(path):
    return path.relative_to(ROOT).with_suffix("").parts[1]


@pytest.mark.parametrize("path", own_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path):
    importer = part_of(path)
    for module, line in imports(path):
        imported = part(module)
        assert module != "euler_ir", f"{path}:{line} imports the public names from inside"
        if imported is None or importer == imported:
            continue
        if importer == "backends":
            assert imported in BACKENDS_MAY_SEE, f"{path}:{line}: a backend imports {module}"
        elif imported == "backends":
            assert LEVEL_OF[importer] >= LEVEL_OF["compiler"], f"{path}:{line} imports {module}, which is above"
        else:
            below = LEVEL_OF[imported] <= LEVEL_OF[importer] or (importer, imported) in UPWARDS
            assert below, f"{path}:{line} imports {module}, which is above"


def test_every_module_has_a_level():
    assert {part_of(path) for path in own_files()} - {"backends"} <= set(LEVEL_OF)


@pytest.mark.parametrize("folder", ["models", "examples"])
def test_users_see_public_names_only(folder):
    for path in files(folder):
        for module, line in imports(path):
            if module.split(".")[0] == "euler_ir":
                assert module in USERS_MAY_SEE, f"{path}:{line} reaches past the public names: {module}"


def loaded_by(script):
    """Which of the large packages are loaded after ``script`` in a Python of its own."""
    script += "\nimport sys; print([name for name in ('cupy', 'llvmlite', 'networkx', 'torch') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return run.stdout.splitlines()[-1]


@pytest.mark.parametrize("module", ["euler_ir", "euler_ir.native", "models.tokenizer.bpe"])
def test_importing_a_package_imports_no_code_generator(module):
    assert loaded_by(f"import {module}") == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["cache"],
        ["dump", "examples/mlp.py:train_graph", "--stage", "plan"],
        ["explain", "%loss", "examples/mlp.py:train_graph"],
        ["fusion", "examples/mlp.py:train_graph"],
        ["memory", "examples/mlp.py:train_graph"],
    ],
    ids=lambda words: words[0],
)
def test_commands_that_generate_no_code_load_no_code_generator(arguments):
    assert loaded_by(f"from euler_ir.cli import main; main({arguments})") == "[]"


def test_the_reader_of_imports(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    package = tmp_path / "euler_ir" / "passes"
    package.mkdir(parents=True)
    (package / "cse.py").write_text(
        "import numpy as np\nfrom euler_ir import passes, exp\nfrom . import cse\nfrom ..text import printer\n"
        "def f():\n    import euler_ir.cli\n"
    )
    assert sorted(imports(package / "cse.py")) == [
        ("euler_ir", 2),
        ("euler_ir.cli", 6),
        ("euler_ir.passes", 2),
        ("euler_ir.passes.cse", 3),
        ("euler_ir.text", 4),
        ("numpy", 1),
    ]

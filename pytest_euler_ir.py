"""The pytest plugin of euler_ir: collects ``.eir`` files that test passes. See docs/testing_passes.md.

It stands outside of the package, so that a run of pytest that meets no such file does not import the package.
"""


def pytest_addoption(parser):
    parser.getgroup("euler_ir").addoption(
        "--eir-update",
        action="store_true",
        help="write CHECK lines into tests in .eir files that have a RUN line and no CHECK line",
    )


def pytest_collect_file(file_path, parent):
    if file_path.suffix != ".eir":
        return None
    from euler_ir.testing.plugin import EirFile

    return EirFile.from_parent(parent, path=file_path)

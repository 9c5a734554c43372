"""Sees to a C++ compiler for the CUDA emulator: `make test` calls this.

There is nothing to do where g++ is on the PATH. Else it is installed where that needs no question, as root with
apt-get; elsewhere the tests that run CUDA in the emulator are skipped, and say so.
"""

import os
import shutil
import subprocess

COMMANDS = (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "g++"))
SECONDS = 600


def main():
    if shutil.which("g++") is not None:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print("no g++: tests in the CUDA emulator will be skipped (to have them: sudo apt-get install g++)")
        return
    try:
        for command in COMMANDS:
            subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no g++ from apt-get, so tests in the CUDA emulator will be skipped: {error}")


if __name__ == "__main__":
    main()

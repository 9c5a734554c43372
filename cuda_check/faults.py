"""The seeded faults of the CUDA backend: how many its tests find."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("cuda", "simt_attention", "flash_attention", "emulator")
"""Of the table of faults: those of the CUDA backend."""


def check_faults():
    """A record for each fault: its name, what it imitates, and the test that found it, None if none did.

    Raises RuntimeError when the tests fail without any fault.
    """
    command = (sys.executable, "tests/faults/run.py", "--json", "--of", ",".join(PARTS))
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not ran.stdout.startswith("["):
        raise RuntimeError(f"the faults could not be planted:\n{ran.stderr[-4000:]}")
    return [
        {**outcome, "wrong": None if outcome["killed_by"] else f"no test finds the fault {outcome['fault']}"}
        for outcome in json.loads(ran.stdout)
    ]

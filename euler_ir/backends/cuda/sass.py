"""Machine code of a GPU as text, SASS: read from cubins by NVIDIA's nvdisasm, which needs neither GPU nor driver."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter

from euler_ir.backends.cuda.toolkit import installed
from euler_ir.errors import LoweringError

_TOOL = "nvdisasm"
_PACKAGES = ("nvidia.cu13", "nvidia.cuda_nvdisasm")
_SECONDS = 120
_KERNEL = re.compile(r"^\.text\.(\w+):\n(.*?)(?=^//-{5,}|\Z)", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", re.MULTILINE)
_TENSOR_CORE = re.compile(r"(HMMA|IMMA|DMMA|BMMA|HGMMA|IGMMA|QGMMA|OMMA|UTC\w*MMA)\b")


def disassemble(cubin: bytes) -> dict[str, str]:
    """The instructions of each kernel of ``cubin`` by its name, a line each, labels between.

    Raises LoweringError when there is no nvdisasm, or when it refuses the file.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        ran = subprocess.run((_tool(), "-c", file.name), capture_output=True, text=True, timeout=_SECONDS)
    found = {name: body.rstrip() + "\n" for name, body in _KERNEL.findall(ran.stdout)}
    if ran.returncode or not found:
        raise LoweringError(f"{_TOOL} cannot read the cubin", details=tuple(ran.stderr.splitlines()[:10]))
    return found


def opcodes(sass: str) -> Counter[str]:
    """How often each instruction stands in ``sass``, by its name with modifiers, such as ``LDG.E.128``."""
    return Counter(_INSTRUCTION.findall(sass))


def tensor_core_instructions(sass: str) -> int:
    """How many instructions of ``sass`` run on tensor cores."""
    return sum(count for opcode, count in opcodes(sass).items() if _TENSOR_CORE.match(opcode))


@functools.cache
def _tool() -> str:
    for path in (*installed((_TOOL,), _PACKAGES, "bin"), shutil.which(_TOOL)):
        if path is not None and os.access(path, os.X_OK):
            return str(path)
    raise LoweringError(
        f"there is no {_TOOL}, which reads the machine code of a GPU", hint="pip install nvidia-cuda-nvdisasm"
    )

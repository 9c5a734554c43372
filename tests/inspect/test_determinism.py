"""Processes that hash differently and run on other numbers of threads give the same texts, code and bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import hashlib, json, sys

import numpy as np

from euler_ir.backends.cpu.kernel_code import kernel_modules
from euler_ir.backends.cpu.program import CpuProgram
from euler_ir.compiler import Executable, lower
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.loops.printer import print_kernels
from euler_ir.state import initial_state
from euler_ir.testing.random_graphs import random_graph
from examples.gpt2_graphs import nano_step

THREADS = int(sys.argv[1])


def digest(*parts):
    return hashlib.sha256(b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()


def said(graph, inputs, kept):
    stages = lower(graph)
    # Which products go to OpenBLAS is measured, and so is no function of the graph.
    executable = Executable(graph, stages, CpuProgram(stages.plan, THREADS, by_openblas=False))
    state = initial_state(graph)
    for name, array in kept.items():
        state[name] = array
    outputs = executable(state, **inputs)
    arrays = {**outputs, **{f"update {name}": state[name] for name in graph.updates}}
    return {
        "graph": digest(str(graph)),
        "optimized": digest(str(stages.optimized)),
        "fused": digest(str(stages.fused)),
        "loops": digest(print_kernels([step.kernel for step in stages.plan.kernels()])),
        "plan": digest(str(stages.plan)),
        "llvm": digest(json.dumps(kernel_modules(stages.plan.kernels()))),
        "bits": digest(*(name + str(array.dtype) + array.tobytes().hex() for name, array in arrays.items())),
    }


found = {"nano": said(nano_step(), random_inputs(nano_step()), {})}
for seed in (1, 2, 3, 5, 8):
    case = random_graph(seed)
    found[f"random {seed}"] = said(case.graph, case.inputs, case.kept)
print(json.dumps(found))
"""


def test_texts_code_and_bits_are_the_same_in_every_process():
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, threads],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path[:1]))},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, threads in (("1", "1"), ("2", "2"), ("3", "3"))
    ]
    answers = [json.loads(process.communicate()[0]) for process in processes]
    assert list(answers[0]["nano"]) == ["graph", "optimized", "fused", "loops", "plan", "llvm", "bits"]
    for other in answers[1:]:
        for name, digests in answers[0].items():
            assert digests == other[name], name

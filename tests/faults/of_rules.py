"""Faults of the verifiers: each rule of graphs, of fused graphs and of kernels in turn lets everything pass."""

from fault import Fault

GRAPH_RULES = tuple(f"V{number:02}" for number in range(1, 12))
FUSED_RULES = tuple(f"F{number:02}" for number in range(1, 13))
FUSED_TESTS = "tests/passes/test_verify_fused.py"
KERNEL_RULES = tuple(f"L{number:02}" for number in range(1, 16))


def _disabled(rule: str, module: str, function: str, killers: tuple[str, ...]) -> Fault:
    """The fault that ``function``, a verifier, is silent about ``rule``."""
    name, _, parameter = function.partition("(")
    argument = parameter.split(":")[0]
    silent = (
        f"def {name}({argument}):\n    try:\n        _{name}({argument})\n    except VerifyError as error:\n"
        f"        if not error.message.startswith({rule!r}):\n            raise\n\n\ndef _{function}"
    )
    return Fault(f"rule-{rule}-is-not-checked", f"Nothing says so when rule {rule} is broken.", module,
                 f"def {function}", silent, killers)  # fmt: skip


FAULTS = (
    *(_disabled(rule, "verify", "verify(graph: Graph)", ("tests/graph/test_verify.py",)) for rule in GRAPH_RULES),
    *(
        _disabled(rule, "passes.verify_fused", "verify_fused(fused: FusedGraph)", (FUSED_TESTS,))
        for rule in FUSED_RULES
    ),
    *(
        _disabled(rule, "loops.verify", "verify_kernel(kernel: Kernel)", ("tests/loops/test_loop_verify.py",))
        for rule in KERNEL_RULES
    ),
)

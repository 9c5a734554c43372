"""Text of many operators read, verified and printed once, in a process of its own:

    python -m benchmarks.text_run PEER PART

prints the seconds of each as JSON.
"""

import io
import json
import sys
import time

OPERATORS = 20_000


def seconds(action):
    """What ``action`` gives, and the seconds that it takes."""
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def euler_ir(part):
    """A chain of operators, or the training step of GPT-2 124M."""
    from euler_ir.text import parse_graph, print_graph
    from euler_ir.verify import verify

    text = print_graph(_gpt2() if part == "gpt2" else _chain())
    graph, read = seconds(lambda: parse_graph(text))
    _, verified = seconds(lambda: verify(graph))
    _, printed = seconds(lambda: print_graph(graph))
    return {"operators": len(graph.ops), "read": read, "verify": verified, "print": printed}


def _chain():
    import euler_ir as ei

    with ei.Graph("chain") as graph:
        x = ei.input("x", (4,))
        for _ in range(OPERATORS - 1):
            x = ei.sin(x)
        ei.output(y=x)
    return graph


def _gpt2():
    from examples.gpt2_graphs import gpt2_step

    return gpt2_step()


def xdsl(part):
    """The same chain, of the dialect math."""
    from xdsl.context import Context
    from xdsl.dialects import builtin, func, math
    from xdsl.parser import Parser
    from xdsl.printer import Printer

    lines = [f"    %v{n + 1} = math.sin %v{n} : tensor<4xf32>" for n in range(OPERATORS)]
    head, foot = "func.func @chain(%v0: tensor<4xf32>) -> tensor<4xf32> {", f"func.return %v{OPERATORS} : tensor<4xf32>"
    text = "\n".join(["builtin.module {", head, *lines, foot, "}", "}"])
    context = Context()
    for dialect in (builtin.Builtin, func.Func, math.Math):
        context.load_dialect(dialect)
    module, read = seconds(lambda: Parser(context, text).parse_module())
    _, verified = seconds(module.verify)
    _, printed = seconds(lambda: Printer(stream=io.StringIO()).print_op(module))
    return {"operators": OPERATORS, "read": read, "verify": verified, "print": printed}


if __name__ == "__main__":
    print(json.dumps({"euler_ir": euler_ir, "xdsl": xdsl}[sys.argv[1]](sys.argv[2])))

"""What was found as tables for people; see `benchmarks.report.Table`."""

from benchmarks.report import Table
from cuda_check.kernels import ATTENTION
from cuda_check.roofline import LAUNCH_SECONDS

WORST = 12
"""Kernels that are listed of those that move most beside the least possible."""


def tables(record):
    """The tables of all parts of ``record`` that were run."""
    makers = {
        "kernels": lambda found: [_models(found), _attention(found), _traffic(found)],
        "roofline": lambda found: [_roofline(each) for each in found],
        "operators": lambda found: [_accuracy("Operators in the emulator", found)],
        "models": lambda found: [_accuracy("Gradients of whole models in the emulator", found)],
        "faults": lambda found: [_faults(found)],
    }
    return [table for part, found in record.items() for table in makers[part](found)]


def _models(found):
    rows = []
    for each in found:
        kernels = each["kernels"]
        rows.append(
            (
                each["model"],
                each["architecture"],
                str(each["launches"]),
                str(len(kernels)),
                str(max((kernel["registers"] for kernel in kernels), default=0)),
                str(sum(kernel["spilled"] > 0 for kernel in kernels)),
                f"{max((kernel['shared'] for kernel in kernels), default=0) / 1024:.1f}",
                str(min((kernel["resident"] for kernel in kernels), default=0)),
                str(sum(kernel["tensor_cores"] for kernel in kernels)),
                _megabytes(sum(kernel["moved"] for kernel in kernels)),
                _ratio(sum(kernel["moved"] for kernel in kernels), sum(kernel["least"] for kernel in kernels)),
            )
        )
    columns = (
        *("model", "GPU", "calls a step", "kernels", "most registers", "spilling", "most shared KiB"),
        *("fewest blocks resident", "tensor-core instructions", "MB moved", "of least"),
    )
    note = (
        "Calls are launches, products, copies and fills of one step. Moved is what kernels other than products read "
        "and write when nothing stays in a cache between two loops or launches, least is each element once. Attention "
        "counts as the least in both, though its blocks read keys and values again, from the L2 cache."
    )
    return Table("Kernels, compiled by NVRTC", columns, tuple(rows), note)


def _attention(found):
    kernels = {
        (kernel["name"], each["architecture"]): kernel
        for each in found
        for kernel in each["kernels"]
        if kernel["name"].startswith(ATTENTION)
    }
    rows = tuple(
        (
            name,
            architecture,
            str(kernel["threads"]),
            str(kernel["registers"]),
            str(kernel["spilled"]),
            f"{kernel['shared'] / 1024:.1f}",
            str(kernel["resident"]),
            f"{100 * kernel['occupancy']:.0f} %",
            str(kernel["tensor_cores"]),
        )
        for (name, architecture), kernel in sorted(kernels.items())
    )
    columns = (
        *("kernel", "GPU", "threads", "registers", "spilled bytes", "shared KiB", "blocks resident", "occupancy"),
        "tensor-core instructions",
    )
    return Table("Attention", columns, rows)


def _traffic(found):
    kernels = {}
    for each in found:
        for kernel in each["kernels"]:
            kernels.setdefault(kernel["name"], (kernel["moved"] - kernel["least"], each["model"], kernel))
    worst = sorted(kernels.values(), key=lambda entry: -entry[0])[:WORST]
    rows = tuple(
        (
            kernel["name"],
            model,
            str(kernel["launches"]),
            _megabytes(kernel["moved"]),
            _megabytes(kernel["least"]),
            _ratio(kernel["moved"], kernel["least"]),
        )
        for more, model, kernel in worst
        if more > 0
    )
    columns = ("kernel", "model", "launches", "MB moved", "least", "of least")
    return Table("Kernels that move most beyond the least possible", columns, rows)


def _roofline(found):
    total = sum(roof["seconds"] for roof in found["roofs"])
    calls = sum(roof["calls"] for roof in found["roofs"])
    rows = [_roof_row(roof, total) for roof in found["roofs"][:WORST]]
    others = found["roofs"][WORST:]
    for name, some in ((f"{len(others)} others", others), ("all", found["roofs"])):
        if some:
            sums = {key: sum(roof[key] for roof in some) for key in ("calls", "moved", "least", "flops", "seconds")}
            rows.append(_roof_row({"name": name, "by_memory": None, **sums}, total))
    columns = ("steps", "calls", "GB, each pass", "GB, least", "TFLOP", "least ms", "of all", "bound by")
    note = (
        "Nothing is measured: the least time of each step by an H100's bandwidth and peak. "
        f"{calls} calls add about {1e3 * calls * LAUNCH_SECONDS:.1f} ms between them."
    )
    return Table(f"{found['model']}: least time on an H100, on paper", columns, tuple(rows), note)


def _roof_row(roof, total):
    return (
        roof["name"],
        str(roof["calls"]),
        f"{roof['moved'] / 1e9:.2f}",
        f"{roof['least'] / 1e9:.2f}",
        f"{roof['flops'] / 1e12:.2f}",
        f"{1e3 * roof['seconds']:.2f}",
        f"{100 * roof['seconds'] / total:.0f} %",
        {True: "memory", False: "arithmetic", None: ""}[roof["by_memory"]],
    )


def _accuracy(title, found):
    rows = tuple((each["name"], each["dtype"], f"{each['error']:.1e}", f"{each['allowed']:.0e}") for each in found)
    note = "The largest difference from the interpreter in f64, gradients included, by the largest magnitude."
    return Table(title, ("of", "in", "largest error", "allowed"), rows, note)


def _faults(found):
    rows = tuple((each["fault"], each["imitates"], each["killed_by"] or "SURVIVES") for each in found)
    killed = sum(each["wrong"] is None for each in found)
    return Table(f"{killed} of {len(found)} seeded faults found", ("fault", "what it imitates", "found by"), rows)


def _megabytes(nbytes):
    return f"{nbytes / 1e6:.3g}" if nbytes < 1e9 else f"{nbytes / 1e6:.0f}"


def _ratio(moved, least):
    return f"{moved / least:.2f}" if least else ""

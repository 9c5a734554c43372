"""The command line: `python -m benchmarks train --presets nano small --peers torch`."""

import argparse
import dataclasses
import json
import os
import sys

from rich.console import Console

from benchmarks import report
from benchmarks.train_step import PEERS, PeerError, check_installed, measure
from benchmarks.workload import WORKLOADS


def main(arguments=None):
    """Run the benchmark that the command line names; the exit code."""
    options = _parser().parse_args(arguments)
    console = Console()
    results = []
    try:
        check_installed(options.peers)
        for preset in options.presets:
            workload = WORKLOADS[preset]
            measurements = measure(workload, options.peers, options.threads, options.rounds, options.steps)
            peers = report.records(workload, measurements)
            results.append({"preset": preset, "workload": dataclasses.asdict(workload), "peers": peers})
            console.print(report.table(preset, workload, peers))
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"environment": report.environment(options.threads), "results": results}, file, indent=2)
    return 0


def _parser():
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    train = parser.add_subparsers(required=True, metavar="WHAT").add_parser(
        "train", help="a full training step of GPT-2 in f32: forward, backward, clipping, AdamW"
    )
    train.add_argument("--presets", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="sizes of the model")
    train.add_argument("--peers", nargs="+", choices=PEERS, default=[], help="what to compare with")
    train.add_argument("--threads", type=_count, default=len(os.sched_getaffinity(0)), help="default: all cores")
    train.add_argument("--rounds", type=_count, default=10, help="turns of each peer (default: %(default)s)")
    train.add_argument("--steps", type=_count, default=3, help="steps of a turn (default: %(default)s)")
    train.add_argument("--json", metavar="FILE", help="write all that was measured there")
    return parser


def _count(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())

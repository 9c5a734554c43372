"""The logs of training runs as tables, for TensorBoard, and as one picture that compares them.

    python examples/export_metrics.py out/nano --csv out/nano.csv --tensorboard out/tensorboard
    python examples/export_metrics.py out/nano out/small --plot out/both.png
"""

import argparse
import sys
from pathlib import Path

from models.command_line import exit_status
from models.training.export import write_csv, write_tensorboard
from models.training.folder import RunFolder
from models.training.loss_curve import draw_loss_curves
from models.training.metrics import read_metrics


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("runs", nargs="+", metavar="run", help="folder of a training run")
    parser.add_argument("--csv", metavar="FILE", help="one table, with a column for the run when there are several")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="event files, one folder below it for each run")
    parser.add_argument("--plot", metavar="FILE", help="PNG of the losses of all runs")
    options = parser.parse_args(arguments)
    if not (options.csv or options.tensorboard or options.plot):
        parser.error("say what to write: --csv, --tensorboard or --plot")
    return exit_status("export_metrics.py", lambda: export(options))


def export(options):
    logs = {name: read_log(path) for name, path in names_of(options.runs).items()}
    try:
        if options.csv:
            several = len(logs) > 1
            rows = [{"run": name, **row} if several else row for name, log in logs.items() for row in log]
            write_csv(rows, options.csv)
        if options.tensorboard:
            for name, log in logs.items():
                write_tensorboard(log, Path(options.tensorboard) / name)
        if options.plot:
            draw_loss_curves(logs, options.plot, ", ".join(logs))
    except ImportError as error:
        raise ValueError(f"{error}. pip install 'euler-ir[tensorboard,plot]' brings it.") from None


def names_of(runs):
    """The path of each run by the shortest name that tells them apart: its folder's, or the whole path."""
    names = [Path(run).resolve().name for run in runs]
    named = zip(names, runs, strict=True)
    return {name if names.count(name) == 1 else run.strip("/"): Path(run) for name, run in named}


def read_log(folder):
    path = RunFolder(folder).metrics
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no training run: there is no {path.name} in it.")
    records = read_metrics(path)
    if not records:
        raise ValueError(f"{path} holds no finished step yet.")
    return records


if __name__ == "__main__":
    sys.exit(main())

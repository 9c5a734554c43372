"""What every program here does around its work: problems said in one line, and the exit statuses that shells know."""

import argparse
import os
import sys

from rich.console import Console

import euler_ir as ei

INTERRUPTED, READER_GONE = 130, 141
"""Exit statuses as a shell gives them for SIGINT and SIGPIPE."""


class Screen(Console):
    """A console of rich that leaves a reader who is gone to `exit_status`."""

    def on_broken_pipe(self):
        raise  # the BrokenPipeError for which rich calls this


def positive(text):
    """A number from the command line that is at least 1."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def device(text):
    """A backend's name from the command line, 'cpu', 'cuda', 'cuda:1' ..., of one that can be used here."""
    if text != "cpu":
        try:
            ei.compile(ei.Graph("nothing"), backend=text)  # what is missing is said before anything else is done
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        except ei.EulerError as error:
            raise argparse.ArgumentTypeError(f"{error}\n  On the CPU it runs with --device cpu.") from None
    return text


def add_machine_options(parser):
    """Options of every program that runs a model: on what, and with how many threads."""
    parser.add_argument(
        "--device", type=device, default="cpu", help="cpu, cuda, cuda:1 (the second GPU) ... (default: %(default)s)"
    )
    parser.add_argument("--threads", type=positive, help="CPU threads (default: all cores)")


def reader_gone():
    """The exit status where whoever read stdout, such as `head`, is gone; what still waits to be written is dropped."""
    # Python tries to write it once more at exit, which must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


def exit_status(program, work, failures=()):
    """The exit status of `program`: what `work()` gives, 0 for None.

    2 for what a user gave wrongly (ValueError, OSError, EulerError) and 1 for the errors `failures`, both with one line
    on stderr; 130 after Ctrl-C; 141 when whoever read stdout, such as `head`, is gone. Characters that the terminal
    lacks are replaced.
    """
    sys.stdout.reconfigure(errors="replace")
    try:
        status = work()
        sys.stdout.flush()
        return status or 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return reader_gone()
    except (*failures, ValueError, OSError, ei.EulerError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1 if isinstance(error, tuple(failures)) else 2

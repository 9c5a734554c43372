"""The log of a training run for other programs."""

import csv
import io

from models.files import replacing


def columns_of(records):
    """The names of all numbers of the records, in the order in which they first appear."""
    return list(dict.fromkeys(name for record in records for name in record))


def write_csv(records, path):
    """Write a table with a row for each step; what a record does not have stays empty. Raises OSError."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns_of(records), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    with replacing(path) as file:
        file.write(text.getvalue().encode())


def write_tensorboard(records, folder):
    """Write an event file for TensorBoard into `folder`: each number under its name, at its step.

    Raises ImportError when tensorboardX is not installed, and OSError.
    """
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for record in records:
            for name, number in record.items():
                if name != "step" and number is not None:
                    # The log has seconds since the step before, not the time of day.
                    writer.add_scalar(name, float(number), record["step"], walltime=0)

"""What is learned when: measurements of several training runs, of models of different sizes, put together."""

from models.files import replacing
from models.interpretability.ngrams import NAMES

SPEAKER_LINES = "share of lines 'NAME:' in its own text"


def curves(records):
    """{what: ([steps], [numbers])} of the records of a `ProbeLog`, in the order of the probes."""
    found = {}
    for record in records:
        for name, number in {**record["probes"], SPEAKER_LINES: record["speaker_lines"]}.items():
            steps, numbers = found.setdefault(name, ([], []))
            steps.append(record["step"])
            numbers.append(number)
    return found


def first_reached(steps, numbers, level):
    """The first of `steps` from which on all of `numbers` are at `level` or above; None when the last is not."""
    reached = None
    for step, number in zip(steps, numbers):
        if number < level:
            reached = None
        elif reached is None:
            reached = step
    return reached


def draw(probed, divergences, path, corpus_share):
    """Draw all curves into the PNG file `path`: a panel for each measurement, a line for each run.

    `probed` and `divergences` are {run: records} of a `ProbeLog` and of a `Diary`; `corpus_share` is the share of the
    corpus's own lines that say who speaks. Raises ImportError when matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_run = {run: curves(records) for run, records in probed.items()}
    panels = list(next(iter(by_run.values())))
    figure = Figure(figsize=(13, 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3).flat
    for panel, name in zip(axes, panels):
        for run, found in by_run.items():
            panel.plot(*found[name], marker=".", ms=4, lw=1.2, label=run)
        if name == SPEAKER_LINES:
            panel.axhline(corpus_share, color="gray", ls="--", lw=1, label="the plays")
        panel.set(title=name, xscale="log", ylim=(-0.03, 1.03) if name != SPEAKER_LINES else None)
    last = figure.axes[len(panels)]
    run, records = list(divergences.items())[-1]
    for name in NAMES:
        last.plot([r["step"] for r in records], [r["divergence"][name] for r in records], lw=1.2, label=name)
    last.set(title=f"KL({run} || n-gram of the corpus), nats", xscale="log")
    for panel in figure.axes:
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)

"""The loss curve of a training run as a picture."""

from models.files import replacing


def draw_loss_curve(records, path, title):
    """Draw training and validation loss over steps into the PNG file `path`.

    `records` are those of `read_metrics`. Raises ImportError when matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    taken = [record for record in records if record["loss"] is not None]
    axes.plot([r["step"] for r in taken], [r["loss"] for r in taken], lw=0.7, alpha=0.6, label="training")
    validated = [record for record in records if "validation_loss" in record]
    if validated:
        steps, losses = [r["step"] for r in validated], [r["validation_loss"] for r in validated]
        axes.plot(steps, losses, marker="o", ms=4, label="validation")
        bits = f" ({validated[-1]['bits_per_byte']:.3f} bits per byte)" if "bits_per_byte" in validated[-1] else ""
        axes.annotate(
            f"{losses[-1]:.3f}{bits}",
            (steps[-1], losses[-1]),
            xytext=(-6, 10),
            textcoords="offset points",
            ha="right",
        )
    axes.set(xlabel="step", ylabel="loss (nats per token)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120)

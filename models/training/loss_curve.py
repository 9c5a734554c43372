"""The loss curves of training runs as a picture."""

from models.files import replacing


def draw_loss_curves(logs, path, title, unit="nats per token"):
    """Draw training and validation loss over steps into the PNG file `path`, in a colour for each run.

    `logs` has the records of `read_metrics` by the name of the run, `unit` is what their losses count. Raises
    ImportError when matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (name, records) in enumerate(logs.items()):
        prefix, colour = (f"{name}: ", f"C{number}") if len(logs) > 1 else ("", None)
        taken = [record for record in records if record["loss"] is not None]
        steps, losses = [r["step"] for r in taken], [r["loss"] for r in taken]
        axes.plot(steps, losses, lw=0.7, alpha=0.6, color=colour, label=f"{prefix}training")
        validated = [record for record in records if "validation_loss" in record]
        if validated:
            steps, losses = [r["step"] for r in validated], [r["validation_loss"] for r in validated]
            axes.plot(steps, losses, marker="o", ms=4, color=colour, label=f"{prefix}validation")
            last = validated[-1]
            bits = f" ({last['bits_per_byte']:.3f} bits per byte)" if "bits_per_byte" in last else ""
            place = {"xytext": (-6, 10 + 12 * number), "textcoords": "offset points", "ha": "right"}
            axes.annotate(f"{losses[-1]:.3f}{bits}", (steps[-1], losses[-1]), color=colour, **place)
    axes.set(xlabel="step", ylabel=f"loss ({unit})", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120)

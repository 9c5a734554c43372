"""What one step of training does."""

import math
import time

import numpy as np

import euler_ir as ei
from euler_ir import optim

# Outputs of a step that get their place in its record otherwise, or none.
_NAMED = {"loss", "gradient_norm", "gradient_norms"}


class Diverged(ArithmeticError):
    """The loss or a gradient is not finite any more, at `step`, counted from 1."""

    def __init__(self, step, message):
        super().__init__(message)
        self.step = step


class Trainer:
    """A model in training. `state` holds its parameters and the optimiser's moments between steps.

    `gradient_norms` are those of the last step by the name of the parameter, before clipping.
    """

    def __init__(self, task, settings):
        """Build and compile the graphs of `task`, and begin the parameters from the seed."""
        self.task, self.settings = task, settings
        graphs = task.graphs()
        self.parameters = [parameter.op.attributes["name"] for parameter in graphs[-1].parameters]
        self.state = ei.initial_state(*graphs, seed=settings.seed)
        self.gradient_norms = {}
        self._run = [ei.compile(graph, backend=task.backend, threads=task.threads) for graph in graphs]

    def step(self, step):
        """Take optimiser step `step`, from 0, and return its record for the log. Raises Diverged."""
        settings, inputs = self.settings, self.task.inputs
        started = time.perf_counter()
        peak, floor = settings.learning_rate, settings.final_learning_rate
        rate = optim.warmup_cosine(step, peak, floor, settings.warmup, settings.steps)
        if settings.accumulate == 1:
            outputs = self._run[0](self.state, learning_rate=np.float32(rate), **inputs(step, 0))
        else:
            accumulate, apply = self._run
            for micro_step in range(settings.accumulate):
                accumulate(self.state, **inputs(step, micro_step))
            outputs = apply(self.state, learning_rate=np.float32(rate))
        loss, norm = float(outputs["loss"]), float(outputs["gradient_norm"])
        self.gradient_norms = dict(zip(self.parameters, outputs["gradient_norms"].tolist(), strict=True))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise Diverged(step + 1, self._blame(step + 1, loss, outputs["gradient_norms"]))
        return {
            "step": step + 1,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": (step + 1) * settings.tokens_per_step,
            "seconds": time.perf_counter() - started,
            **{name: float(number) for name, number in outputs.items() if name not in _NAMED},
        }

    def validate(self, step):
        """What the task's `validate` finds after `step` steps. Raises Diverged when a number of it is not finite."""
        found = self.task.validate(self.state)
        for name, number in found.items():
            if not math.isfinite(number):
                name = name.replace("_", " ")
                raise Diverged(step, f"Step {step}: the {name} is {number:.6g}. Try a lower learning rate.")
        return found

    def _blame(self, step, loss, norms):
        broken = ~np.isfinite(norms)
        worst = int(np.argmax(broken)) if broken.any() else int(np.argmax(norms))
        others = f", as are those of {broken.sum() - 1} more parameters" if broken.sum() > 1 else ""
        return (
            f"Step {step}: the loss is {loss:.6g} and the gradient norm of {self.parameters[worst]} is "
            f"{norms[worst]:.6g}{others}. Try a lower learning rate."
        )

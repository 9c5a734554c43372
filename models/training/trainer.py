"""What one step of training does."""

import math
import time

import numpy as np

import euler_ir as ei

# Outputs of a step that get their place in its record otherwise, or none.
_NAMED = {"loss", "gradient_norm", "gradient_norms"}


class Diverged(ArithmeticError):
    """A number is not finite any more, at `step`, counted from 1. `record` is that of a step, for the log."""

    def __init__(self, step, message, record=None):
        super().__init__(message)
        self.step, self.record = step, record


class Trainer:
    """A model in training. `state` holds its parameters and the optimiser's moments between steps.

    `gradient_norms` are those of the last step by the name of the parameter, before clipping.
    """

    def __init__(self, task):
        """Compile the graphs of `task`, and begin the parameters from the seed."""
        self.task, self.settings = task, task.settings
        self._run = task.compiled()
        graphs = [executable.graph for executable in self._run]
        self.parameters = [parameter.op.attributes["name"] for parameter in graphs[-1].parameters]
        self.state = ei.initial_state(*graphs, seed=self.settings.seed)
        self.gradient_norms = {}

    def step(self, step):
        """Take optimiser step `step`, from 0, and return its record for the log.

        Raises Diverged when loss or gradient are not finite; `state` is then what it was before the step. Where it may
        be only that a gradient was scaled out of the range of f16, the record says `skipped` instead, and the next step
        has half the scale.
        """
        settings, inputs = self.settings, self.task.inputs
        started = time.perf_counter()
        rate = settings.learning_rate_of(step)
        if settings.accumulate == 1:
            outputs = self._run[0](self.state, learning_rate=np.float32(rate), **inputs(step, 0))
        else:
            accumulate, apply = self._run
            for micro_step in range(settings.accumulate):
                accumulate(self.state, **inputs(step, micro_step))
            outputs = apply(self.state, learning_rate=np.float32(rate))
        loss, norm = float(outputs["loss"]), float(outputs["gradient_norm"])
        self.gradient_norms = dict(zip(self.parameters, outputs["gradient_norms"].tolist(), strict=True))
        record = {
            "step": step + 1,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": (step + 1) * settings.tokens_per_step,
            "seconds": time.perf_counter() - started,
            **{name: float(number) for name, number in outputs.items() if name not in _NAMED},
        }
        if math.isfinite(loss) and math.isfinite(norm):
            return record
        # JSON has no NaN.
        record = {name: number if math.isfinite(number) else None for name, number in record.items()}
        record["skipped"] = True
        if math.isfinite(loss) and outputs.get("loss_scale", 1) > 1:
            return record
        raise Diverged(step + 1, f"Step {step + 1}: {self._blame(loss)}", record)

    def validate(self, step):
        """What the task's `validate` finds after `step` steps. Raises Diverged when a number of it is not finite."""
        found = self.task.validate(self.state)
        for name, number in found.items():
            if not math.isfinite(number):
                name = name.replace("_", " ")
                raise Diverged(step, f"Step {step}: the {name} is {number:.6g}. Try a lower learning rate.")
        return found

    def check_state(self, step):
        """Raise Diverged, naming the array, when `state` after `step` steps holds what is not finite."""
        if broken := self._not_finite():
            raise Diverged(step, f"Step {step}: {broken}. Try a lower learning rate.")

    def _blame(self, loss):
        """Why the step just tried has numbers that are not finite: the state it began from, or a gradient."""
        if broken := self._not_finite():
            return f"the loss is {loss:.6g} since {broken}, from before this step."
        norms = np.array(list(self.gradient_norms.values()))
        broken = ~np.isfinite(norms)
        worst = int(np.argmax(broken)) if broken.any() else int(np.argmax(norms))
        others = f", as are those of {broken.sum() - 1} more parameters" if broken.sum() > 1 else ""
        return (
            f"the loss is {loss:.6g} and the gradient norm of {self.parameters[worst]} is {norms[worst]:.6g}{others}. "
            "Try a lower learning rate."
        )

    def _not_finite(self):
        """Which arrays of the state hold NaN or infinity, in words; '' when none does."""
        counts = {name: array.size - int(np.isfinite(array).sum()) for name, array in self.state.items() if array.size}
        broken = {name: count for name, count in counts.items() if count}
        if not broken:
            return ""
        worst = next((name for name in self.parameters if name in broken), next(iter(broken)))
        others = f", and {len(broken) - 1} more arrays do" if len(broken) > 1 else ""
        return f"{worst} holds {broken[worst]} of {self.state[worst].size} values that are not finite{others}"

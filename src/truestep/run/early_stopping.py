# SPDX-License-Identifier: Apache-2.0
"""Early stopping: how long a metric has not got better."""

import math
from typing import Any, Literal, SupportsFloat

from truestep.core.errors import OptionError, check_choice, check_number


class EarlyStopping:
    """Tells when a metric has not got better for `patience` values in a row; works in any loop.

    `run.track(early=...)` keeps the count with a run, so that a run that is killed counts on. NaN is never better.

    Args:
        patience: how many values in a row may pass without a better one; the last of them ends the training.
        mode: "min" where a lower value is better (a loss), "max" where a higher one is (an accuracy).
        min_delta: a value is better if it beats the best by more than this, in the metric's own unit.

    Attributes:
        best: the best value so far, None before the first.
        waited: how many values have passed since then.
    """

    def __init__(self, *, patience: int, mode: Literal["min", "max"], min_delta: float = 0.0) -> None:
        check_number("ts.EarlyStopping", "patience", patience, example=3, least=1)
        check_choice("ts.EarlyStopping", "mode", mode, ("min", "max"))
        check_number("ts.EarlyStopping", "min_delta", min_delta, example=0.001, least=0.0)
        self.patience, self.mode, self.min_delta = patience, mode, min_delta
        self.best: float | None = None
        self.waited = 0

    def step(self, value: SupportsFloat) -> bool:
        """Take the metric's next value, a number or a tensor of one element; return whether to stop."""
        number = _as_float(value)
        if self._is_better(number):
            self.best, self.waited = number, 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Return what is counted, as JSON values."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a state."""
        self.best, self.waited = state["best"], state["waited"]

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return not math.isnan(value)
        ahead = self.best - value if self.mode == "min" else value - self.best
        return ahead > self.min_delta


def _as_float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what isn't a number raises
    except (TypeError, ValueError, RuntimeError):  # torch raises the last for several elements
        raise OptionError(
            f"EarlyStopping.step({type(value).__name__}) takes one number. Give the metric's value: early.step(valid_loss)."
        ) from None

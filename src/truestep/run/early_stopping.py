# SPDX-License-Identifier: Apache-2.0
"""Early stopping: how long a metric has not got better."""

import math
from typing import Any, Literal, NoReturn, SupportsFloat

from truestep.core.argument_errors import raises_option_errors
from truestep.core.errors import OptionError, check_choice, check_number
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.text_formatting import number_text
from truestep.core.user_frames import warn_user


class EarlyStopping(HelpfulAttributes):
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

    _called, _variable = "A ts.EarlyStopping", "early"

    def __init__(self, *, patience: int, mode: Literal["min", "max"], min_delta: float = 0.0) -> None:
        check_number("ts.EarlyStopping", "patience", patience, example=3, least=1)
        check_choice("ts.EarlyStopping", "mode", mode, ("min", "max"))
        check_number("ts.EarlyStopping", "min_delta", min_delta, example=0.001, least=0.0)
        self.patience, self.mode, self.min_delta = patience, mode, min_delta
        self.best: float | None = None
        self.waited = 0
        self._worst: float | None = None
        self._is_told = False
        self._has_ended = False  # the last step has said to stop
        self._worsened = 0  # how often a value was the worst so far, as long as none has beaten the first

    def __call__(self, *_: object) -> NoReturn:
        """Refuse to be called, as other libraries' are."""
        raise OptionError(
            "A ts.EarlyStopping is no function: its next value goes to step, which says whether to stop. Write if "
            "early.step(valid_loss): run.finish()"
        )

    @raises_option_errors("early.step")
    def step(self, value: SupportsFloat) -> bool:
        """Take the metric's next value, a number or a tensor of one element; return whether to stop."""
        number = _metric_as_float(value)
        if self._has_ended:
            self._warn_of_ignored_stop()
        first, before = self.best is None, self._worst
        if self._is_better(number):
            self.best, self.waited, self._worst, self._worsened = number, 0, number if first else None, 0
        else:
            self.waited += 1
            if before is not None and self._improvement_over(before, number) > 0:
                self._worst, self._worsened = number, self._worsened + 1
        if self.waited == self.patience and self._worsened > max(1, self.waited // 2):
            self._warn_of_wrong_direction()
        self._has_ended = self.waited >= self.patience
        return self._has_ended

    def state_dict(self) -> dict[str, Any]:
        """Return what is counted, as JSON values."""
        counted = {"best": self.best, "waited": self.waited}
        return counted | {"worst": self._worst, "worsened": self._worsened}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a state."""
        self.best, self.waited = state["best"], state["waited"]
        self._worst, self._worsened = state.get("worst"), state.get("worsened", 0)

    def _warn_of_ignored_stop(self) -> None:
        if not self._is_told:
            self._is_told = True
            warn_user(
                "early.step has said to stop and is given the next value: the training goes on, since nothing ends the loop. Write "
                "if early.step(valid_loss): run.finish(), or break in a loop of your own."
            )

    def _warn_of_wrong_direction(self) -> None:
        assert self.best is not None
        assert self._worst is not None
        way, other, such = (
            ("rises", "max", "an accuracy") if self.mode == "min" else ("falls", "min", "a loss")
        )
        warn_user(
            f"ts.EarlyStopping(patience={self.patience}, mode={self.mode!r}) says to stop after {self.waited} values, none of "
            f"which has beaten the first: the number {way}, from {number_text(self.best)} to {number_text(self._worst)}, and "
            f"mode={self.mode!r} counts that as worse. If that is better, as of {such}, write mode={other!r}; if not, the "
            "training did not help."
        )

    def _improvement_over(self, value: float, of: float) -> float:
        return of - value if self.mode == "min" else value - of

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return not math.isnan(value)
        return self._improvement_over(value, self.best) > self.min_delta


def _metric_as_float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what isn't a number raises
    except (TypeError, ValueError, RuntimeError):  # torch raises the last for several elements
        raise OptionError(
            f"EarlyStopping.step({type(value).__name__}) takes one number. Give the metric's value: early.step(valid_loss)."
        ) from None

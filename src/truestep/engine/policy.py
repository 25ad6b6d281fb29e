# SPDX-License-Identifier: Apache-2.0
"""What becomes of an update: one table from what was seen of it, and what was asked for, to apply, skip or raise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import torch
from torch import Tensor

from truestep.core.device_specific import is_cpu_device
from truestep.core.errors import NonFiniteError
from truestep.engine.clipping import Clip
from truestep.engine.loss_sums import LossTotals
from truestep.engine.precision.loss_scale import Scaler, gradients_by_dtype
from truestep.engine.processes.shards import is_divided_over_ranks


class FiniteGradientCheck:
    """One pass over the gradients: the check of float16 gradients, with a scale of one, which changes no bit."""

    def __init__(self, device: torch.device, weights: Sequence[Tensor]) -> None:
        self._one = torch.ones((), dtype=torch.float32, device=device)
        self._found = torch.zeros((), dtype=torch.float32, device=device)
        flag: Any = self._found.numpy() if is_cpu_device(device) else None
        self._seen = None if flag is None else memoryview(flag)
        """The flag in the memory of the host, where reading it is no call of torch."""
        self._is_one_kind = {weight.dtype for weight in weights} == {torch.float32}

    def __call__(self, tensors: list[Tensor]) -> Tensor | float:
        """Return infinity if an entry is not finite, else 0; on an accelerator as a tensor that nobody waits for."""
        # On an accelerator nobody knows whether the last one was set, so each check begins with a new one.
        seen = self._seen
        found = torch.zeros_like(self._found) if seen is None else self._found
        if self._is_one_kind:
            torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, self._one)
        else:
            for same_kind in gradients_by_dtype(tensors):
                torch._amp_foreach_non_finite_check_and_unscale_(same_kind, found, self._one)
        if seen is None:
            # 0 stays 0 and 1 becomes infinity, without asking the device which it is
            return found / (1 - found)
        if not seen[()]:
            return 0.0
        found.zero_()
        return math.inf


NonFinite = Literal["raise", "skip", "keep", "rollback"]
NON_FINITE: tuple[NonFinite, ...] = ("raise", "skip", "keep", "rollback")

# So many overflows in a row are no search for a scale any more: the gradient itself is not finite.
# A scale of 2**16 that was halved as often is 2**-84.
MAX_OVERFLOWS_IN_A_ROW = 100


class UpdateVerdict(Enum):
    """What is done with an update."""

    APPLY = "apply"
    SKIP = "skip"
    RAISE = "raise"


class UpdateEvidence(Enum):
    """What was seen of an update's loss and gradient."""

    __hash__ = object.__hash__  # Enum's own is slower, and each update looks into the table

    FINITE = "loss and gradient are finite, as far as they were looked at"
    EMPTY = "all weights were zero"
    OVERFLOW = "a scaled float16 gradient overflowed; its scale is searched"
    LASTING_OVERFLOW = "it overflows at any scale"
    SPOILT = "a scaled float16 gradient is not finite, nor is its loss, which no scale changes"
    NOT_FINITE = "the loss or the gradient is NaN or infinite"


# By these names: to look a member up in its class takes half a microsecond, and each update does.
APPLY, SKIP, RAISE = UpdateVerdict
EMPTY, FINITE = UpdateEvidence.EMPTY, UpdateEvidence.FINITE
OVERFLOWS = (UpdateEvidence.OVERFLOW, UpdateEvidence.LASTING_OVERFLOW)
"""What counts towards `MAX_OVERFLOWS_IN_A_ROW`."""

VERDICTS: dict[UpdateEvidence, dict[NonFinite, UpdateVerdict]] = {
    UpdateEvidence.FINITE: {"raise": APPLY, "skip": APPLY, "rollback": APPLY, "keep": APPLY},
    UpdateEvidence.EMPTY: {"raise": SKIP, "skip": SKIP, "rollback": SKIP, "keep": SKIP},
    UpdateEvidence.OVERFLOW: {"raise": SKIP, "skip": SKIP, "rollback": SKIP, "keep": SKIP},
    UpdateEvidence.LASTING_OVERFLOW: {"raise": RAISE, "skip": SKIP, "rollback": SKIP, "keep": SKIP},
    UpdateEvidence.SPOILT: {"raise": RAISE, "skip": SKIP, "rollback": SKIP, "keep": SKIP},
    UpdateEvidence.NOT_FINITE: {"raise": RAISE, "skip": SKIP, "rollback": SKIP, "keep": APPLY},
}


def make_update_evidence(
    *, empty: bool, overflow: bool, is_finite: bool, overflows_in_a_row: int
) -> UpdateEvidence:
    """Return what the flags of an update say; `is_finite` is of the loss alone where the gradient overflowed."""
    if empty:
        return UpdateEvidence.EMPTY
    if overflow:
        if not is_finite:
            return UpdateEvidence.SPOILT
        searching = overflows_in_a_row + 1 < MAX_OVERFLOWS_IN_A_ROW
        return UpdateEvidence.OVERFLOW if searching else UpdateEvidence.LASTING_OVERFLOW
    return UpdateEvidence.FINITE if is_finite else UpdateEvidence.NOT_FINITE


@dataclass(frozen=True, slots=True)
class GradientPolicy:
    """How a learner's gradients are measured and clipped, and what is done where they are not finite."""

    nonfinite: NonFinite
    clip: Clip | None
    scaler: Scaler | None
    finite_check: FiniteGradientCheck | None
    measures_norm: bool
    looks: bool
    """Whether it matters if loss and gradient are finite; where it does not, they are not read."""

    @classmethod
    def of(
        cls, nonfinite: NonFinite, clip: Clip | None, scaler: Scaler | None, parameters: Sequence[Tensor]
    ) -> "GradientPolicy":
        """Decide what is measured of the gradients of `parameters`."""
        # torch's check of gradients (`FiniteGradientCheck`) takes no complex ones: their norm says it.
        complex_weights = any(parameter.is_complex() for parameter in parameters)
        measures_norm = (
            clip is not None
            or nonfinite in ("skip", "rollback")
            # what one process finds in its part says nothing of the others'
            or any(map(is_divided_over_ranks, parameters))
            or (complex_weights and nonfinite == "raise")
        )
        # A loss scale looks at the gradients itself.
        checks = nonfinite == "raise" and scaler is None and not measures_norm
        check = FiniteGradientCheck(parameters[0].device, parameters) if checks else None
        looks = VERDICTS[UpdateEvidence.NOT_FINITE][nonfinite] is not UpdateVerdict.APPLY
        return cls(nonfinite, clip, scaler, check, measures_norm, looks)

    @property
    def may_skip(self) -> bool:
        """Whether an update with weights can be left out."""
        return self.scaler is not None or self.looks

    def judge(self, evidence: UpdateEvidence) -> UpdateVerdict:
        """Return what is done with an update of which this was seen."""
        return VERDICTS[evidence][self.nonfinite]

    def skip_flag_on_device(self, sums: LossTotals, measured: Tensor | None) -> Tensor:
        """Return 1.0 on the device where the update must not be applied, else 0.0: the table, without waiting for the device."""
        flag = torch.zeros((), dtype=torch.float32, device=sums.loss.device)
        if self.scaler is not None:
            flag = torch.maximum(flag, self.scaler.found_inf)
        if sums.may_be_empty:
            flag = torch.maximum(flag, (sums.weight == 0).float())
        if sums.least is not None:
            flag = torch.maximum(flag, (sums.least < 0).float())
        if self.looks:
            finite = torch.isfinite(sums.loss)
            if measured is not None:
                finite = finite & torch.isfinite(measured)
            flag = torch.maximum(flag, (~finite).float())
        return flag


def nonfinite_error(name: str, step: int, loss: float, norm: float | None, *, spoilt: bool) -> NonFiniteError:
    """Return the error for a loss or gradient that is NaN or infinite; `spoilt`: the parameters were so before."""
    what = f"finite ({loss:.6g}) but its gradient is not (norm {norm})" if math.isfinite(loss) else loss
    before = "the parameters are as before"
    if spoilt:
        before = (
            "the parameters were not finite before it already: an earlier gradient was not, though its loss was (sqrt at 0, say); "
            'measure gradients too, with a clip or nonfinite="skip"'
        )
    return NonFiniteError(
        f"The loss of {name!r} is {what} at step {step}; the update was not applied, {before}. Usual causes: "
        "log or division of 0, sqrt at 0, an overflow of float16, a learning rate that is too high, NaN in the data. "
        'To leave such batches out and count them, use ts.Run(nonfinite="skip").'
    )

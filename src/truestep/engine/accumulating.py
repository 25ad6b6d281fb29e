# SPDX-License-Identifier: Apache-2.0
"""Losses one after another: an update whose parts are computed by the caller's own code."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from truestep.engine.backward import backward
from truestep.engine.group import Group, check_free
from truestep.engine.losses import Part, Weighted, read_loss
from truestep.engine.step import Update, apply, decide
from truestep.engine.sums import Sums
from truestep.errors import LossError, OptionError, check_number

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from truestep.engine.learner import Learner


class Accumulating:
    """An update in the making, see `Learner.accumulating`; `result` holds the `Update` once the block has ended."""

    def __init__(self, learner: "Learner", weight: float | None) -> None:
        if weight is not None:
            check_number("net.accumulating", "weight", weight, example=32.0)
        if weight is not None and not 0 < weight < math.inf:
            raise OptionError(
                f"weight={weight}: the gradient is divided by it, so it must be positive and finite."
            )
        self._learner = learner
        self._weight = weight
        self._group = Group.of([learner])
        self._sums = Sums(fixed_total=weight)
        self._scalars: bool | None = None
        self.result: Update | None = None

    def backward(self, loss: Any) -> Tensor:
        """Add one loss: a scalar as it is, one value per example, or `ts.weighted(...)`; return its mean, detached."""
        if not self._learner.started:
            values = loss.values if isinstance(loss, Weighted) else loss
            return torch.as_tensor(values).detach().mean()
        part = read_loss(loss, num_examples=None, whole=True)
        self._check_kind(part)
        seed = torch.ones_like(part.values) if part.weights is None else part.weights
        seed = seed / self._sums.expected
        scale = self._group.shared_scale()
        self._sums.add(part)
        # The block's autocast ends before the backward, as it must: gradients keep the types of the forward.
        with torch.autocast(self._learner.context.device.type, enabled=False):
            backward(part.values, seed if scale is None else seed * scale.to(seed.dtype))
        self._group.accumulate_half()
        context = self._learner.context
        self._micro_batch += 1
        context.random.set(context.key(self._micro_batch))
        return part.values.detach().mean()

    def _check_kind(self, part: Part) -> None:
        if self._scalars is None:
            self._scalars = part.is_scalar
            self._sums.expected = self._weight or part.num_values
        if self._scalars != part.is_scalar:
            raise LossError(
                "This update mixes scalar losses, which add up as they are, with losses per example, which are averaged over all "
                "examples. Give all of one kind."
            )

    def __enter__(self) -> "Self":
        context, group = self._learner.context, self._group
        context.observer.starting()
        if self._learner.needs_closure:
            raise OptionError(
                f"The optimizer of {self._learner.name!r} has to evaluate the loss again while it steps, which a block can't. "
                "Use update(loss, batch) with the loss as a function."
            )
        check_free([self._learner])
        group.left_out.refuse_unfrozen()
        if self._learner.started:
            context.ordinal += 1
        context.is_busy = True
        self._micro_batch = 0
        self._caller = context.random.save()
        context.random.set(context.key(0))
        group.clear_gradients()
        group.keep_statistics()
        group.isolation.__enter__()
        self._surround = self._learner.precision.surround(context.device)
        self._surround.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        self._surround.__exit__(kind, error, trace)
        self._group.isolation.__exit__(kind, error, trace)
        self._learner.context.is_busy = False
        self._learner.context.random.restore(self._caller)
        if error is not None:
            self._group.undo()
        else:
            self.result = self._finish()

    def _finish(self) -> Update:
        if not self._learner.started:
            return Update.not_started(self._learner)
        try:
            if self._scalars is None:
                raise LossError("No loss was added in this block: call update.backward(loss) at least once.")
            step = decide([self._learner], self._sums)[0]
        except BaseException:
            self._group.undo()
            raise
        return apply(step, self._sums)

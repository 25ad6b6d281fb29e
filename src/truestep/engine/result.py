# SPDX-License-Identifier: Apache-2.0
"""What one update gave."""

from collections.abc import Iterable
from typing import NoReturn

import torch
from torch import Tensor

from truestep.core.errors import LossError, OptionError
from truestep.core.guidance import guidance
from truestep.core.missing_attribute_hints import NotIterableObject
from truestep.core.property_call_errors import refuse_property_calls
from truestep.engine.clipping.base import gradient_norms, total_gradient_norm
from truestep.engine.loss_sums import LossTotals
from truestep.engine.weights import LearnerWeights

MOST_NOTED_VALUES = 1 << 15
"""Of a gradient that is copied for its norm."""


class DeferredGradientNorm:
    """The norm of gradients that were copied, computed where somebody reads it; its bits are the same."""

    __slots__ = ("_copy", "_sizes", "number")

    def __init__(self, gradients: list[Tensor], sizes: list[int]) -> None:
        """Copy `gradients`, which are contiguous and have one type and these numbers of values."""
        # One block: a copy of each takes twice as long. Of one tensor torch makes no copy.
        flat = torch._C._nn.flatten_dense_tensors(gradients)
        self._copy: Tensor | None = flat if len(gradients) > 1 else flat.clone()
        self._sizes = sizes
        self.number: float | None = None

    def __float__(self) -> float:
        if self.number is None:
            self.become(float(total_gradient_norm(self.copies)))
        assert self.number is not None
        return self.number

    @property
    def copies(self) -> list[Tensor]:
        """What the norm is to be computed from; nothing where it is known."""
        return [] if self._copy is None else list(torch.split_with_sizes(self._copy, self._sizes))

    def become(self, number: float) -> None:
        """The norm is known, and what it was to be computed from is let go of."""
        self.number, self._copy = number, None


def read_gradient_norms(noted: Iterable[DeferredGradientNorm]) -> None:
    """Compute many norms in few calls; each has the bits that it has alone (tests/engine/test_means.py)."""
    alike: dict[tuple[int, torch.dtype], list[tuple[DeferredGradientNorm, list[Tensor]]]] = {}
    for each in noted:
        if each.number is not None:
            continue
        copies = each.copies
        alike.setdefault((len(copies), copies[0].dtype), []).append((each, copies))
    for (count, _), found in alike.items():
        norms = gradient_norms([copy for _, copies in found for copy in copies])
        rows = torch.stack(norms).view(len(found), count)
        for (each, _), number in zip(found, torch.linalg.vector_norm(rows, dim=1).tolist(), strict=True):
            each.become(number)


@refuse_property_calls("update")
class Update(NotIterableObject):
    """What one update of one learner gave; every value is a 0-d tensor on the device, read only if you read it.

    Attributes:
        loss: the weighted mean over the whole batch; NaN where all weights were zero.
        skipped: whether the parameters were left as they were (overflow, non-finite, all weights zero, not started).
    """

    __slots__ = ("_norm", "_number", "_weights", "skipped", "sums")
    _called, _variable = "What net.update returned", "update"

    skipped: Tensor
    sums: LossTotals
    _weights: LearnerWeights
    _norm: Tensor | None
    _number: int

    def __init__(self) -> None:
        """Raise an OptionError: a learner makes it (`make_update`)."""
        raise OptionError(guidance("NAME(...)", "ts.Update"))

    @property
    def loss(self) -> Tensor:
        """The weighted mean over the whole batch."""
        return self.sums.loss

    @property
    def num_examples(self) -> int:
        """How many examples the batch had (one for each scalar where they can't be counted)."""
        return self.sums.num_examples

    @property
    def weight(self) -> Tensor:
        """The sum of weights that the loss is a mean over (examples, tokens)."""
        return self.sums.weight

    @property
    def metrics(self) -> dict[str, Tensor]:
        """The named values of `ts.weighted`, averaged with the same weights."""
        return self.sums.metrics

    @property
    def outputs(self) -> dict[str, Tensor]:
        """What `ts.weighted(outputs=...)` handed out: detached, in the order of the batch however it was split.

        Where the loss was evaluated several times (a retry in smaller parts, LBFGS), it is what the last evaluation gave.
        """
        return self.sums.outputs

    @property
    def has_gradient(self) -> bool:
        """Whether `gradient_norm` is known or can still be computed."""
        return self._spent_gradient_norm is not None or self._number == self._weights.num_cleared

    @property
    def gradient_norm(self) -> Tensor:
        """The norm of the normalised gradient before clipping; without a clip it is computed when first asked for."""
        if self._spent_gradient_norm is None:
            # the gradients that are there now may be of a later update, whose norm this is not
            if self._number != self._weights.num_cleared:
                raise LossError(
                    "The gradient of this update is gone: without a clip its norm is only computed when asked for, and the "
                    "next update has replaced it. Read update.gradient_norm right after the update."
                )
            tensors = self._weights.gather().tensors or [torch.zeros((), device=self.skipped.device)]
            self._norm = total_gradient_norm(tensors)
        assert self._norm is not None
        return self._norm

    @property
    def _spent_gradient_norm(self) -> Tensor | None:
        # a save has let go of the gradients, and has kept their norm for whoever asks
        spent = self._weights.spent.norm
        if self._norm is None and spent is not None and spent[0] == self._number:
            self._norm = spent[1]
        return self._norm

    def note_norm(self) -> Tensor | DeferredGradientNorm:
        """Return the gradient's norm, of a small gradient on a CPU as one that is computed later.

        Its kernels take three times as long in the middle of updates, where others have driven them from the caches.
        """
        weights = self._weights
        is_there = self._spent_gradient_norm is None and self.has_gradient
        # a copy of a larger one costs more than it saves
        if is_there and weights.num_at_hand <= MOST_NOTED_VALUES:
            tensors = weights.gather().tensors
            if len(tensors) == len(weights.sizes) and all(map(Tensor.is_contiguous, tensors)):
                return DeferredGradientNorm(tensors, weights.sizes)
        return self.gradient_norm

    def __format__(self, spec: str) -> str:
        return _refuse_number_conversion() if spec else repr(self)

    def __repr__(self) -> str:
        metrics = "".join(f", {name}={float(value):.6g}" for name, value in self.metrics.items())
        return f"Update(loss={float(self.loss):.6g}{metrics}, skipped={bool(self.skipped)})"


def make_update(weights: LearnerWeights, sums: LossTotals, norm: Tensor | None, skipped: Tensor) -> Update:
    """Return what an update gave; `norm` of its gradient, where that was measured."""
    # past the constructor, which refuses users, and costs a call
    update: Update = object.__new__(Update)
    update.skipped = skipped
    update.sums = sums
    update._weights = weights
    update._norm = norm
    # The gradients are this update's as long as nobody has dropped them.
    update._number = weights.num_cleared
    return update


def _refuse_number_conversion(*_: object) -> NoReturn:
    raise TypeError(
        "What net.update returned is no number, as it holds the loss, the gradient's norm and more. Its loss is update.loss, a "
        "tensor; float(update.loss) is a number."
    )


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "float", "lt", "le", "gt", "ge"):  # fmt: skip
    setattr(Update, f"__{_name}__", _refuse_number_conversion)

# SPDX-License-Identifier: Apache-2.0
"""What the parts of a batch add up to: the loss, its weight, named values, and the factor still to be applied."""

import math
import operator
from collections.abc import Callable, KeysView
from typing import Any

import torch
from torch import Tensor

from truestep.core.errors import LossError
from truestep.engine.deferred_means import (
    Noted,
    deferred_mean,
    deferred_mean_value,
    deferred_means,
    metric_means_as_numbers,
)
from truestep.engine.loss_extra_outputs import BatchOutputs
from truestep.engine.loss_results import LossOutput, negative_weights_error, nonzero_loss_weight


class LossTotals:
    """Running sums over the parts of one batch; `fixed_total` is a total weight that the caller has promised.

    Each backward is seeded with 1 / `expected`, a number known before the first forward. What remains to the true
    mean, `expected` / total weight, is `factor`; None where it is one.
    """

    __slots__ = (
        *("_adds_up", "_expected", "_fixed_total", "_loss", "_means", "_metrics", "_outputs"),
        *("_outputs_dim", "_weight", "_weights", "copies", "has_more", "is_finite", "least"),
        *("may_be_empty", "num_counted", "num_parts", "total"),
    )

    def __init__(
        self,
        fixed_total: float | None = None,
        *,
        expected: float | Callable[[], int] = 0,
        outputs_dim: int = 0,
    ) -> None:
        self._expected = expected  # see `set_expected_examples`
        self.num_parts = 0
        """How many have been added."""
        self.num_counted: int | None = None
        """How many examples there were, where that is not what was expected."""
        self.may_be_empty = False
        """Whether the total weight is only known on the device and could be zero."""
        self._fixed_total = fixed_total
        self._adds_up = False  # scalars: their sum is the loss
        self._means: list[Any] = []  # of the parts, as they were noted (`deferred_means.py`)
        self._weights: list[Tensor | int] = []
        self.copies: list[Tensor] = []
        """The losses of the parts of which copies stand for their means."""
        self.is_finite = True
        """Whether the losses of all parts were found to be finite, except for `copies`, which are at hand to be looked at."""
        self.total: Tensor | int = 0
        """The total weight: a host number where every value counts one."""
        self.least: Tensor | None = None
        """The smallest weight, where it is known on the device only."""
        self.has_more = False
        """Whether the loss gave metrics or outputs besides its values."""
        self._metrics: list[dict[str, Any]] = []  # noted, too
        self._outputs_dim = outputs_dim  # that the batch's examples lie along
        self._outputs: BatchOutputs | None = None  # most losses hand out nothing
        self._loss: Tensor | None = None
        self._weight: Tensor | None = None

    @property
    def expected(self) -> float:
        """How many examples there are, over which each backward is divided; asked for when it is first needed."""
        if callable(self._expected):
            self._expected = self._expected()
        return self._expected

    def set_expected_examples(self, number: float | Callable[[], int]) -> None:
        """Divide by so many, or by what waits for the other processes and returns it."""
        self._expected = number

    def shares(self) -> tuple[Tensor | int, Tensor | float, dict[str, Tensor]]:
        """Return the total weight, and the loss and the metrics before they are divided by it."""
        if self._adds_up:
            loss: Tensor | float = torch.stack(self._means).sum()
        else:
            loss = self._total_of_means(self._means) if self._means else 0.0
        names = self._metrics[0] if self._metrics else {}
        return (
            self.total,
            loss,
            {name: self._total_of_means([each[name] for each in self._metrics]) for name in names},
        )

    def become(
        self, total: Tensor | int, loss: Tensor, metrics: dict[str, Tensor], *, least: Tensor | None = None
    ) -> None:
        """Be the sums of a whole batch of which these were a share: its total weight, and what is to be divided by it."""
        if self._fixed_total is None:
            divisor: Any = self.expected if self._adds_up else total
        else:
            divisor = self._fixed_total
        self._loss, self.total, self._weight = loss / divisor, total, None
        self.may_be_empty = isinstance(total, Tensor)
        self._means, self._weights, self.copies, self.is_finite = [self._loss], [total], [], False
        self._metrics = [{name: share / divisor for name, share in metrics.items()}] if metrics else []
        self.least = least
        self.has_more = self.has_more or bool(metrics)

    def add(self, part: LossOutput, num_examples: int | None = None) -> None:
        """Add what one call of the loss function gave for so many examples (None: not counted)."""
        values, weights = part.values, part.weights
        mean: Noted
        weight: Tensor | int
        if part.is_scalar:
            self._adds_up = True
            mean, weight = values.detach(), num_examples or 1
        elif weights is None:
            mean, weight = deferred_mean(values), values.numel()
        else:
            self._note_negative_weights(weights)
            mean, weight = part.mean, weights.sum()
            self.may_be_empty = True
        self._means.append(mean)
        self._weights.append(weight)
        if isinstance(mean, list):
            # no sum of float32 numbers overflows as python's, and one that is not finite stays so
            self.is_finite = self.is_finite and math.isfinite(sum(mean))
        elif mean.ndim:
            self.copies.append(mean)
        else:
            self.is_finite = False  # as far as is known without waiting for it
        self.num_parts += 1
        self.total = self.total + weight
        self._loss = None
        if self.has_more or part.metrics or part.outputs:
            self._add_metrics_and_outputs(part)

    def _add_metrics_and_outputs(self, part: LossOutput) -> None:
        """Add what a loss gave besides its values."""
        self.has_more = True
        if part.outputs or self._outputs is not None:
            self._add_outputs(part)
        if self._means[1:] and part.metrics.keys() != (self._metrics[0].keys() if self._metrics else set()):
            raise LossError(
                f"The loss function gave the metrics {sorted(part.metrics)} for one part of the batch, others for another; it "
                "must give the same names each time."
            )
        if part.metrics or self._metrics:
            self._metrics.append(_metric_means(part))

    def _add_outputs(self, part: LossOutput) -> None:
        if self._outputs is None:
            self._outputs = BatchOutputs(self._outputs_dim)
            for _ in self._means[1:]:
                self._outputs.add({}, None)  # parts before handed out none, which is refused
        self._outputs.add(part.outputs, part.num_examples)

    @property
    def outputs(self) -> dict[str, Tensor]:
        """What the loss handed out, over all parts."""
        return {} if self._outputs is None else self._outputs.joined

    def adopt_outputs(self, other: "LossTotals") -> None:
        """Have what another evaluation of the same batch handed out."""
        self._outputs = other._outputs
        self.has_more = other.has_more

    def _note_negative_weights(self, weights: Tensor) -> None:
        """Refuse negative weights; on a device they are only noted, since nothing waits for it."""
        least = weights.min()
        if least.is_cpu:
            if least < 0:
                raise negative_weights_error()
        else:
            self.least = least if self.least is None else torch.minimum(self.least, least)

    @property
    def num_examples(self) -> int:
        """How many examples there were."""
        if self.num_counted is not None:
            return self.num_counted
        return int(self.total if self._adds_up else self.expected)

    @property
    def weight(self) -> Tensor:
        """The total weight as a tensor."""
        if self._weight is None:
            total = self.total
            self._weight = total if isinstance(total, Tensor) else torch.tensor(float(total))
        return self._weight

    @property
    def loss(self) -> Tensor:
        """The weighted mean loss over all parts; NaN where the total weight is zero."""
        loss = self._loss
        if loss is None:
            loss = self._loss = self._average_of_means(self._means)
        return loss

    @property
    def names(self) -> KeysView[str]:
        """The names of the metrics."""
        return (self._metrics[0] if self._metrics else _NOTHING).keys()

    @property
    def has_outputs(self) -> bool:
        """Whether the loss handed out tensors, which are as large as they are."""
        return self._outputs is not None

    def noted(self) -> list[tuple[str, Noted]]:
        """Return loss and metrics by name, as they were noted (`deferred_means.py`) where a mean alone is asked of them."""
        if self.num_parts != 1 or self._adds_up or self.may_be_empty or self._fixed_total is not None:
            return [("loss", self.loss), *self.metrics.items()]
        metrics = self._metrics[0].items() if self._metrics else ()
        return [("loss", self._means[0]), *metrics]

    @property
    def metrics(self) -> dict[str, Tensor]:
        """The weighted mean of each named value over all parts."""
        if not self._metrics:
            return {}
        return {
            name: self._average_of_means([each[name] for each in self._metrics]) for name in self._metrics[0]
        }

    def _average_of_means(self, means: list[Any]) -> Tensor:
        if self._adds_up:
            return torch.stack(means).sum() / self.expected
        if self._fixed_total is not None:
            return self._total_of_means(means) / self._fixed_total
        if not means:
            return torch.tensor(float("nan"))
        if len(means) == 1 and not self.may_be_empty:
            return deferred_mean_value(means[0])
        return self._total_of_means(means) / self.total

    def _total_of_means(self, means: list[Noted]) -> Tensor:
        first = means[0]
        if self.may_be_empty or not (isinstance(first, list) or first.is_cpu):
            shares: Any = sum(map(operator.mul, map(deferred_mean_value, means), self._weights))
            return shares  # type: ignore[no-any-return]
        # They are at hand: one tensor is made, not two a part.
        numbers = map(operator.mul, metric_means_as_numbers(means), self._weights)
        dtype = torch.float32 if isinstance(first, list) else torch.promote_types(first.dtype, torch.float32)
        return torch.tensor(sum(numbers), dtype=dtype)

    @property
    def is_normalised(self) -> bool:
        """Whether the gradients are known to be those of the mean already, without asking anybody."""
        total = self.total
        return (
            self._fixed_total is not None or self._adds_up or (type(total) is int and total == self._expected)
        )

    @property
    def factor(self) -> Tensor | float | None:
        """What the gradients still have to be multiplied by; None for one."""
        if self.is_normalised:
            return None
        total, expected = self.total, self.expected  # which may have to be asked for
        if isinstance(total, Tensor):
            return expected / nonzero_loss_weight(total)
        return None if total == expected else expected / total


_NOTHING: dict[str, Tensor] = {}  # never changed


def _metric_means(part: LossOutput) -> dict[str, Noted]:
    """Return what stands for the mean of each metric."""
    metrics, weights = part.metrics, part.weights
    # a scalar may be a buffer that the next forward writes to
    means: dict[str, Noted] = {name: each.detach().clone() for name, each in metrics.items() if not each.ndim}
    names = [name for name in metrics if name not in means] if means else [*metrics]
    if weights is not None:
        total = nonzero_loss_weight(weights.sum())
        means |= {name: (metrics[name].detach() * weights).sum() / total for name in names}
    elif names:
        wide = [metrics[name].float() for name in names]
        means |= zip(names, deferred_means(wide), strict=True)
    return {name: means[name] for name in metrics} if len(names) < len(metrics) else means

# SPDX-License-Identifier: Apache-2.0
"""Evaluation: every example once, averaged by weight, with the learner found again as it was."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.errors import BatchError, LossError
from truestep.core.random_streams import key_of
from truestep.engine.batches import to_device, try_count
from truestep.engine.losses import Weighted, negative_weights
from truestep.engine.parts import Parts

Values = Callable[[Any], Any]
_EVALUATION = 0xE7A1  # keeps the keys of evaluation apart from those of updates


def evaluate(learner: Parts, values: Values, data: Any, metric: Any) -> Any:
    """Average `values(batch)` over the batches of `data`, or feed them to a `metric` object."""
    context = learner.context
    context.observer.starting()
    batches = data.batches(0) if hasattr(data, "batches") else data
    if metric is not None:
        metric.reset()
    totals = _Totals()
    stopping = False
    with evaluating(learner):
        for number, batch in enumerate(batches):
            context.random.set(key_of(context.seed, _EVALUATION, context.step, number))
            with learner.precision.surround(context.device):
                result = values(to_device(batch, context.device))
            if metric is None:
                totals.add(result, try_count(batch))
            else:
                metric.update(*result if isinstance(result, tuple) else (result,))
            if stopping := context.observer.wants_to_stop():
                break
    if stopping:
        context.observer.stop()
    if metric is None:
        return totals.result()
    answer = _plain(metric.compute())
    metric.reset()
    return answer


@contextmanager
def evaluating(learner: Parts) -> Iterator[None]:
    """Every learner in evaluation mode and back, part by part; no gradients; the caller's random stream put back."""
    context = learner.context
    everybody = [other.module for other in context.learners.values()]
    modes: list[tuple[nn.Module, bool]] = [
        (part, part.training) for module in everybody for part in module.modules()
    ]
    caller = context.random.save()
    for module in everybody:
        module.eval()
    try:
        # Not inference_mode: its tensors could never be used by a later update (a table that a forward keeps), and it gains nothing
        # that matters: 0 to 2 % of a transformer or a convolution, 5 to 7 % of thirty layers of size 8 (docs/log.md).
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        context.random.restore(caller)


class _Totals:
    """Weighted sums of named values in float64, read from the device once at the end."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._weight: Tensor | float = 0.0
        self._single = True
        self._least = torch.zeros(())  # of the weights: read once, at the end

    def add(self, result: Any, num_examples: int | None) -> None:
        """Add what one batch gave."""
        if isinstance(result, Weighted):
            weights = torch.ones_like(result.values) if result.weights is None else result.weights
            self._least = torch.minimum(self._least.to(weights.device), weights.min())
            named = {"loss": result.values, **result.metrics}
            self._single = self._single and not result.metrics
        else:
            named = dict(result) if isinstance(result, dict) else {"value": result}
            self._single = self._single and not isinstance(result, dict)
            weights = None
        if not named:
            raise LossError(
                "The function to evaluate returned an empty dict; return at least one value per example."
            )
        first = next(iter(named.values()))
        for name, values in named.items():
            self._check(name, values, weights, first)
            if weights is None and values.numel() != (num_examples or len(values)):
                raise LossError(
                    f"The function to evaluate returned {name!r} of shape {tuple(values.shape)} for {num_examples} examples; "
                    "return one value per example, or ts.weighted(values, weights) for values that count otherwise."
                )
        weights = torch.ones_like(first, dtype=torch.float64) if weights is None else weights.double()
        total = weights.sum()
        for name, values in named.items():
            part = values.double() * (total if values.ndim == 0 else weights)
            self._sums[name] = (
                self._sums.get(name, torch.zeros((), dtype=torch.float64)).to(part.device) + part.sum()
            )
        self._weight = total + self._weight

    def _check(self, name: str, values: Any, weights: Tensor | None, first: Any) -> None:
        if not isinstance(values, Tensor):
            raise LossError(
                f"The function to evaluate returned {type(values).__name__} for {name!r}; return one value per example."
            )
        if values.ndim == 0 and weights is None:
            raise LossError(
                "The function to evaluate returned a scalar. A mean of means is not the mean when the last batch is shorter; "
                "return one value per example, for example (scores.argmax(1) == labels).float()."
            )
        if values.ndim and values.shape != first.shape:
            raise LossError(
                f"The function to evaluate returned {name!r} of shape {tuple(values.shape)} beside another of shape "
                f"{tuple(first.shape)}. They are averaged over the same examples, and would broadcast and count some twice; "
                "bring all to one shape, for example (batch,)."
            )

    def result(self) -> float | dict[str, float]:
        """Return the average, or the averages by name."""
        if not self._sums:
            raise BatchError(
                "There was nothing to evaluate: the data gave no batch. A generator that was used up gives none."
            )
        if self._least < 0:
            raise negative_weights()
        means = {name: float(total / self._weight) for name, total in self._sums.items()}
        return next(iter(means.values())) if self._single and len(means) == 1 else means


def _plain(value: Any) -> Any:
    """Return a metric's answer with scalar tensors as numbers."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return value

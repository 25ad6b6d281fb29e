# SPDX-License-Identifier: Apache-2.0
"""Learns one batch with the model, within a sealed child: the run's own model learns nothing by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from truestep.doctor.runtime.history import ForwardCall, LossCall
from truestep.doctor.runtime.probed_model import ProbedModel
from truestep.doctor.runtime.tensor_queries import first_watched_tensor, is_plain_watched_tensor

STEPS = 100
EXAMPLES = 16  # of the batch: so few can be learned by heart
SECONDS = 8.0  # after so long it stops with what it has, before the child has had its time
RATE = 0.01


@dataclass(frozen=True)
class ProbeLearning:
    """What was reached on one batch: by the model, and by the best constant output."""

    first: float
    halfway: float  # the least of the first half of the steps
    reached: float
    constant: float
    num_steps: int

    def is_stuck(self, share: float) -> bool:
        """Tell whether the model is no better than a constant, and was no longer getting better."""
        better = self.reached < share * self.constant or self.reached < share * self.halfway
        return self.constant > 1e-3 and not better


class OneBatchProbe:
    """The loss of a few examples of one batch, for the model that was applied to it."""

    def __init__(self, forward: ForwardCall, loss: LossCall) -> None:
        self.forward = forward
        self.loss = loss
        output = first_watched_tensor(forward.output)
        assert output is not None
        self.whole = len(output) if output.dim() else 0  # a model that returns its loss first
        self.examples = EXAMPLES if self._is_divisible_batch(output) else self.whole

    def _is_divisible_batch(self, output: Tensor) -> bool:
        is_batch = output.dim() > 1 and self.loss.target.dim() > 0
        same = is_batch and self.whole == len(self.loss.input) == len(self.loss.target)
        return same and self.whole > EXAMPLES and self.loss.options.get("weight") is None

    def obstacle(self) -> str | None:
        """Return why it can't be tried, or None."""
        inputs = (*self.forward.args, *self.forward.kwargs.values())
        if not all(is_plain_watched_tensor(each) for each in inputs if isinstance(each, Tensor)):
            return "an input of the model is no batch of real numbers"
        output = first_watched_tensor(self.forward.output)
        if output is None or output.numel() != self.loss.input.numel():
            return "the loss is not computed from the model's output as it is"
        if not torch.equal(output.detach().reshape(self.loss.input.shape), self.loss.input.detach()):
            return "the loss is not computed from the model's output as it is"
        return None

    def learn(self) -> ProbeLearning:
        """Train the model on the batch by Adam, then a constant output; return the losses reached."""
        with ProbedModel(self.forward) as trial, torch.enable_grad():
            trial.module.train()
            for each in trial.module.modules():
                if isinstance(each, nn.modules.dropout._DropoutNd):
                    each.eval()
            trained = [each for each in trial.module.parameters() if each.requires_grad]
            args = [self._first_examples(each) for each in self.forward.args]
            kwargs = {name: self._first_examples(each) for name, each in self.forward.kwargs.items()}
            values = _losses_along_adam(
                lambda: self._mean_loss(first_watched_tensor(trial.module(*args, **kwargs))), trained
            )
            constant = torch.zeros_like(self.loss.input[:1]).detach().requires_grad_()
            shape = self._first_examples(self.loss.input).shape
            floor = _losses_along_adam(lambda: self._mean_loss(constant.expand(shape)), [constant], rate=0.1)
        half = min(values[: len(values) // 2 + 1])
        return ProbeLearning(values[0], half, min(values), min(floor), len(values) - 1)

    def _first_examples(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == self.whole:
            return value.detach()[: self.examples]
        return value.detach() if isinstance(value, Tensor) else value

    def _mean_loss(self, output: Tensor | None) -> Tensor:
        assert output is not None
        given = output.reshape(self._first_examples(self.loss.input).shape)
        value: Tensor = getattr(F, self.loss.name)(
            given, self._first_examples(self.loss.target), **self.loss.options
        )
        return value.mean()


def _losses_along_adam(
    value: Callable[[], Tensor], parameters: Sequence[Tensor], rate: float = RATE
) -> list[float]:
    """Return the losses along so many steps of Adam, written out: the run's own optimizers are watched."""
    first = [torch.zeros_like(each) for each in parameters]
    second = [torch.zeros_like(each) for each in parameters]
    values: list[float] = []
    started = time.perf_counter()
    for step in range(1, STEPS + 2):
        loss = value()
        values.append(float(loss))
        if not loss.requires_grad or time.perf_counter() - started > SECONDS:
            break
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            for each, gradient, mean, square in zip(parameters, gradients, first, second, strict=True):
                if gradient is not None:
                    mean.lerp_(gradient, 0.1)
                    square.lerp_(gradient.square(), 0.001)
                    scaled = square.div(1 - 0.999**step).sqrt_().add_(1e-8)
                    each.sub_(rate / (1 - 0.9**step) * mean / scaled)
    return values

# SPDX-License-Identifier: Apache-2.0
"""From a learner's gradients to its new parameters: normalise, measure, clip, decide, step."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from truestep.engine.clipping import Gradients, dense_gradient, total_norm
from truestep.engine.sums import Sums
from truestep.errors import LossError, NonFiniteError

if TYPE_CHECKING:
    from truestep.engine.learner import Learner

# So many overflows in a row are no search for a scale any more: the gradient itself is not finite.
MOST_OVERFLOWS_IN_A_ROW = 100


class Update:
    """What one update of one learner gave; every value is a 0-d tensor on the device, read only if you read it.

    Attributes:
        loss: the weighted mean over the whole batch; NaN where all weights were zero.
        skipped: whether the parameters were left as they were (overflow, non-finite, all weights zero, not started).
    """

    __slots__ = ("_learner", "_norm", "_number", "_sums", "loss", "skipped")

    def __init__(self, learner: "Learner", sums: Sums, norm: Tensor | None) -> None:
        self.loss = sums.loss
        self._sums = sums
        self.skipped = learner.not_skipped
        self._learner = learner
        self._norm = norm
        self._number = learner.gradients_made

    @classmethod
    def not_started(cls, learner: "Learner") -> "Update":
        """Return the update of a learner whose `starts_at` lies ahead: nothing was computed."""
        update = cls(learner, Sums(), torch.zeros((), device=learner.context.device))
        update.skipped = learner.was_skipped
        return update

    @property
    def total_weight(self) -> Tensor | float:
        """The sum of weights as it is at hand: a number on the host where every value counts one."""
        return self._sums.total

    @property
    def num_examples(self) -> int:
        """How many examples the batch had (one where its loss was a scalar)."""
        return int(self._sums.expected)

    @property
    def weight(self) -> Tensor:
        """The sum of weights that the loss is a mean over (examples, tokens)."""
        return self._sums.weight

    @property
    def metrics(self) -> dict[str, Tensor]:
        """The named values of `ts.weighted`, averaged with the same weights."""
        return self._sums.metrics

    @property
    def has_gradient(self) -> bool:
        """Whether `gradient_norm` is known or can still be computed."""
        return self._norm is not None or self._number == self._learner.gradients_made

    @property
    def gradient_norm(self) -> Tensor:
        """The norm of the normalised gradient before clipping; without a clip it is computed when first asked for."""
        if self._norm is None:
            if self._number != self._learner.gradients_made:
                raise LossError(
                    "The gradient of this update is gone: without a clip its norm is only computed when asked for, and the "
                    "next update has replaced it. Read update.gradient_norm right after the update."
                )
            tensors = gather(self._learner).tensors
            self._norm = (
                total_norm(tensors) if tensors else torch.zeros((), device=self._learner.context.device)
            )
        return self._norm

    def __repr__(self) -> str:
        return f"Update(loss={float(self.loss):.6g}, skipped={bool(self.skipped)})"


def gather(learner: "Learner") -> Gradients:
    """Return the learner's gradients as they are to be normalised, clipped and stepped with.

    Half-precision gradients with float32 master weights become the masters' gradients here; those that were
    accumulated in float32 stay there until they are written back.
    """
    if not learner.has_half_weights:
        tensors = (
            [dense_gradient(parameter) for parameter in learner.weights]
            if learner.has_sparse
            else [parameter.grad for parameter in learner.weights]
        )
        if all(tensor is not None for tensor in tensors):
            return Gradients(learner.weight_names, learner.weights, tensors)  # type: ignore[arg-type]
    names, targets, found = [], [], []
    for name, parameter, target in zip(learner.weight_names, learner.weights, learner.targets, strict=True):
        gradient = learner.accumulated.pop(parameter, None)
        if gradient is None:
            gradient = dense_gradient(parameter)
        if target is not parameter:
            gradient = target.grad if gradient is None else gradient.to(target.dtype)
            target.grad, parameter.grad = gradient, None
        if gradient is not None:
            names.append(name)
            targets.append(target)
            found.append(gradient)
    return Gradients(names, targets, found)


def normalise(learner: "Learner", gradients: Gradients, sums: Sums) -> None:
    """Apply what the backward's seed could not know yet, as one factor: the total weight and the inverse loss scale."""
    if learner.scaler is not None:
        learner.scaler.unscale(gradients.tensors, sums.factor)
    elif sums.factor is not None:
        torch._foreach_mul_(gradients.tensors, sums.factor)


def prepare(learner: "Learner", sums: Sums) -> Tensor | float | None:
    """Normalise, measure and clip the learner's gradients; return their norm before clipping, or what says that it is finite."""
    gradients = gather(learner)
    if not gradients.tensors:
        raise LossError(
            f"No gradient reached any parameter of {learner.name!r}: the loss does not depend on it, so the update would "
            "change nothing. Does the loss function call this learner, without detach() or no_grad() on the way?"
        )
    normalise(learner, gradients, sums)
    evidence: Tensor | float | None = None
    if learner.measures_norm:
        evidence = total_norm(gradients.tensors, learner.clip.norm_type if learner.clip else 2.0)
    elif learner.finite_check is not None:
        evidence = learner.finite_check(gradients.tensors)
    if learner.clip is not None:
        assert isinstance(evidence, Tensor)
        learner.clip.apply(gradients, evidence)
    if learner.has_half_weights:
        for target, gradient in zip(gradients.parameters, gradients.tensors, strict=True):
            if target.grad is not gradient:
                target.grad = gradient.to(target.dtype)
    return evidence


class Step(NamedTuple):
    """What one learner is going to do with its gradients."""

    learner: "Learner"
    evidence: Tensor | float | None  # finite if the gradient is; the norm, where that was measured
    skipped: bool
    overflow: bool

    @property
    def norm(self) -> Tensor | None:
        """The gradient's norm before clipping, where it was measured."""
        return self.evidence if isinstance(self.evidence, Tensor) and self.learner.measures_norm else None


def decide(learners: "Sequence[Learner]", sums: Sums) -> list[Step]:
    """Prepare every learner's gradients and decide about its step; whatever is wrong is raised before one has moved."""
    steps = []
    for learner in learners:
        evidence = prepare(learner, sums)
        overflow = learner.late is None and learner.scaler is not None and bool(learner.scaler.found_inf)
        skipped = learner.late is None and _must_skip(learner, sums, evidence, overflow=overflow)
        steps.append(Step(learner, evidence, skipped, overflow))
    return steps


def apply(step: Step, sums: Sums) -> Update:
    """Make one learner's step, or skip it."""
    learner = step.learner
    learner.attempts += 1
    update = Update(learner, sums, step.norm)
    if learner.late is not None:
        update.skipped = learner.late.step(sums, step.evidence)
    else:
        if learner.scaler is not None:
            learner.scaler.adapt()
        if step.skipped:
            update.skipped = learner.was_skipped
            learner.statistics.restore()
            learner.note_skipped(overflow=step.overflow)
        else:
            learner.step_optimizers()
            learner.note_applied()
    learner.context.observer.updated(learner, update)
    return update


def _must_skip(learner: "Learner", sums: Sums, evidence: Tensor | float | None, *, overflow: bool) -> bool:
    """Decide on the host, where the flags are there already (a CPU) or have to be waited for."""
    if sums.may_be_empty and not sums.total:
        return True
    policy = learner.context.nonfinite
    if policy == "keep":
        return overflow
    is_finite = math.isfinite(sums.loss) and (overflow or evidence is None or math.isfinite(evidence))
    if is_finite and not (overflow and learner.overflows_in_a_row + 1 >= MOST_OVERFLOWS_IN_A_ROW):
        return overflow
    if policy == "raise":
        raise nonfinite_error(learner, float(sums.loss), None if evidence is None else float(evidence))
    return True


def nonfinite_error(learner: "Learner", loss: float, norm: float | None) -> NonFiniteError:
    """Return the error for a loss or gradient that is NaN or infinite."""
    what = (
        f"The loss of {learner.name!r} is {loss}"
        if not math.isfinite(loss)
        else (f"The loss of {learner.name!r} is finite ({loss:.6g}) but its gradient is not (norm {norm})")
    )
    spoilt = not all(bool(torch.isfinite(weight).all()) for weight in learner.weights)
    before = (
        "the parameters were not finite before it already: an earlier gradient was not, though its loss was (sqrt at 0, say); "
        'measure gradients too, with a clip or nonfinite="skip"'
        if spoilt
        else "the parameters are as before"
    )
    return NonFiniteError(
        f"{what} at step {learner.context.step}; the update was not applied, {before}. Usual causes: "
        "log or division of 0, sqrt at 0, an overflow of float16, a learning rate that is too high, NaN in the data. "
        'To leave such batches out and count them, use ts.Run(nonfinite="skip").'
    )

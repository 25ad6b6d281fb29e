# SPDX-License-Identifier: Apache-2.0
"""The learners of one update seen together: whose gradients, whose buffers, which scale."""

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.buffers import BufferSnapshot, MovingBuffers, Place
from truestep.core.errors import OptionError
from truestep.core.random_streams import host_streams, set_host_streams
from truestep.engine.context import Context
from truestep.engine.isolation import Isolation
from truestep.engine.parts import Parts
from truestep.engine.precision import Precision
from truestep.engine.sharing import SharedParameters
from truestep.engine.side_effects import SideEffects
from truestep.engine.strangers import Strangers
from truestep.engine.untrained import LeftOut, refuse_untrained
from truestep.engine.wrong_calls import call_with_batch

BATCH_STATISTICS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)

SEEDS_KEPT = 64


class Plan:
    """The learners that one update trains, with everything about them that does not change from step to step."""

    def __init__(self, context: Context, learners: Sequence[Parts]) -> None:
        self.context = context
        self.learners = list(learners)
        for learner in self.learners:
            refuse_untrained(learner)
        self.side_effects = SideEffects(self.learners)
        names = " and ".join(repr(learner.name) for learner in self.learners)
        self.hooks = context.strategy.hooks([learner.weights for learner in self.learners], names)
        everybody = list(context.learners.values())
        self._left_out = LeftOut(self.learners)
        self._shared = SharedParameters(everybody)
        owned = {id(weight) for learner in everybody for weight in learner.weights.parameters}
        self.strangers = Strangers(", ".join(repr(learner.name) for learner in self.learners), owned)
        others = [learner for learner in everybody if learner not in self.learners]
        self.precision = self._common_precision()
        self.closure_learner = self._closure_learner()
        self.isolation: AbstractContextManager[Any] = nullcontext()
        if others:
            parameters = [parameter for other in others for parameter in other.weights.parameters]
            self.isolation = Isolation(parameters, [other.buffers for other in others if other.buffers])
        self._half = [learner.weights for learner in self.learners if learner.weights.has_half]
        self._scalers = [
            learner.policy.scaler for learner in self.learners if learner.policy.scaler is not None
        ]
        self._buffers = [learner.buffers for learner in everybody if learner.buffers]
        self._seeds: dict[tuple[Any, ...], Tensor] = {}
        self._spectral: list[Place] = [place for learner in everybody for place in learner.spectral_places]
        self.has_spectral = bool(self._spectral)
        self.compiler = next((learner.compiler for learner in self.learners if learner.compiler), None)
        self._warned = False

    @classmethod
    def of(cls, learners: Sequence[Parts]) -> "Plan":
        """Return the plan of those of `learners` that have started, made once for each set."""
        context = learners[0].context
        if len(learners) == 1 and learners[0].started:
            plan: Plan | None = context.plans.get((len(context.learners), id(learners[0])))
            if plan is not None:
                return plan
        started = [learner for learner in learners if learner.started]
        key = (len(context.learners), *(id(learner) for learner in started))
        plans: dict[tuple[int, ...], Plan] = context.plans
        if key not in plans:
            _check_distinct(learners)
            plans[key] = cls(context, started)
        return plans[key]

    def _common_precision(self) -> Precision | Any:
        modes = {learner.precision.name: learner.precision for learner in self.learners}
        if len(modes) > 1:
            raise OptionError(
                f"One loss can't be computed in {' and '.join(modes)} at once; learners updated together need one precision."
            )
        return next(iter(modes.values()), None)

    def _closure_learner(self) -> Parts | None:
        found = [learner for learner in self.learners if learner.needs_closure]
        if found and len(self.learners) > 1:
            raise OptionError(
                f"The optimizer of {found[0].name!r} evaluates the loss several times, so it can't share an update with another "
                "learner. Update them one after the other."
            )
        return found[0] if found else None

    @property
    def micro_batch_in_use(self) -> int | None:
        """The micro-batch size that "auto" arrived at, None while the whole batch fits."""
        return min(
            (m for learner in self.learners if (m := learner.counters.micro_batch_in_use) is not None),
            default=None,
        )

    def shrink_micro_batch(self, size: int, reason: str) -> None:
        """Halve the micro-batch after an allocation failed at `size` examples."""
        if size <= 1:
            raise OptionError(
                f"There is not enough memory for a single example ({reason}). A smaller micro-batch does not exist; use a lower "
                "precision, a smaller model or input, or activation checkpointing (torch.utils.checkpoint)."
            )
        smaller = (size + 1) // 2
        for learner in self.learners:
            learner.counters.micro_batch_in_use = smaller
        names = ", ".join(learner.name for learner in self.learners)
        self.context.choose(
            f"micro_batch of {names}", smaller, f"{size} examples at once did not fit: {reason}"
        )

    def clear_gradients(self) -> None:
        """Drop all gradients of the learners, those being accumulated in float32 too."""
        for learner in self.learners:
            learner.weights.clear()
        self.hooks.begin()

    def check(self) -> None:
        """Refuse an update now: inside another one, or of parameters that were unfrozen and would never change or step twice."""
        check_free(self.learners)
        self._left_out.refuse_unfrozen()
        self._shared.refuse_unfrozen()

    def keep_buffers(self) -> None:
        """Remember everybody's buffers: others' are put back, and one's own where the update is not applied."""
        for buffers in self._buffers:
            buffers.keep()

    def undo(self) -> None:
        """Leave no trace of an update that failed."""
        self.clear_gradients()
        for learner in self.learners:
            learner.buffers.restore()

    def snapshot(self) -> "Before":
        """Remember what a failed attempt could change."""
        return Before(self._buffers)

    def spectral_snapshot(self) -> BufferSnapshot:
        """Remember the power-iteration vectors: one iteration an update, not one a micro-batch, keeps the split exact."""
        return BufferSnapshot(self._spectral)

    def call(self, loss: Any, batch: Any) -> Any:
        """Call the loss function, compiled where that was asked for."""
        return call_with_batch(loss, batch) if self.compiler is None else self.compiler.call(loss, batch)

    def uniform_seed(self, values: Tensor, expected: float) -> Tensor:
        """Return 1 / expected for every value.

        One number, seen as often as there are values, is kept for the next step: autograd copies such a gradient where it would
        take a plain one's own memory (a loss that is a view of a parameter), so that nobody can write to it.
        """
        if values.ndim != 1 or len(values) < 2:
            return torch.full_like(values, 1 / expected)
        key = (len(values), values.dtype, expected)
        seed = self._seeds.get(key)
        if seed is None:
            if len(self._seeds) >= SEEDS_KEPT:
                self._seeds.clear()
            number = torch.full((1,), 1 / expected, dtype=values.dtype, device=values.device)
            seed = self._seeds[key] = number.expand(len(values))
        return seed

    def shared_scale(self) -> Tensor | None:
        """Return the loss scale for one backward through all learners: their smallest, which all of them adopt."""
        if not self._scalers:
            return None
        scale = self._scalers[0].scale
        for scaler in self._scalers[1:]:
            scale = torch.minimum(scale, scaler.scale)
        if len(self._scalers) > 1:
            for scaler in self._scalers:
                scaler.scale.copy_(scale)
        return scale

    def accumulate_half(self) -> None:
        """Add half-precision gradients to float32 sums, where 512 micro-batches lose no digits."""
        for weights in self._half:
            weights.accumulate()

    def warn_of_batch_statistics(self, num_parts: int) -> None:
        """Say once which layers make a split update differ from the whole one."""
        if self._warned or num_parts < 2:
            return
        self._warned = True
        layers = [name for learner in self.learners for name in _layers_of(learner.module)]
        if layers:
            warnings.warn(
                f"Batch normalisation ({', '.join(layers[:6])}) takes its statistics from each micro-batch, so a split update "
                "differs from the whole one. Use a larger micro_batch, or GroupNorm or LayerNorm, if that matters.",
                stacklevel=6,
            )


def _layers_of(module: nn.Module) -> list[str]:
    """Return the names of the layers in training mode that take statistics from the batch."""
    return [
        name for name, part in module.named_modules() if isinstance(part, BATCH_STATISTICS) and part.training
    ]


class Before:
    """What is put back before a batch is tried again: buffers and the host's random streams (torch's are keyed anew)."""

    def __init__(self, buffers: Sequence[MovingBuffers]) -> None:
        self._buffers = buffers
        self._streams = host_streams()

    def restore(self) -> None:
        """Put them back."""
        for buffers in self._buffers:
            buffers.restore()
        set_host_streams(self._streams)


def check_free(learners: Sequence[Parts]) -> None:
    """Refuse an update inside another one, or while averages stand in the place of weights."""
    for learner in learners:
        if learner.context.is_busy:
            raise OptionError(
                f"{learner.name!r} was to be updated while an update is under way: a loss function may be called several times and "
                "must change nothing. Make the second update after the first."
            )
        if learner.shows_average:
            raise OptionError(
                f"{learner.name!r} was to be updated inside averaged(), where its average stands in for its weights; the step "
                "would be lost at the end of the block. Update it outside."
            )


def _check_distinct(learners: Sequence[Parts]) -> None:
    if len({id(learner) for learner in learners}) < len(learners):
        raise OptionError("ts.update was given the same learner twice; name each once.")
    if len({id(learner.context) for learner in learners}) > 1:
        raise OptionError(
            "ts.update was given learners of different runs; they share no device, seed or cursor."
        )

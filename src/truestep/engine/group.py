# SPDX-License-Identifier: Apache-2.0
"""The learners of one update seen together: whose gradients, whose buffers, which scale."""

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from truestep.engine.isolation import BufferSnapshot, Isolation, Place
from truestep.engine.precision import Precision
from truestep.engine.randomness import host_streams, set_host_streams
from truestep.engine.untrained import LeftOut, refuse_untrained
from truestep.errors import OptionError

if TYPE_CHECKING:
    from truestep.engine.context import Context
    from truestep.engine.learner import Learner

BATCH_STATISTICS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)

SEEDS_KEPT = 64


class Group:
    """The learners that one update trains, with everything about them that does not change from step to step."""

    def __init__(self, context: "Context", learners: Sequence["Learner"]) -> None:
        self.context = context
        self.learners = list(learners)
        for learner in self.learners:
            refuse_untrained(learner)
        self.left_out = LeftOut(self.learners)
        everybody = list(context.learners.values())
        others = [learner for learner in everybody if learner not in self.learners]
        self.precision = self._common_precision()
        self.closure_learner = self._closure_learner()
        self.isolation: AbstractContextManager[Any] = nullcontext()
        if others:
            parameters = [parameter for other in others for parameter in other.weights]
            self.isolation = Isolation(
                parameters, [place for other in others for place in other.buffer_places]
            )
        self._parameters = [parameter for learner in self.learners for parameter in learner.weights]
        self._half = [learner for learner in self.learners if learner.has_half_weights]
        self._scalers = [learner.scaler for learner in self.learners if learner.scaler is not None]
        self._statistics = [learner.statistics for learner in self.learners if learner.statistics.places]
        self._seeds: dict[tuple[Any, ...], Tensor] = {}
        self._buffers: list[Place] = [place for learner in everybody for place in learner.buffer_places]
        self._spectral: list[Place] = [place for learner in everybody for place in learner.spectral_places]
        self.compiler = next((learner.compiler for learner in self.learners if learner.compiler), None)
        self._warned = False

    @classmethod
    def of(cls, learners: Sequence["Learner"]) -> "Group":
        """Return the group of those of `learners` that have started, made once for each set."""
        context = learners[0].context
        if len(learners) == 1 and learners[0].started:
            group = context.groups.get((len(context.learners), id(learners[0])))
            if group is not None:
                return group
        started = [learner for learner in learners if learner.started]
        key = (len(context.learners), *(id(learner) for learner in started))
        groups: dict[tuple[int, ...], Group] = context.groups
        if key not in groups:
            _check_distinct(learners)
            groups[key] = cls(context, started)
        return groups[key]

    def _common_precision(self) -> Precision | Any:
        modes = {learner.precision.name: learner.precision for learner in self.learners}
        if len(modes) > 1:
            raise OptionError(
                f"One loss can't be computed in {' and '.join(modes)} at once; learners updated together need one precision."
            )
        return next(iter(modes.values()), None)

    def _closure_learner(self) -> "Learner | None":
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
            (m for learner in self.learners if (m := learner.micro_batch_in_use) is not None), default=None
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
            learner.micro_batch_in_use = smaller
        names = ", ".join(learner.name for learner in self.learners)
        self.context.choose(
            f"micro_batch of {names}", smaller, f"{size} examples at once did not fit: {reason}"
        )

    def clear_gradients(self) -> None:
        """Drop all gradients of the group, those being accumulated in float32 too."""
        for parameter in self._parameters:
            parameter.grad = None
        for learner in self._half:
            learner.accumulated.clear()
            for target in learner.targets:
                target.grad = None
        for learner in self.learners:
            learner.gradients_made += 1

    def keep_statistics(self) -> None:
        """Remember what a batch normalisation learns from a batch whose update may not be applied."""
        for statistics in self._statistics:
            statistics.keep()

    def undo(self) -> None:
        """Leave no trace of an update that failed."""
        self.clear_gradients()
        for statistics in self._statistics:
            statistics.restore()

    def snapshot(self) -> "Before":
        """Remember what a failed attempt could change."""
        return Before(self._buffers)

    def spectral_snapshot(self) -> BufferSnapshot:
        """Remember the power-iteration vectors: one iteration an update, not one a micro-batch, keeps the split exact."""
        return BufferSnapshot(self._spectral)

    def call(self, loss: Any, batch: Any) -> Any:
        """Call the loss function, compiled where that was asked for."""
        return loss(batch) if self.compiler is None else self.compiler.call(loss, batch)

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
        for learner in self._half:
            learner.accumulate_in_float32()

    def warn_of_batch_statistics(self, num_parts: int) -> None:
        """Say once which layers make a split update differ from the whole one."""
        if self._warned or num_parts < 2:
            return
        self._warned = True
        layers = [name for learner in self.learners for name in learner.layers_of(BATCH_STATISTICS)]
        if layers:
            warnings.warn(
                f"Batch normalisation ({', '.join(layers[:6])}) takes its statistics from each micro-batch, so a split update "
                "differs from the whole one. Use a larger micro_batch, or GroupNorm or LayerNorm, if that matters.",
                stacklevel=6,
            )


class Before:
    """What is put back before a batch is tried again: buffers and the host's random streams (torch's are keyed anew)."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._buffers = BufferSnapshot(places)
        self._streams = host_streams()

    def restore(self) -> None:
        """Put them back."""
        self._buffers.restore()
        set_host_streams(self._streams)


def check_free(learners: Sequence["Learner"]) -> None:
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


def _check_distinct(learners: Sequence["Learner"]) -> None:
    if len({id(learner) for learner in learners}) < len(learners):
        raise OptionError("ts.update was given the same learner twice; name each once.")
    if len({id(learner.context) for learner in learners}) > 1:
        raise OptionError(
            "ts.update was given learners of different runs; they share no device, seed or cursor."
        )

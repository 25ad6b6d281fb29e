# SPDX-License-Identifier: Apache-2.0
"""What an update of some learners does, decided once: whose gradients, whose buffers, which scale, which checks."""

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from truestep.core.buffers import BufferSnapshot, Place
from truestep.core.errors import OptionError
from truestep.core.random_streams import host_rng_states, set_host_rng_states
from truestep.engine.batch_dependent_layers import MicroBatchBuffers, warn_of_batch_statistics
from truestep.engine.batch_unpacking_check import SingleRowCheck
from truestep.engine.learner_isolation import LearnerIsolation
from truestep.engine.loss_results import LossOutput
from truestep.engine.loss_side_effects import LossSideEffects
from truestep.engine.module_change_detection import changes
from truestep.engine.parts import LearnerParts
from truestep.engine.precision import Precision
from truestep.engine.shared_parameters import SharedParameters
from truestep.engine.unowned_parameters import UnownedParameters
from truestep.engine.unstepped_parameters import LeftOutParameters, refuse_untrained


class UpdatePlan:
    """What an update of these learners does: decided once, and again when something changes that it was decided by.

    That is which of them have started, which learners there are, and what their modules consist of (`module_change_detection.py`).
    What may change at any time is looked at where it is used: an optimizer's options by `fused.py`, which parameters are frozen
    by their flags.
    """

    def __init__(self, asked: Sequence[LearnerParts]) -> None:
        _check_distinct_learners(asked)
        self.asked, self.context = list(asked), asked[0].context
        self.learners = [learner for learner in asked if learner.started]
        everybody = list(self.context.learners.values())
        self._changes, self._num_learners = changes.number, len(everybody)
        for learner in self.learners:
            refuse_untrained(learner)
        for learner in everybody:
            changes.watch(learner.module)
            learner.buffers.find()
        self._decide_valid_steps()
        self._decide_random_keys()
        self._decide_loss_call()
        self._decide_checks(everybody)
        self._decide_snapshots(everybody)

    def _decide_valid_steps(self) -> None:
        """The plan holds from the first of two steps on, and before the second."""
        self._from = max((each.options.starts_at for each in self.learners), default=0)
        waiting = [each.options.starts_at for each in self.asked if not each.started]
        self._until: float = min(waiting, default=math.inf)

    def _decide_random_keys(self) -> None:
        """Whose keys the update draws by, and who counts it: none where no learner has started, as it is no update then."""
        self.keys = min((each.keys for each in self.learners or self.asked), key=attrgetter("place"))
        self.counting_keys = [*{id(each.keys): each.keys for each in self.learners}.values()]

    def _decide_loss_call(self) -> None:
        """How the loss is called, where gradients are, with what their backward starts, and what other processes do."""
        self.precision = self._common_precision()
        self._compiler = next((learner.compiler for learner in self.learners if learner.compiler), None)
        self.is_compiled = self._compiler is not None
        self.calls_otherwise = self.is_compiled or (self.precision and self.precision.autocast)
        self.closure_learner = self._closure_learner()
        self.goes_back_again: str | None = None
        """Why what was computed before an update is gone through more than once; None where it is not."""
        if self.closure_learner is not None:
            kind = type(self.closure_learner.optimizers[0]).__name__
            self.goes_back_again = f"{kind} evaluates the loss several times"
        self.moves_batches = not self.context.is_host
        self.weights = [learner.weights for learner in self.learners]
        self._half = [weights for weights in self.weights if weights.has_half]
        self._scalers = [each.policy.scaler for each in self.learners if each.policy.scaler is not None]
        names = " and ".join(repr(learner.name) for learner in self.learners)
        self.hooks = self.context.strategy.hooks(self.weights, names)

    def _decide_checks(self, everybody: list[LearnerParts]) -> None:
        """What a loss must not do, and parameters that would never change or change twice; nothing where there are none."""
        self.side_effects = LossSideEffects(self.learners)
        owned = {id(weight) for learner in everybody for weight in learner.weights.parameters}
        self.names = ", ".join(repr(learner.name) for learner in self.learners)
        # Where weights are divided a graph ends at the gathered copies, which no learner owns.
        self.unowned = None if self.hooks.divides_weights else UnownedParameters(self.names, owned)
        flags = (LeftOutParameters(self.learners), SharedParameters(everybody))
        self._flags = [each for each in flags if each]
        self.rows_taken = SingleRowCheck(self.context.given)
        self._warned = False

    def _decide_snapshots(self, everybody: list[LearnerParts]) -> None:
        """Everybody's buffers are kept: others' are put back, and one's own where the update is not applied."""
        self.buffers = [learner.buffers for learner in everybody if learner.buffers]
        self._spectral: list[Place] = [place for learner in everybody for place in learner.spectral_places]
        self.has_spectral = bool(self._spectral)
        others = [learner for learner in everybody if learner not in self.learners]
        named = [(f"{other.name}.{name}", weight) for other in others for name, weight in other.weights.named]
        buffers = [other.buffers for other in others if other.buffers]
        self.isolation = LearnerIsolation(named, buffers) if others else None

    @classmethod
    def of(cls, learners: Sequence[LearnerParts]) -> "UpdatePlan":
        """Return the plan of these learners, as it was decided if nothing has changed since."""
        context = learners[0].context
        # By their ids, which are given to no others: the plan holds the learners.
        key = (id(learners[0]),) if len(learners) == 1 else tuple(map(id, learners))
        plan: UpdatePlan | None = context.plans.get(key)
        if (
            plan is None
            or plan._changes != changes.number
            or plan._num_learners != len(context.learners)
            or not plan._from <= context.step < plan._until
        ):
            plan = context.plans[key] = cls(learners)
        return plan

    def _common_precision(self) -> Precision | Any:
        modes = {learner.precision.name: learner.precision for learner in self.learners}
        if len(modes) > 1:
            raise OptionError(
                f"One loss can't be computed in {' and '.join(modes)} at once; learners updated together need one precision."
            )
        return next(iter(modes.values()), None)

    def _closure_learner(self) -> LearnerParts | None:
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
        sizes = (learner.counters.micro_batch_in_use for learner in self.learners)
        return min((size for size in sizes if size is not None), default=None)

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
        why = f"{size} examples at once did not fit: {reason}"
        self.context.choose(f"micro_batch of {names}", smaller, why)

    def clear_gradients(self) -> None:
        """Drop all gradients of the learners, those being accumulated in float32 too."""
        for weights in self.weights:
            weights.clear()
        self.hooks.begin()

    def check(self) -> None:
        """Refuse an update inside another one, of an average, or of parameters that would never change or change twice."""
        is_busy = self.context.is_busy
        for learner in self.asked:
            if is_busy or learner.shows_average:
                raise OptionError((_BUSY if is_busy else _AVERAGED).format(name=learner.name))
        for flags in self._flags:
            flags.refuse_unfrozen()

    def undo(self) -> None:
        """Leave no trace of an update that failed."""
        self.clear_gradients()
        for learner in self.learners:
            learner.buffers.restore()

    def snapshot(self) -> Callable[[], None]:
        """Return what puts back all that a failed attempt could change: buffers, the host's random streams (torch's are keyed)."""
        streams = host_rng_states()

        def restore() -> None:
            self.restore_buffers()
            set_host_rng_states(streams)

        return restore

    def restart_attempt(self, before: Callable[[], None] | None) -> None:
        """Put back what a failed attempt has changed: what was kept `before` it, at least the buffers."""
        self.clear_gradients()
        (before or self.restore_buffers)()

    def restore_buffers(self) -> None:
        """Put everybody's buffers back as they were when the update began."""
        for buffers in self.buffers:
            buffers.restore()

    def spectral_snapshot(self) -> BufferSnapshot:
        """Remember the power-iteration vectors: one iteration an update, not one a micro-batch, keeps the split exact."""
        return BufferSnapshot(self._spectral)

    def call(self, loss: Callable[[Any], Any], batch: Any) -> Any:
        """Call the loss function under autocast, or compiled, as was asked for."""
        with self.precision.autocast_context(self.context.device):
            return loss(batch) if self._compiler is None else self._compiler.call(loss, batch)

    def seed(self, part: LossOutput, expected: float) -> Tensor:
        """Return what a part's backward starts with: scale / expected, times the weights, so that shares of the mean add up."""
        values, weights = part.values, part.weights
        if part.is_scalar:
            seed = torch.ones_like(values)
        elif weights is not None:
            seed = weights / expected
        else:
            # Made anew, since a loss that is a view of a parameter takes its memory; and contiguous, as `mean` has it: an expanded
            # number has torch add up rows in another order.
            seed = torch.full(values.shape, 1 / expected, dtype=values.dtype, device=values.device)
        return self.scaled(seed) if self._scalers else seed

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled, so that gradients may overflow until the scale fits."""
        return bool(self._scalers)

    def scaled(self, seed: Tensor) -> Tensor:
        """Return the seed of a backward times the loss scale, where there is one."""
        if not self._scalers:
            return seed
        return seed * self._shared_scale().to(seed.dtype)

    def _shared_scale(self) -> Tensor:
        """Return the loss scale for one backward through all learners: their smallest, which all of them adopt."""
        scale = self._scalers[0].scale
        for scaler in self._scalers[1:]:
            scale = torch.minimum(scale, scaler.scale)
        if len(self._scalers) > 1:
            for scaler in self._scalers:
                scaler.scale.copy_(scale)
        return scale

    def accumulate_in_float32(self) -> None:
        """Add half-precision gradients to float32 sums, where 512 micro-batches lose no digits."""
        for weights in self._half:
            weights.accumulate()

    def warn_of_batch_statistics(self, num_parts: int) -> MicroBatchBuffers | None:
        """Say once which layers make a split update differ from the whole one; return what says it of buffers, behind a part."""
        if self._warned or num_parts < 2:
            return None
        self._warned = True
        modules = [learner.module for learner in self.learners]
        warn_of_batch_statistics(modules)
        return MicroBatchBuffers(modules)


def _check_distinct_learners(learners: Sequence[LearnerParts]) -> None:
    if len({id(learner) for learner in learners}) < len(learners):
        raise OptionError("ts.update was given the same learner twice; name each once.")
    if len({id(learner.context) for learner in learners}) > 1:
        raise OptionError(
            "ts.update was given learners of different runs; they share no device, seed or cursor."
        )


_BUSY = (
    "{name!r} was to be updated while an update is under way: a loss function may be called several times and must change nothing. "
    "Make the second update after the first."
)
_AVERAGED = (
    "{name!r} was to be updated inside averaged(), where its average stands in for its weights; the step would be lost at the end "
    "of the block. Update it outside."
)

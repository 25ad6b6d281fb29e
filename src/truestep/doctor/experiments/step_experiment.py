# SPDX-License-Identifier: Apache-2.0
"""An experiment at a step: children go on from a batch with one thing changed, and are compared with one that changes nothing."""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from truestep.doctor.experiments.autocast_off import HALF_PRECISION
from truestep.doctor.experiments.batch_changes import Change, ChangeKind
from truestep.doctor.experiments.budget import ExperimentBudget
from truestep.doctor.experiments.child_continuation import outcome_of_child
from truestep.doctor.experiments.example_count_detection import possible_example_counts
from truestep.doctor.experiments.outcome import ChildOutcome, ObservedStep
from truestep.doctor.experiments.skip_reasons import (
    STEPS_OF_OTHERS,
    ExperimentNotTriedError,
    StepsOfOthersError,
    why_child_raised,
)
from truestep.doctor.experiments.step_child import StepChild, StepPlan
from truestep.doctor.finding import Place
from truestep.doctor.relations.gradients import (
    GradientComparison,
    compare_gradients,
    compare_with_halves,
    gradient_tolerance,
)
from truestep.doctor.relations.mixing import Mixing, first_mixing
from truestep.doctor.runtime.user_code_line import path_in_finding

_MOST_FILLED, _OTHER_NOISES = 3, 3
_FACTORS = Change(holds_constants=True)
_ROWS = Change(records_rows=True, keeps_buffers=True)
_MOST_NOISE = 1e-3  # that gradients of one batch, computed twice, may be apart


@dataclass
class StepExperiment:
    """Children that go on from one batch, each forked when it is first asked for."""

    plan: StepPlan
    place: Place  # where the batch is handed over
    budget: ExperimentBudget
    # directions, by the name of the move
    moves: dict[str, Mapping[str, Tensor]] = field(default_factory=dict)
    _known: dict[Change, ChildOutcome] = field(default_factory=dict)

    def child(self, change: Change) -> ChildOutcome:
        """Return what a child saw.

        Raises:
            ExperimentNotTriedError: nothing was learned.
        """
        if change not in self._known:
            self._known[change] = self._fork_child(change)
        found = self._known[change]
        if found.failure is not None:
            is_over = found.failure == STEPS_OF_OTHERS
            raise (StepsOfOthersError if is_over else ExperimentNotTriedError)(found.failure)
        if self.plan.at_use is not None and change != Change() and found.error is None:
            _demand_same_uses(found, self.base)
        return found

    def _fork_child(self, change: Change) -> ChildOutcome:
        if self.plan.at_use is not None and change.count(self.plan.examples) != self.plan.examples.count:
            raise ExperimentNotTriedError(
                "the script makes the batch in its step, so its size can't be changed"
            )
        size = 4 * sum(each.nbytes for each in self.plan.parameters.values())
        moves = self.moves.get(change.moved, {})
        factors = self.changed(_FACTORS).factors if change.holds_constants and change.moved else None
        if change.counts and change.kind != "none":
            factors = self.changed(Change(counts=change.counts)).counts
        return outcome_of_child(
            self.budget, size, lambda going_on: StepChild(going_on, self.plan, change, moves, factors)
        )

    @cached_property
    def base(self) -> ChildOutcome:
        """The child that changes nothing.

        Raises:
            ExperimentNotTriedError: it can't be told that the batch is all that the step sees of the data.
        """
        found = self.child(Change())
        if (
            self.plan.has_batch
            and not found.touched
            and found.error is None
            and found.steps
            and not self.plan.batches_ahead
            and self.plan.at_use is None
        ):
            found = self._child_holding_batch_back()
        if found.error is not None:
            raise ExperimentNotTriedError(why_child_raised(found.error))
        if not found.steps:
            raise ExperimentNotTriedError("no optimizer stepped before the script was over")
        if not found.steps[0].losses:
            raise ExperimentNotTriedError("gradients come from no backward()")
        if self.plan.has_batch and not found.touched:
            raise ExperimentNotTriedError(
                "no operation before the step was given the batch that was handed over"
            )
        if found.foreign is not None:
            raise ExperimentNotTriedError(f"the step used {found.foreign}")
        if self.plan.has_batch and found.other_loaders:
            raise ExperimentNotTriedError("another loader handed over a batch for the same step")
        own = [each.optimizer for each in found.steps]
        if len(set(own)) < len(own):
            raise ExperimentNotTriedError("an optimizer stepped several times for one batch")
        return found

    def _child_holding_batch_back(self) -> ChildOutcome:
        """Return the child that changes nothing where the script may hold each batch back until the next one is there."""
        self.plan = replace(self.plan, batches_ahead=1)
        self._known.clear()
        return self.child(Change())

    @cached_property
    def tolerance(self) -> float:
        """How far apart gradients may be that are the same.

        Raises:
            ExperimentNotTriedError: those of the same batch are too far apart.
        """
        apart = 0.0
        for each in (Change(cleared=True), Change(repeated=True)):  # others ask for the first, too
            apart = compare_gradients(self.child(each).gradients(), self.base.gradients()).difference
            if not apart:
                break
        if math.isnan(apart):
            raise ExperimentNotTriedError("the gradients are not finite")
        if apart > _MOST_NOISE:
            raise ExperimentNotTriedError(
                f"gradients of the same batch differ by {apart:.1g}: they are random"
            )
        return gradient_tolerance(self.base.coarsest, apart)

    def changed(self, change: Change) -> ChildOutcome:
        """Return a child's outcome, which has as many steps as that of the child that changes nothing.

        Raises:
            ExperimentNotTriedError: it has not.
        """
        found = self.child(change)
        if found.error is not None:
            raise ExperimentNotTriedError(why_child_raised(found.error))
        if len(found.steps) != len(self.base.steps):
            raise ExperimentNotTriedError("the step goes another way with the batch that was changed")
        return found

    def compared(self, change: Change, beside: Change | None = None) -> GradientComparison:
        """Return how far a child's gradients are from those of the child that changes nothing."""
        base = self.base if beside is None else self.changed(beside)
        return compare_gradients(self.changed(change).gradients(), base.gradients())

    def compare_doubled_batch(self) -> GradientComparison:
        """Return how far the gradients with every example twice are from those of the batch, for what the loss is a mean of.

        A number from outside of the batch that the sum is divided by may stand for the examples: it is doubled, too.
        """
        apart = self.compared(Change("twice"))
        if apart.difference <= self.tolerance:
            return apart
        counts = possible_example_counts(self.plan.examples, self.plan.examples.count + self.base.num_rows)
        doubled = Change("twice", counts=counts)
        divided = self.compared(doubled, Change(counts=counts))
        return divided if self.child(doubled).meets_count and divided.difference < apart.difference else apart

    def compare_step_by_step(self, change: Change) -> GradientComparison:
        """Return the same of each step's own parameters alone: what others hold may be left over from before."""
        return _largest_step_difference(self, self.changed(change), self.base)

    def halves(self, *, keeps_buffers: bool = False) -> GradientComparison:
        """Return how far the gradients are from a mean of those of the two halves, each of them twice."""
        kinds: tuple[ChangeKind, ...] = ("first half twice", "second half twice")
        whole = self.changed(Change(keeps_buffers=True)) if keeps_buffers else self.base
        halves = [self.changed(Change(kind, keeps_buffers=keeps_buffers)) for kind in kinds]
        # each step by itself: one loss may be a weighted mean, another a plain one
        found = [
            compare_with_halves(
                *(self.own_gradients(each.steps[number], hooked=False) for each in (*halves, whole))
            )
            for number in range(len(whole.steps))
        ]
        return max(found, key=lambda each: each.difference)

    def own_gradients(self, step: ObservedStep, *, hooked: bool = True) -> dict[str, Tensor | None]:
        """Return the gradients of those parameters that a step is for; if asked, without those that hooks may change."""
        optimizer = self.plan.optimizers[step.optimizer]
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        return {
            name: step.gradients[name]
            for name, each in self.plan.parameters.items()
            if name in step.gradients and id(each) in held and (hooked or not each._backward_hooks)
        }

    def goes_another_way(self, change: Change) -> bool:
        """Tell whether the script raises, or makes other steps, with a change."""
        found = self.child(change)
        return found.error is not None or len(found.steps) != len(self.base.steps)

    def makes_a_difference(self, change: Change) -> bool:
        """Tell whether the loss, a gradient or the way of the step is another one with a change, be it by a rounding."""
        if self.goes_another_way(change):
            return True
        found = self.child(change)
        losses = ([each.losses for each in one.steps] for one in (found, self.base))
        return self.compared(change).difference > 0 or operator.ne(*losses)

    def has_effect(self, item: str) -> bool:
        """Tell whether gradients, or the way of the step, are others with one value of an item for all examples.

        They are where others' values change them, which another relation asks for, too.
        """
        return self._is_changed_by(Change("exchanged", item)) or self._is_changed_by(Change("constant", item))

    def _is_changed_by(self, change: Change) -> bool:
        if self.goes_another_way(change):
            return True
        beside = Change(noise=change.noise) if change.noise else None
        # of half precision a small effect can't be told from rounding, so that no effect is one that changes no bit
        least = self.tolerance if self.base.coarsest < HALF_PRECISION else 0.0
        return self.compared(change, beside).difference > least

    def has_effect_by_other_values(self, item: str) -> bool:
        """Tell the same of other examples' values, of classes that none of these has, and of other random numbers."""
        last = self.plan.examples.count - 1
        others = [Change("constant", item, row=row) for row in sorted({(last + 1) // 2, last} - {0})]
        others += [
            Change("filled", item, value=each)
            for each in self.plan.examples.absent_numbers(item)[:_MOST_FILLED]
        ]
        if self.base.draws:
            others += [Change("constant", item, noise=number) for number in range(1, 1 + _OTHER_NOISES)]
        return any(map(self._is_changed_by, others))

    @cached_property
    def examples_mix(self) -> bool:
        """Whether the gradient is no mean of those of the halves, also where buffers stay as they are."""
        if self.halves().difference <= self.tolerance:
            return False
        return self.halves(keeps_buffers=True).difference > self.tolerance

    def demand_one_part(self) -> None:
        """Make sure that the batch is gone through as a whole, for what depends on the places of the examples.

        Raises:
            ExperimentNotTriedError: several backwards came for one step, so that it may be gone through in parts; or each
                example has random numbers of its own.
        """
        if any(len(each.losses) > self.base.num_batches for each in self.base.steps):
            raise ExperimentNotTriedError(
                "several backwards come for one step, so the batch may be gone through in parts"
            )
        twice = Change("twice")
        if (
            self.base.draws
            and not self.goes_another_way(twice)
            and not self.base.has_same_draws_as(self.child(twice))
        ):
            raise ExperimentNotTriedError("random numbers are drawn for each example, others for each place")

    def demand_effect(self) -> None:
        """Make sure that this step could show what an item of the batch changes.

        Raises:
            ExperimentNotTriedError: an optimizer steps at other batches alone, whose step may need the item; or the batch has no
                gradient, as where a loss takes hard examples alone and there are none.
        """
        if len({each.optimizer for each in self.base.steps}) < len(self.plan.optimizers):
            raise ExperimentNotTriedError(
                "another optimizer steps at other batches, and may use what this step does not"
            )
        found = self.base.gradients().values()
        if not any(each is not None and bool(each.to_dense().any()) for each in found):
            raise ExperimentNotTriedError("the batch gives no gradient: all of it is zero")

    @cached_property
    def order_matters(self) -> bool:
        """Whether the examples in another order give another gradient, also where buffers stay as they are."""
        if self.compared(Change("permuted")).difference <= self.tolerance:
            return False
        both = Change("permuted", keeps_buffers=True), Change(keeps_buffers=True)
        return self.compared(*both).difference > self.tolerance

    @cached_property
    def varied_items(self) -> list[str]:
        """The items of the batch in which the examples differ."""
        examples, made = self.plan.examples, self.plan.at_use is not None
        return [
            each for each in examples.items if (each in self.base.varied if made else examples.varies(each))
        ]

    def has_last_batch_of_one(self) -> bool:
        """Tell whether the last batch of an epoch holds one example."""
        sampler = getattr(self.plan.iterator, "_index_sampler", None)
        size, drops = getattr(sampler, "batch_size", None), getattr(sampler, "drop_last", True)
        try:
            return bool(size) and not drops and len(sampler.sampler) % size == 1  # type: ignore[union-attr, operator]
        except (TypeError, AttributeError):  # of no known length
            return False

    @cached_property
    def mixing(self) -> Mixing | None:
        """Where the examples first mix, None where that can't be told."""
        before, count = self.child(_ROWS).calls, self.plan.examples.count
        for row in sorted(
            {0, count // 3, count // 2, count - 1}
        ):  # the largest, say, comes of one example alone
            after = self.child(replace(_ROWS, kind="one changed", row=row)).calls
            if (found := first_mixing(before, after, row)) is not None:
                return found
        return None

    @cached_property
    def mixing_line(self) -> Place | None:
        """The line of the user's where examples mix."""
        return None if self.mixing is None or self.mixing.place is None else Place.of_text(self.mixing.place)

    @property
    def mixing_text(self) -> str:
        """Where the examples first mix, as a message shows it; empty where that can't be told."""
        if self.mixing is None:
            return ""
        line = self.mixing_line
        place = None if line is None else f"{path_in_finding(line.path)}:{line.line}"
        return str(self.mixing._replace(place=place))


def demand_own_steps(experiment: StepExperiment) -> None:
    """Let the child that changes nothing go on.

    Raises:
        StepsOfOthersError: the next steps are those of an optimizer that the experiment does not know.
    """
    try:
        experiment.child(Change())
    except StepsOfOthersError:
        raise
    except ExperimentNotTriedError:  # each relation says so that asks for it
        pass


def mixing_is_meant(experiment: StepExperiment) -> bool:
    """Tell whether what is done with the result of what mixes shows that it is meant.

    Of a table of all with all it is where a pair's place matters, as that of an example with its own partner does: another
    order along one side, or the other, gives another loss. A mean over all pairs is the same.
    """
    mixing = experiment.mixing
    if mixing is None or not mixing.is_meant:
        return False
    return not mixing.is_table or all(
        _has_effect_by_position(experiment, mixing.number, axis) for axis in (-2, -1)
    )


def _has_effect_by_position(experiment: StepExperiment, number: int, axis: int) -> bool:
    base, found = (experiment.child(each) for each in (_ROWS, replace(_ROWS, rolled=(number, axis))))
    losses = ([loss for step in each.steps for loss in step.losses] for each in (base, found))
    least = 4 * experiment.base.coarsest
    return found.error is not None or any(
        abs(one - other) > least * max(abs(one), abs(other)) for one, other in zip(*losses, strict=False)
    )


def compare_closure_calls(experiment: StepExperiment) -> GradientComparison:
    """Return how far the gradients of a closure's second call in a step are from those with none before it."""
    found, cleared = (experiment.child(Change(second_call=True, cleared=each)) for each in (False, True))
    return _largest_step_difference(experiment, found, cleared)


def _largest_step_difference(
    experiment: StepExperiment, found: ChildOutcome, other: ChildOutcome
) -> GradientComparison:
    each = [
        compare_gradients(experiment.own_gradients(one), experiment.own_gradients(two))
        for one, two in zip(found.steps, other.steps, strict=True)
    ]
    return max(each, key=lambda one: one.difference, default=GradientComparison(0.0, "", None))


def _demand_same_uses(changed: ChildOutcome, base: ChildOutcome) -> None:
    """Make sure that a batch that is made in the step was changed once: no tensor of it comes of another, unseen."""
    if [shape for shape, _ in changed.uses] != [shape for shape, _ in base.uses]:
        raise ExperimentNotTriedError("the step uses other data where its batch is changed")
    if changed.uses != base.uses:
        raise ExperimentNotTriedError(
            "data that the step makes come of what was changed, on a way that is not seen"
        )

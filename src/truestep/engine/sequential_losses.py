# SPDX-License-Identifier: Apache-2.0
"""Losses one after another: an update whose parts are computed by the caller's own code."""

import math
from typing import Any, Self
from weakref import WeakSet

import torch
from torch import Tensor

from truestep.core.argument_errors import methods_raise_option_errors
from truestep.core.buffers import BufferSnapshot
from truestep.core.errors import LossError, OptionError, check_number
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.user_frames import warn_user
from truestep.engine.backward import backward_of_part
from truestep.engine.example_draws import ExampleDraws
from truestep.engine.loss_results import LossOutput, Weighted, read_loss
from truestep.engine.loss_side_effects import anomaly_error, reused_graph_error
from truestep.engine.loss_size_check import (
    loss_divisor,
    warn_of_divided_losses,
    warn_of_unscaled_float16,
    warn_of_wrong_reduction,
)
from truestep.engine.loss_sums import LossTotals
from truestep.engine.parts import LearnerParts
from truestep.engine.plan import UpdatePlan
from truestep.engine.result import Update
from truestep.engine.step import LearnerStep, apply_step, decide_steps
from truestep.engine.transaction import UpdateTransaction, update_of_not_started
from truestep.engine.unstepped_parameters import note_frozen_learners


@methods_raise_option_errors("update")
class Accumulating(HelpfulAttributes):
    """An update in the making, see `Learner.accumulating`; `result` holds the `Update` once the block has ended."""

    _called, _variable = "The update of a net.accumulating() block", "block"

    def __init__(self, learner: LearnerParts, weight: float | None) -> None:
        if weight is not None:
            check_number("net.accumulating", "weight", weight, example=32.0)
            if not 0 < weight < math.inf:
                said = f"weight={weight}: the gradient is divided by it, so it must be positive and finite."
                raise OptionError(said)
        self._learner = learner
        self._weight = weight
        self._sums = LossTotals(fixed_total=weight)
        self._scalars: bool | None = None
        self.result: Update | None = None
        self._is_open = False
        self._divisor = 0  # of the first loss, where it was looked at
        self._spectral: BufferSnapshot | None = None
        self._iterated: BufferSnapshot | None = None

    def backward(self, loss: Any, *, weight: float | Tensor | None = None) -> Tensor:
        """Add one loss: one value per example, `ts.weighted(...)`, or a scalar; return its mean, detached.

        `weight` says how many examples (or tokens) a scalar is the mean of. The only scalar of a block needs none, and several in a
        block of `net.accumulating(weight=1)` add up as they are.
        """
        if not self._is_open:
            raise LossError(
                "update.backward was called outside of the block that makes the update. Write with net.accumulating() as update: "
                "and update.backward(loss) within it."
            )
        if weight is not None:
            loss = _weigh_scalar_loss(loss, weight)
        if not self._plan.learners:
            return _detached_mean(loss)
        part = self._read_part_loss(loss, weight)
        self._plan.hooks.before_backward(part.values, is_last=None)
        counts = part.num_values > 0
        if counts and self._plan.unowned is not None and self._plan.unowned.look(None, part.values):
            self._check_loss_scale(part)
        seed = torch.ones_like(part.values) if part.weights is None else part.weights
        if counts:  # else the others' parts are all: this one's backward answers what theirs exchange
            seed = self._plan.scaled(seed / self._sums.expected)
            self._sums.add(part)
        # The block's autocast ends before the backward, as it must: gradients keep the types of the forward.
        with torch.autocast(self._learner.context.device.type, enabled=False):
            self._run_backward(part.values, seed)
        self._plan.accumulate_in_float32()
        self._begin_next_part()
        return part.mean if counts else part.values.detach().sum()

    def _read_part_loss(self, loss: Any, weight: float | Tensor | None) -> LossOutput:
        try:
            shares = self._plan.hooks.division.shares_batches
            part = read_loss(loss, num_examples=None, whole=True, may_be_empty=shares)
        except LossError as error:
            note_frozen_learners(error, self._plan.learners)
            raise
        self._plan.side_effects.check()
        self._check_loss_kind(part, weight)
        return part

    def _begin_next_part(self) -> None:
        """Key the randomness of the part that follows."""
        context = self._learner.context
        self._micro_batch += 1
        context.random.set(context.keys.micro_batch_key(context.step, self._micro_batch, context.rank))
        context.draws.begin(None)
        self._plan.side_effects.begin(cleared=False)
        if self._spectral is not None:
            self._iterated = self._iterated or self._plan.spectral_snapshot()
            self._spectral.restore()

    def _check_loss_scale(self, part: LossOutput) -> None:
        self._divisor = loss_divisor(part.values)
        if self._weight is None:  # else a sum is what is asked for
            warn_of_wrong_reduction(self._plan.names, part, num_parts=1)
        warn_of_unscaled_float16(self._plan.names, part.values, self._learner.precision)

    def _run_backward(self, values: Tensor, seed: Tensor) -> None:
        try:
            backward_of_part(self._plan.weights, values, seed)
        except RuntimeError as error:
            stopped = anomaly_error(error) if self._plan.scales else None
            if clear := reused_graph_error(error, None) or stopped:
                raise clear from error
            raise

    def _check_loss_kind(self, part: LossOutput, weight: float | Tensor | None) -> None:
        if self._scalars is None:
            if part.is_scalar and self._weight is None and self._plan.hooks.division.shares_batches:
                raise LossError(_UNCOUNTED)
            self._scalars = part.is_scalar
            known = weight is not None and not isinstance(weight, Tensor)
            counted = max(1, round(weight)) if known else part.num_values  # type: ignore[arg-type]
            self._sums.set_expected_examples(
                self._weight or self._plan.hooks.division.place(counted, min(counted, 1)).total
            )
        elif self._scalars != part.is_scalar:
            raise LossError(_MIXED)
        elif part.is_scalar and self._weight is None:
            raise LossError(_SECOND.format(first=float(self._sums.loss), second=float(part.mean)))

    def __enter__(self) -> Self:
        learner = self._learner
        context = learner.context
        context.observer.starting(updates=True)
        plan = self._plan = UpdatePlan.of([learner])
        if learner.needs_closure:
            raise OptionError(
                f"The optimizer of {learner.name!r} has to evaluate the loss again while it steps, which a block can't. "
                "Use update(loss, batch) with the loss as a function."
            )
        if plan.hooks.divides_weights:
            raise OptionError(_DIVIDED.format(name=learner.name))
        plan.check()
        self._micro_batch = 0
        self._transaction = UpdateTransaction(plan).__enter__()
        plan.clear_gradients()
        self._spectral = plan.spectral_snapshot() if plan.has_spectral else None
        if plan.hooks.division.shares_batches:
            context.draws.begin_rank_share(context.rank, context.place_in_batch())
        context.draws.begin(None)
        context.random.set(context.keys.micro_batch_key(context.step, 0, context.rank))
        plan.side_effects.begin(cleared=True)
        self._autocast = learner.precision.autocast_context(context.device)
        self._autocast.__enter__()
        self._is_open = True
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._is_open = False
        # before the step, which is no part of what autocast computes
        self._autocast.__exit__(None, None, None)
        self._plan.side_effects.end()
        step = None
        try:
            if error is not None:
                self._note_empty_part(error)
            else:
                if self._iterated is not None:  # each part has begun where the first did
                    self._iterated.restore()
                self._transaction.release_other_learners()
                step = self._decide_learner_step()
        except BaseException as failure:
            # What fails while the step is decided takes the update back, as an exception in the block does.
            self._transaction.__exit__(None, failure, None)
            raise
        self._transaction.__exit__(None, error, None)
        if error is None:
            learner, sums = self._learner, self._sums
            self.result = update_of_not_started(learner) if step is None else apply_step(step, sums)
            if self._divisor:
                warn_of_divided_losses(
                    self._plan.names, self._divisor, sums.num_parts, scalars=bool(self._scalars)
                )

    def _note_empty_part(self, error: BaseException) -> None:
        """Say beside what computing with an empty part raised that it may be left out."""
        if (
            self._plan.hooks.division.shares_batches
            and self._learner.context.counting.making.num_examples == 0
        ):
            error.add_note(_EMPTY)

    def _decide_learner_step(self) -> LearnerStep | None:
        """Return what is done with the sums of all parts; None where the learner has not started."""
        if not self._plan.learners:
            return None
        hooks = self._plan.hooks
        if self._scalars is None:
            if not hooks.division.shares_batches:
                raise LossError("No loss was added in this block: call update.backward(loss) at least once.")
            self._sums.set_expected_examples(
                self._weight or hooks.division.place(0, 0).total
            )  # others have the examples
        self._plan.side_effects.check()
        _warn_of_mismatched_rows(self._learner, self._learner.context.draws)
        hooks.gradients_ready(self._sums)
        return decide_steps(hooks, self._plan.learners, self._sums)[0]


_DIVIDED = (
    '{name!r} has its weights divided among the processes (strategy="fsdp"), which all have to call it equally often, and nobody '
    'knows how often a block does. Use update(loss, batch), with micro_batch= for a batch that is too large, or strategy="ddp".'
)


_told_of_rows: WeakSet[ExampleDraws] = WeakSet()


def _warn_of_mismatched_rows(learner: LearnerParts, draws: ExampleDraws) -> None:
    """Warn, once in a training, of noise that can't be that of one process: it was drawn for other rows than the batch has here."""
    place, rows = draws.place_here, draws.mismatched_row_count
    if place is not None and rows is not None and draws not in _told_of_rows:
        _told_of_rows.add(draws)
        warn_user(_OTHER_ROWS.format(name=learner.name, rows=rows, here=place.num_here, total=place.total))


_OTHER_ROWS = (
    "A block of {name!r} drew {rows} rows with ts.rand or ts.randn, and this process has {here} of the batch's {total} examples. "
    "So the rows are no example's: each process has numbers of its own, and the noise is other than in one process. Draw one row "
    "for each example of a part, ts.randn(len(part), ...); several numbers for each are (len(part), several, ...)."
)

_UNCOUNTED = (
    "A scalar was given to update.backward, and each process has a part of the batch: nobody knows how much the scalar counts. "
    "Give losses per example, or say how many examples it is the mean of, update.backward(part, weight=len(x)), or give sums and "
    "what they are divided by: net.accumulating(weight=examples of the whole batch)."
)

_EMPTY = (
    "truestep: this process has no example of the batch, as the others have them all. A block of net.accumulating() may be without "
    "any loss there: leave out what can't be computed with no rows, if len(part): update.backward(loss(part))."
)

_SECOND = (
    "update.backward was given a second scalar ({second:.6g}, after {first:.6g}), and nobody knows how the two count: two "
    "means over as many examples each add up to a gradient twice as large as the mean over all. For parts of a batch say how many "
    "examples each is the mean of, those of a part x: update.backward(part, weight=len(x)). For terms that are to be added as they "
    "are, write net.accumulating(weight=1)."
)

_MIXED = (
    "This update mixes scalar losses, which add up as they are, with losses per example or with a weight, which are averaged over "
    "all examples. Give all of one kind; a scalar that is the mean over the examples of a part x is of the second with "
    "update.backward(part, weight=len(x))."
)


def _weigh_scalar_loss(loss: Any, weight: float | Tensor) -> Weighted:
    """Return a scalar loss with the number of examples that it is the mean of."""
    values, weights, metrics, outputs = loss if isinstance(loss, Weighted) else Weighted(loss, None, {})
    if not isinstance(weight, Tensor):
        check_number("update.backward", "weight", weight, example=24.0, least=0.0)
    if weight.numel() != 1 if isinstance(weight, Tensor) else weight == math.inf:
        raise OptionError(f"update.backward(weight={weight}): give one finite number, the part's examples.")
    if weights is not None or not isinstance(values, Tensor) or values.ndim:
        what = (
            f"losses of shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        )
        raise LossError(
            f"update.backward(weight={weight}) was given {what}; weight= says how many examples a scalar is the mean of. Losses "
            "per example count one each, and others as ts.weighted(values, weights) says: leave weight= out."
        )
    if not isinstance(weight, Tensor) and weight == 0:
        values = values.nan_to_num(0.0)  # the mean over the examples of a process that has none
    counts = torch.as_tensor(weight, dtype=values.dtype, device=values.device)
    return Weighted(values, counts.detach().reshape(()), metrics, outputs)


def _detached_mean(loss: Any) -> Tensor:
    if isinstance(loss, Weighted):
        return LossOutput(loss.values, loss.weights, {}, False, {}, None).mean
    mean: Tensor = torch.as_tensor(loss).detach().mean()
    return mean

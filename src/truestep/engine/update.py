# SPDX-License-Identifier: Apache-2.0
"""One update, from top to bottom; what does not change from step to step stands in its plan (`plan.py`).

update_together   the plan → freeze everybody else → gradients → what becomes of it → put everything back → each learner's step
└── gradients     the parts that fit into memory, smaller ones when an allocation fails
    └── accumulate    the batch at once, or part by part
        └── _compute_part key the randomness → loss → check → backward
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from truestep.core.errors import BatchError, LossError, OptionError
from truestep.engine.backward import backward_of_losses, backward_of_part
from truestep.engine.batch_with_graph import warn_of_graph_in_batch
from truestep.engine.batches import Batch, batch_to_device, split_along
from truestep.engine.closures import step_with_closure
from truestep.engine.compiling import loss_compile_refusal
from truestep.engine.example_counting import BatchCounting
from truestep.engine.loss_broadcast_check import warn_of_broadcast_rows
from truestep.engine.loss_results import LossOutput, read_loss
from truestep.engine.loss_side_effects import (
    anomaly_error,
    refuse_batch_with_graph,
    refuse_graph_without_example,
    reused_graph_error,
)
from truestep.engine.loss_size_check import (
    warn_of_autocast,
    warn_of_unscaled_float16,
    warn_of_wrong_reduction,
)
from truestep.engine.loss_sums import LossTotals
from truestep.engine.masked_mean_check import warn_of_masked_mean
from truestep.engine.missing_gradient_hints import averaged_in_loss_error, note_detaching_calls
from truestep.engine.option_conflicts import refuse_auto_micro_batch
from truestep.engine.out_of_memory import is_out_of_memory_error, release_memory_for_update
from truestep.engine.parts import LearnerParts
from truestep.engine.plan import UpdatePlan
from truestep.engine.result import Update
from truestep.engine.splitting import BatchCutting, BatchSplitting, balanced_micro_batches
from truestep.engine.step import apply_step, decide_steps
from truestep.engine.strategies import AttemptTakenBackError, BatchPlacing
from truestep.engine.strategies.base import BatchLender
from truestep.engine.transaction import UpdateTransaction, update_of_not_started
from truestep.engine.unstepped_parameters import note_frozen_learners
from truestep.engine.unused_batch_check import warn_of_unread_batch
from truestep.engine.update_call_errors import (
    loss_call_error,
    loss_not_callable_message,
    note_batch_of_batches,
    report_failure_to_observer,
)

Loss = Callable[[Any], Any]


def update_together(
    learners: Sequence[LearnerParts], loss: Loss, batch: Batch, splitting: BatchSplitting
) -> list[Update]:
    """Freeze everybody else, compute the gradient, let each learner step, put everything back."""
    if not callable(loss):
        raise LossError(loss_not_callable_message(loss, batch))
    learners[0].context.observer.starting(updates=True)
    plan = UpdatePlan.of(learners)
    if not plan.learners:
        return [update_of_not_started(learner) for learner in learners]
    plan.check()
    if (tell := plan.context.on_next_batch) is not None:
        plan.context.on_next_batch = None
        tell(batch)
    if type(batch) is torch.Tensor and splitting.split is None:
        plan.rows_taken.look(loss, batch, plan.context.counting.making)
    if plan.moves_batches:
        batch = batch_to_device(batch, plan.context.device, non_blocking=True)
    with UpdateTransaction(plan) as transaction:
        if plan.closure_learner is not None:
            compute = partial(compute_gradients, plan, loss, batch, splitting)
            stepped = [step_with_closure(plan.closure_learner, plan.hooks, compute)]
            transaction.release_other_learners()
            return stepped
        sums = compute_gradients(plan, loss, batch, splitting)
        if plan.isolation is not None:
            transaction.release_other_learners()
        steps = decide_steps(plan.hooks, plan.learners, sums)
    if len(learners) == 1:
        return [apply_step(steps[0], sums)]
    done = {step.learner: apply_step(step, sums) for step in steps}
    return [done.get(learner) or update_of_not_started(learner) for learner in learners]


def compute_gradients(plan: UpdatePlan, loss: Loss, batch: Batch, splitting: BatchSplitting) -> LossTotals:
    """Leave the gradient of the loss over the whole batch in the learners' parameters."""
    placed: BatchPlacing | None = None
    while True:
        is_usual = splitting.is_whole and splitting.decomposable
        cutting = BatchCutting(None, plan.context.counting) if is_usual else _cutting(plan, batch, splitting)
        again = plan.goes_back_again or cutting.goes_back_again
        if again:
            refuse_batch_with_graph(batch, again)
        before = plan.snapshot() if cutting.may_change or plan.hooks.division.may_be_taken_back else None
        try:
            plan.clear_gradients()
            # the others are asked once, however often this one tries
            placed = placed or _position_in_global_batch(plan, batch, cutting)
            return accumulate_gradients(plan, loss, batch, cutting, placed)
        except AttemptTakenBackError:  # on all ranks
            plan.restart_attempt(before)
            placed = None
            continue
        except (RuntimeError, MemoryError) as error:
            plan.clear_gradients()
            if clear := _clearer_error(plan, error, again) or averaged_in_loss_error(error, loss):
                raise clear from error
            may_shrink = cutting.may_change and plan.hooks.division.may_shrink
            if not (may_shrink and is_out_of_memory_error(error)):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
        # Outside the except block: the traceback, and with it every activation, is gone now.
        size = cutting.sizes[0] if cutting.sizes else _count_to_split(batch, cutting.counting, reason)
        plan.shrink_micro_batch(size, reason)
        plan.restart_attempt(before)
        release_memory_for_update(plan.context.device)


def _clearer_error(plan: UpdatePlan, error: Exception, again: str | None) -> Exception | None:
    """Return the error to raise for one of torch's; None where it says enough."""
    refusal = loss_compile_refusal(error) if plan.is_compiled else None
    stopped = anomaly_error(error) if plan.scales else None
    return refusal or stopped or reused_graph_error(error, again) or plan.hooks.explained(error)


def _cutting(plan: UpdatePlan, batch: Batch, splitting: BatchSplitting) -> BatchCutting:
    """Return how this batch is cut."""
    counting = plan.context.counting
    if splitting.split is not None:
        along = splitting.split
        counting = BatchCounting(split_along(along) if isinstance(along, int) else along)
    limit, may_change = splitting.micro_batch, False
    again = None
    if limit == "auto":
        if plan.hooks.divides_weights:
            refuse_auto_micro_batch(plan.names)
        limit, may_change = plan.micro_batch_in_use, True
        again = 'micro_batch="auto" may have to evaluate it again'
    shares = plan.hooks.division.shares_batches
    if limit is None or (shares and counting.is_empty(batch)):
        return BatchCutting(None, counting, may_change, splitting.decomposable, goes_back_again=again)
    if isinstance(limit, int):
        total = counting.count(batch)
        limit = None if limit >= total else balanced_micro_batches(total, limit)
    elif shares:
        raise OptionError(
            f"micro_batch={list(limit)} are the sizes of the parts of one batch, and here each process has another part of it. "
            "Give one number: the largest micro-batch."
        )
    if limit is None:
        return BatchCutting(None, counting, may_change, goes_back_again=again)
    again = again or f"the batch is split into {len(limit)} micro-batches"
    return BatchCutting(limit, counting, may_change, num_calls=len(limit), goes_back_again=again)


def _count_to_split(batch: Batch, counting: BatchCounting, reason: str) -> int:
    try:
        return counting.count(batch)
    except BatchError as error:
        error.add_note(f"The batch had to be split because memory ran out: {reason}")
        raise


def _position_in_global_batch(plan: UpdatePlan, batch: Batch, cutting: BatchCutting) -> BatchPlacing:
    """Say where this process's part of the batch lies in the whole."""
    counting, division = cutting.counting, plan.hooks.division
    as_given = counting.split is None and cutting.decomposable
    if division.shares_batches and counting.is_empty(batch):
        placed = division.place(0, 0, may_be_as_given=as_given)  # others have some
    elif cutting.sizes is None:
        count = (
            counting.presumed_num_examples(batch) if division.shares_batches else counting.try_count(batch)
        )
        placed = division.place(count, may_be_as_given=as_given)
    else:
        placed = division.place(sum(cutting.sizes), len(cutting.sizes), may_be_as_given=as_given)
    if not cutting.decomposable:
        division.refuse_empty()
    return placed


def accumulate_gradients(
    plan: UpdatePlan, loss: Loss, batch: Batch, cutting: BatchCutting, placed: BatchPlacing
) -> LossTotals:
    """Compute the loss and its gradient, of the whole batch at once or part by part."""
    sizes, counting, done = cutting.sizes, cutting.counting, 0
    sums = LossTotals(expected=placed.total, outputs_dim=counting.split.dim if counting.split else 0)
    lent = _lent_example(placed.lender, placed.num_here, batch, counting) if placed.lender else None
    if placed.num_calls > cutting.num_calls:
        cutting = cutting._replace(num_calls=placed.num_calls)
    shares = plan.hooks.division.shares_batches
    if shares and placed.num_here == 0:
        pass  # no example is here
    elif sizes is None:
        plan.context.draws.begin(placed.first, placed.num_here if shares else None)
        _compute_part(plan, loss, batch, placed.num_here, sums=sums, cutting=cutting)
    else:
        buffers = plan.warn_of_batch_statistics(len(sizes))
        spectral = plan.spectral_snapshot() if plan.has_spectral else None
        for part, size in zip(counting.cut(batch, sizes), sizes, strict=True):
            if sums.num_parts and spectral is not None:
                spectral.restore()
            plan.context.draws.begin(placed.first, size, after=done)
            done += size
            _compute_part(plan, loss, part, size, sums=sums, cutting=cutting)
            plan.accumulate_in_float32()
            if buffers is not None:
                buffers.warn_of_moved_buffers()
                buffers = None
    if placed.lender is not None:
        with placed.lender.counting_nothing():
            _call_with_nothing(plan, loss, lent, sums, cutting)
    plan.hooks.gradients_ready(sums)
    return sums


def _lent_example(lender: BatchLender, num_here: int | None, batch: Batch, counting: BatchCounting) -> Batch:
    if num_here == 0:
        refuse_graph_without_example(batch)
    return lender.example(batch, counting)


def _compute_part(
    plan: UpdatePlan,
    loss: Loss,
    batch: Batch,
    num_examples: int | None,
    *,
    sums: LossTotals,
    cutting: BatchCutting,
) -> None:
    """One part, or the whole batch: call the loss, check what it gave, go back through it."""
    index, hooks, division = sums.num_parts, plan.hooks, plan.hooks.division
    result = _call_loss(plan, loss, batch, index)
    whole = cutting.num_calls == 1 and not division.shares_batches
    try:
        part = read_loss(result, num_examples=num_examples, whole=whole)
    except LossError as error:
        _note_causes(error, plan, loss, batch)
        if division.shares_batches:
            cutting.counting.note_how_counted(error, batch)
        raise
    values = part.values
    if not cutting.decomposable:
        division.check_whole()
    if whole and cutting.sizes is None:
        # Without weights every value counts one, so that nothing remains to be multiplied afterwards.
        counted = num_examples if part.weights is not None else None
        counted = counted or values.numel()
        if counted != num_examples:
            sums.set_expected_examples(division.place(counted).total)
    is_last = None if cutting.may_change else index + 1 == cutting.num_calls
    hooks.before_backward(values, is_last=is_last)
    if plan.unowned is not None and plan.unowned.look(loss, values):
        _warn_of_loss(plan, loss, batch, part, cutting)
        warn_of_masked_mean(plan.names, result)
    sums.add(part, num_examples)
    if whole and sums.is_normalised:
        backward_of_losses(values, plan.seed(part, sums.expected))
    else:
        backward_of_part(plan.weights, values, plan.seed(part, sums.expected))


def _note_causes(error: LossError, plan: UpdatePlan, loss: Loss, batch: Batch) -> None:
    """Note beside what is wrong with a loss where that may come from."""
    note_frozen_learners(error, plan.learners)
    note_detaching_calls(error, loss, plan.learners)
    note_batch_of_batches(error, batch)


def _warn_of_loss(
    plan: UpdatePlan, loss: Loss, batch: Batch, part: LossOutput, cutting: BatchCutting
) -> None:
    """Tell once what a loss of this kind seldom means."""
    if plan.context.on_new_loss is not None:
        plan.context.on_new_loss(loss)
    warn_of_wrong_reduction(plan.names, part, cutting.num_calls)
    warn_of_broadcast_rows(plan.names, part)
    warn_of_unread_batch(plan.names, loss, batch, cutting.counting)
    warn_of_graph_in_batch(plan.names, plan.learners, batch, part.values)
    if not plan.precision.autocast:
        warn_of_autocast(plan.names, part.values)
    warn_of_unscaled_float16(plan.names, part.values, plan.precision)


def _call_loss(plan: UpdatePlan, loss: Loss, batch: Batch, index: int) -> Any:
    """Key the randomness, call the loss, and check what it did."""
    context, side_effects = plan.context, plan.side_effects
    context.random.set(context.keys.micro_batch_key(context.step, index, context.rank))
    side_effects.begin(cleared=index == 0)
    try:
        result = plan.call(loss, batch) if plan.calls_otherwise else loss(batch)
    except Exception as error:
        if isinstance(error, TypeError) and (wrong := loss_call_error(error, loss, batch)):
            raise wrong from error
        if not is_out_of_memory_error(error):  # which may be tried again in smaller parts
            report_failure_to_observer(error, batch, context.observer)
        raise
    finally:
        side_effects.end()
    side_effects.check()
    return result


def _call_with_nothing(
    plan: UpdatePlan, loss: Loss, example: Batch, sums: LossTotals, cutting: BatchCutting
) -> None:
    """Call the loss as often as the other processes do, with an example that counts nothing, and go back through it."""
    for index in range(sums.num_parts, cutting.num_calls):
        plan.context.draws.begin(0, 1)
        values = read_loss(_call_loss(plan, loss, example, index), num_examples=1, whole=False).values
        plan.hooks.before_backward(values, is_last=index + 1 == cutting.num_calls)
        backward_of_part(plan.weights, values, torch.zeros_like(values))

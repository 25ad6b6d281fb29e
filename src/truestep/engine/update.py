# SPDX-License-Identifier: Apache-2.0
"""One update, from top to bottom; what does not change from step to step stands in its plan (`plan.py`).

update_together   the plan → freeze everybody else → gradients → what becomes of it → put everything back → each learner's step
└── gradients     the parts that fit into memory, smaller ones when an allocation fails
    └── accumulate    the batch at once, or part by part
        └── _compute      key the randomness → loss → check → backward
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from truestep.core.errors import BatchError, LossError, OptionError
from truestep.engine.backward import backward
from truestep.engine.batches import (
    Batch,
    Split,
    count_examples,
    count_with,
    cut,
    is_empty,
    split_along,
    to_device,
    try_count,
)
from truestep.engine.closures import step_with_closure
from truestep.engine.compiling import refusal
from truestep.engine.losses import read_loss
from truestep.engine.memory import is_out_of_memory, release
from truestep.engine.parts import Parts
from truestep.engine.plan import Plan
from truestep.engine.result import Update
from truestep.engine.side_effects import explain_used_graph, refuse_graph
from truestep.engine.splitting import WHOLE, Cutting, Splitting, balanced
from truestep.engine.step import apply, decide
from truestep.engine.sums import Sums
from truestep.engine.transaction import Transaction, not_started
from truestep.engine.wrong_calls import explain_loss, no_function

Loss = Callable[[Any], Any]


def update_together(
    learners: Sequence[Parts], loss: Loss, batch: Batch, splitting: Splitting
) -> list[Update]:
    """Freeze everybody else, compute the gradient, let each learner step, put everything back."""
    if not callable(loss):
        raise LossError(no_function(loss))
    learners[0].context.observer.starting()
    plan = Plan.of(learners)
    if not plan.learners:
        return [not_started(learner) for learner in learners]
    plan.check()
    if plan.moves_batches:
        batch = to_device(batch, plan.context.device, non_blocking=True)
    with Transaction(plan) as transaction:
        if plan.closure_learner is not None:
            compute = partial(gradients, plan, loss, batch, splitting)
            return [step_with_closure(plan.closure_learner, plan.hooks, compute)]
        sums = gradients(plan, loss, batch, splitting)
        if plan.isolation is not None:
            transaction.release_others()
        steps = decide(plan.hooks, plan.learners, sums)
    if len(learners) == 1:
        return [apply(steps[0], sums)]
    done = {step.learner: apply(step, sums) for step in steps}
    return [done.get(learner) or not_started(learner) for learner in learners]


def gradients(plan: Plan, loss: Loss, batch: Batch, splitting: Splitting) -> Sums:
    """Leave the gradient of the loss over the whole batch in the learners' parameters."""
    while True:
        cutting = WHOLE if splitting.is_whole and splitting.decomposable else _cutting(plan, batch, splitting)
        again = plan.goes_back_again or cutting.goes_back_again
        if again:
            refuse_graph(batch, again)
        before = plan.snapshot() if cutting.may_change else None
        try:
            return accumulate(plan, loss, batch, cutting)
        except (RuntimeError, MemoryError) as error:
            plan.clear_gradients()
            if plan.is_compiled and (clear := refusal(error)):
                raise clear from error
            if used := explain_used_graph(error, again):
                raise used from error
            if before is None or not is_out_of_memory(error):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
        # Outside the except block: the traceback, and with it every activation, is gone now.
        size = cutting.sizes[0] if cutting.sizes else _count_to_split(batch, cutting.split, reason)
        plan.shrink_micro_batch(size, reason)
        before.restore()
        release(plan.context.device)


def _cutting(plan: Plan, batch: Batch, splitting: Splitting) -> Cutting:
    """Return how this batch is cut."""
    split = split_along(splitting.split) if isinstance(splitting.split, int) else splitting.split
    limit, may_change = splitting.micro_batch, False
    again = None
    if limit == "auto":
        limit, may_change = plan.micro_batch_in_use, True
        again = 'micro_batch="auto" may have to evaluate it again'
    shares = plan.hooks.shares_batches
    if limit is None or (shares and is_empty(batch, split)):
        return Cutting(None, split, may_change, splitting.decomposable, again)
    if isinstance(limit, int):
        total = count_with(split, batch) if split else count_examples(batch)
        limit = None if limit >= total else balanced(total, limit)
    elif shares:
        raise OptionError(
            f"micro_batch={list(limit)} are the sizes of the parts of one batch, and here each process has another part of it. "
            "Give one number: the largest micro-batch."
        )
    if limit is None:
        return Cutting(None, split, may_change, goes_back_again=again)
    again = again or f"the batch is split into {len(limit)} micro-batches"
    return Cutting(limit, split, may_change, goes_back_again=again)


def _count_to_split(batch: Batch, split: Split | None, reason: str) -> int:
    try:
        return count_with(split, batch) if split else count_examples(batch)
    except BatchError as error:
        error.add_note(f"The batch had to be split because memory ran out: {reason}")
        raise


def accumulate(plan: Plan, loss: Loss, batch: Batch, cutting: Cutting) -> Sums:
    """Compute the loss and its gradient, of the whole batch at once or part by part."""
    plan.clear_gradients()
    sizes, split = cutting.sizes, cutting.split
    sums = Sums(outputs_dim=split.dim if split else 0)
    shares = plan.hooks.shares_batches
    if shares and is_empty(batch, split):
        _place(plan, 0, sums=sums, cutting=cutting)  # this process has no example; others do
    elif sizes is None:
        num_examples = count_with(split, batch) if split else try_count(batch)
        first = _place(plan, num_examples, sums=sums, cutting=cutting)
        plan.context.draws.begin(first, num_examples if shares else None)
        _compute(plan, loss, batch, num_examples, sums=sums, cutting=cutting)
    else:
        plan.warn_of_batch_statistics(len(sizes))
        spectral = plan.spectral_snapshot() if plan.has_spectral else None
        first = _place(plan, sum(sizes), sums=sums, cutting=cutting)
        for part, size in zip(cut(batch, sizes, split), sizes, strict=True):
            if sums.num_parts and spectral is not None:
                spectral.restore()
            plan.context.draws.begin(first, size)
            first += size
            _compute(plan, loss, part, size, sums=sums, cutting=cutting)
            plan.accumulate_half()
    plan.hooks.gradients_ready(sums)
    return sums


def _place(plan: Plan, count: int | None, *, sums: Sums, cutting: Cutting) -> int:
    """Say which example of the whole batch this process's part begins with; the mean is over the whole."""
    first, sums.expected = plan.hooks.place(count, 1 if cutting.sizes is None else len(cutting.sizes))
    if not cutting.decomposable:
        plan.hooks.refuse_empty()
    return first


def _compute(
    plan: Plan, loss: Loss, batch: Batch, num_examples: int | None, *, sums: Sums, cutting: Cutting
) -> None:
    """One part, or the whole batch: key the randomness, call the loss, check what it did and gave, go back through it."""
    context, side_effects, index = plan.context, plan.side_effects, sums.num_parts
    num_parts = 1 if cutting.sizes is None else len(cutting.sizes)
    context.random.set(context.key(index))
    side_effects.begin(cleared=index == 0)
    try:
        result = plan.call(loss, batch) if plan.calls_otherwise else loss(batch)
    except TypeError as error:
        if wrong := explain_loss(error, loss, batch):
            raise wrong from error
        raise
    finally:
        side_effects.end()
    side_effects.check()
    whole = num_parts == 1 and not plan.hooks.shares_batches
    part = read_loss(result, num_examples=num_examples, whole=whole)
    plan.strangers.look(loss, part.values)
    if not cutting.decomposable:
        plan.hooks.check_whole()
    if cutting.sizes is None:
        # Without weights every value counts one, so that nothing remains to be multiplied afterwards.
        counted = num_examples if part.weights is not None else None
        counted = counted or part.values.numel()
        if counted != num_examples:
            sums.expected = plan.hooks.place(counted)[1]
    sums.add(part, num_examples)
    plan.hooks.before_backward(sums, is_last=index + 1 == num_parts and not cutting.may_change)
    backward(part.values, plan.seed(part, sums.expected))

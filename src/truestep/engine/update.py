# SPDX-License-Identifier: Apache-2.0
"""One update, from top to bottom.

update_together   freeze everybody else → gradients → each learner's step → put everything back
└── gradients     the parts that fit into memory, smaller ones when an allocation fails
    └── accumulate    key the randomness → loss → check → backward, part by part
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

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
from truestep.engine.losses import Part, read_loss
from truestep.engine.memory import is_out_of_memory, release
from truestep.engine.parts import Parts
from truestep.engine.plan import Plan
from truestep.engine.result import Update
from truestep.engine.side_effects import explain_used_graph, refuse_graph
from truestep.engine.splitting import Cutting, MicroBatch, Splitting, balanced
from truestep.engine.step import apply, decide
from truestep.engine.sums import Sums
from truestep.engine.transaction import Transaction, not_started
from truestep.engine.wrong_calls import no_function

Loss = Callable[[Any], Any]


def check_function(loss: Any) -> None:
    """Raise unless `loss` can be called."""
    if not callable(loss):
        raise LossError(no_function(loss))


def update_together(
    learners: Sequence[Parts], loss: Loss, batch: Batch, splitting: Splitting
) -> list[Update]:
    """Freeze everybody else, compute the gradient, let each learner step, put everything back."""
    check_function(loss)
    plan = Plan.of(learners)
    context = plan.context
    context.observer.starting()
    if not plan.learners:
        return [not_started(learner) for learner in learners]
    plan.check()
    if context.device.type != "cpu":
        batch = to_device(batch, context.device, non_blocking=True)
    with Transaction(plan) as transaction:
        if plan.closure_learner is not None:
            compute = partial(gradients, plan, loss, batch, splitting)
            return [step_with_closure(plan.closure_learner, plan.hooks, compute)]
        sums = gradients(plan, loss, batch, splitting)
        transaction.release_others()
        steps = decide(plan.hooks, plan.learners, sums)
    done = {step.learner: apply(step, sums) for step in steps}
    return [done.get(learner) or not_started(learner) for learner in learners]


def gradients(plan: Plan, loss: Loss, batch: Batch, splitting: Splitting) -> Sums:
    """Leave the gradient of the loss over the whole batch in the learners' parameters."""
    split = split_along(splitting.split) if isinstance(splitting.split, int) else splitting.split
    auto = splitting.micro_batch == "auto"
    while True:
        sizes = _sizes(plan, batch, split, splitting.micro_batch)
        if why := _goes_back_again(plan, sizes, auto=auto):
            refuse_graph(batch, why)
        before = plan.snapshot() if auto else None
        try:
            return accumulate(plan, loss, batch, Cutting(sizes, split, auto, splitting.decomposable))
        except (RuntimeError, MemoryError) as error:
            plan.clear_gradients()
            if plan.compiler is not None and (clear := refusal(error)):
                raise clear from error
            if used := explain_used_graph(error, why):
                raise used from error
            if before is None or not is_out_of_memory(error):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
        # Outside the except block: the traceback, and with it every activation, is gone now.
        plan.shrink_micro_batch(sizes[0] if sizes else _count_to_split(batch, split, reason), reason)
        before.restore()
        release(plan.context.device)


def _goes_back_again(plan: Plan, sizes: Sequence[int] | None, *, auto: bool) -> str | None:
    """Say why what was computed before this update may be gone through more than once; None where it is not."""
    if plan.closure_learner is not None:
        return f"{type(plan.closure_learner.optimizers[0]).__name__} evaluates the loss several times"
    if auto:
        return 'micro_batch="auto" may have to evaluate it again'
    return None if sizes is None else f"the batch is split into {len(sizes)} micro-batches"


def _sizes(plan: Plan, batch: Batch, split: Split | None, micro_batch: MicroBatch) -> list[int] | None:
    """Return the numbers of examples computed at once, None for the whole batch."""
    limit = plan.micro_batch_in_use if micro_batch == "auto" else micro_batch
    if limit is None or (plan.hooks.shares_batches and is_empty(batch, split)):
        return None
    if not isinstance(limit, int):
        if plan.hooks.shares_batches:
            raise OptionError(
                f"micro_batch={list(limit)} are the sizes of the parts of one batch, and here each process has another part of it. "
                "Give one number: the largest micro-batch."
            )
        return list(limit)
    total = count_with(split, batch) if split else count_examples(batch)
    return None if limit >= total else balanced(total, limit)


def _count_to_split(batch: Batch, split: Split | None, reason: str) -> int:
    try:
        return count_with(split, batch) if split else count_examples(batch)
    except BatchError as error:
        error.add_note(f"The batch had to be split because memory ran out: {reason}")
        raise


def accumulate(plan: Plan, loss: Loss, batch: Batch, cutting: Cutting) -> Sums:
    """Compute the loss and its gradient, of the whole batch at once or part by part."""
    plan.clear_gradients()
    sums = Sums()
    sums.outputs_dim = cutting.split.dim if cutting.split else 0
    if plan.hooks.shares_batches and is_empty(batch, cutting.split):
        sums.expected = plan.hooks.place(0)[1]  # this process has no example; others do
        if not cutting.decomposable:
            plan.hooks.refuse_empty()
    elif cutting.sizes is None:
        _at_once(plan, loss, batch, cutting, sums)
    else:
        _part_by_part(plan, loss, batch, cutting, sums)
    plan.hooks.gradients_ready(sums)
    return sums


def _at_once(plan: Plan, loss: Loss, batch: Batch, cutting: Cutting, sums: Sums) -> None:
    num_examples = count_with(cutting.split, batch) if cutting.split else try_count(batch)
    first, sums.expected = plan.hooks.place(num_examples)
    if not cutting.decomposable:
        plan.hooks.refuse_empty()
    shares = plan.hooks.shares_batches
    plan.context.draws.begin(first, num_examples if shares else None)
    part = _evaluate(plan, loss, batch, index=0, num_examples=num_examples, whole=not shares)
    if not cutting.decomposable:
        plan.hooks.check_whole()
    # Without weights every value counts one, so that nothing remains to be multiplied afterwards.
    counted = part.num_values if part.weights is None else (num_examples or part.num_values)
    if counted != num_examples:
        sums.expected = plan.hooks.place(counted)[1]
    _backward(plan, part, sums, num_examples, is_last=not cutting.may_change)


def _part_by_part(plan: Plan, loss: Loss, batch: Batch, cutting: Cutting, sums: Sums) -> None:
    sizes = cutting.sizes
    assert sizes is not None
    plan.warn_of_batch_statistics(len(sizes))
    spectral = plan.spectral_snapshot() if plan.has_spectral else None
    whole = len(sizes) == 1 and not plan.hooks.shares_batches
    first, sums.expected = plan.hooks.place(sum(sizes), len(sizes))
    for index, (piece, size) in enumerate(zip(cut(batch, sizes, cutting.split), sizes, strict=True)):
        if index and spectral is not None:
            spectral.restore()
        plan.context.draws.begin(first, size)
        first += size
        part = _evaluate(plan, loss, piece, index=index, num_examples=size, whole=whole)
        is_last = index == len(sizes) - 1 and not cutting.may_change
        _backward(plan, part, sums, size, is_last=is_last)
        plan.accumulate_half()


def _evaluate(
    plan: Plan, loss: Loss, batch: Batch, *, index: int, num_examples: int | None, whole: bool
) -> Part:
    context = plan.context
    context.random.set(context.key(index))
    plan.side_effects.begin(cleared=index == 0)
    try:
        with plan.precision.surround(context.device):
            result = plan.call(loss, batch)
    finally:
        plan.side_effects.end()
    plan.side_effects.check()
    part = read_loss(result, num_examples=num_examples, whole=whole)
    plan.strangers.look(loss, part.values)
    return part


def _backward(plan: Plan, part: Part, sums: Sums, num_examples: int | None, *, is_last: bool) -> None:
    """Go back through one part, seeded with scale / expected, so that its share of the mean is what accumulates."""
    sums.add(part, num_examples)
    values = part.values
    if part.is_scalar:
        seed = torch.ones_like(values)
    elif part.weights is None:
        seed = plan.uniform_seed(values, sums.expected)
    else:
        seed = part.weights / sums.expected
    scale = plan.shared_scale()
    if scale is not None:
        seed = seed * scale.to(seed.dtype)
    plan.hooks.before_backward(sums, is_last=is_last)
    backward(values, seed)

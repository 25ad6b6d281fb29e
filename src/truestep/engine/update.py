# SPDX-License-Identifier: Apache-2.0
"""One update, from top to bottom.

update_together   freeze everybody else → gradients → each learner's step → put everything back
└── gradients     the parts that fit into memory, smaller ones when an allocation fails
    └── accumulate    key the randomness → loss → check → backward, part by part
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from truestep.engine.backward import backward
from truestep.engine.batches import (
    Batch,
    Split,
    count_examples,
    count_with,
    cut,
    split_along,
    to_device,
    try_count,
)
from truestep.engine.closures import step_with_closure
from truestep.engine.compiling import refusal
from truestep.engine.group import Group, check_free
from truestep.engine.losses import Part, read_loss
from truestep.engine.memory import is_out_of_memory, release
from truestep.engine.step import Update, apply, decide
from truestep.engine.sums import Sums
from truestep.errors import BatchError, LossError, OptionError

if TYPE_CHECKING:
    from truestep.engine.learner import Learner

Loss = Callable[[Any], Any]
MicroBatch = int | Sequence[int] | Literal["auto"] | None


@dataclass(frozen=True)
class Splitting:
    """How a batch may be split; the update does not depend on it but for rounding."""

    micro_batch: MicroBatch = None
    split: Split | int | None = None
    decomposable: bool = True

    def __post_init__(self) -> None:
        check_micro_batch(self.micro_batch)
        if not self.decomposable and self.micro_batch is not None:
            raise OptionError(
                f"micro_batch={self.micro_batch!r} splits the batch, and decomposable=False says that the loss of the whole is "
                "not a mean of its examples' losses. Leave micro_batch=None for this update."
            )


def check_micro_batch(micro_batch: MicroBatch) -> None:
    """Raise unless `micro_batch` is None, "auto", a positive number, or a sequence of positive numbers."""
    if micro_batch is None or micro_batch == "auto":
        return
    sizes = (
        micro_batch
        if isinstance(micro_batch, Sequence) and not isinstance(micro_batch, str)
        else [micro_batch]
    )
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise OptionError(
            f'micro_batch={micro_batch!r}: give the largest number of examples computed at once (at least 1), "auto" to let '
            "memory decide, or None for the whole batch."
        )


def update(
    learners: Sequence["Learner"],
    loss: Loss,
    batch: Batch,
    *,
    micro_batch: MicroBatch = None,
    split: Split | int | None = None,
    decomposable: bool = True,
) -> list[Update]:
    """Make one update of several learners with the gradient of one loss; return theirs in order.

    Each learner clips, scales and steps by itself: an overflow in one leaves the others' update as it is. The options
    are those of `Learner.update`.
    """
    if not learners:
        raise OptionError("ts.update was given no learners; write ts.update([a, b], loss, batch).")
    if micro_batch is None and decomposable:
        micro_batch = _micro_batch_of(learners)
    return update_together(learners, loss, batch, Splitting(micro_batch, split, decomposable))


def check_function(loss: Any) -> None:
    """Raise unless `loss` can be called."""
    if not callable(loss):
        raise LossError(
            f"update was given a {type(loss).__name__} instead of a loss function. The engine calls the loss itself, so that it "
            "can split the batch or try it again: def loss(batch): ... and then net.update(loss, batch)."
        )


def _micro_batch_of(learners: Sequence["Learner"]) -> MicroBatch:
    """Return what suits all learners: "auto" where one leaves it to memory, else the smallest of their own."""
    asked = [learner.options.micro_batch for learner in learners]
    if "auto" in asked:
        return "auto"
    numbers = [size for size in asked if isinstance(size, int)]
    return min(numbers) if numbers else next((sizes for sizes in asked if sizes is not None), None)


def update_together(
    learners: Sequence["Learner"], loss: Loss, batch: Batch, splitting: Splitting
) -> list[Update]:
    """Freeze everybody else, compute the gradient, let each learner step, put everything back."""
    check_function(loss)
    group = Group.of(learners)
    context = group.context
    context.observer.starting()
    if not group.learners:
        return [Update.not_started(learner) for learner in learners]
    check_free(group.learners)
    group.left_out.refuse_unfrozen()
    context.ordinal += 1
    if context.device.type != "cpu":
        batch = to_device(batch, context.device, non_blocking=True)
    caller = context.random.save()
    group.keep_statistics()
    context.is_busy = True
    try:
        with group.isolation:
            if group.closure_learner is not None:
                return [step_with_closure(group, lambda: gradients(group, loss, batch, splitting))]
            sums = gradients(group, loss, batch, splitting)
        steps = decide(group.learners, sums)
    except BaseException:
        group.undo()
        context.ordinal -= 1
        raise
    finally:
        context.is_busy = False
        context.random.restore(caller)
    done = {step.learner: apply(step, sums) for step in steps}
    return [done.get(learner) or Update.not_started(learner) for learner in learners]


def gradients(group: Group, loss: Loss, batch: Batch, splitting: Splitting) -> Sums:
    """Leave the gradient of the loss over the whole batch in the learners' parameters."""
    split = split_along(splitting.split) if isinstance(splitting.split, int) else splitting.split
    auto = splitting.micro_batch == "auto"
    while True:
        sizes = _sizes(group, batch, split, splitting.micro_batch)
        before = group.snapshot() if auto else None
        try:
            return accumulate(group, loss, batch, sizes=sizes, split=split)
        except (RuntimeError, MemoryError) as error:
            group.clear_gradients()
            if group.compiler is not None and (clear := refusal(error)):
                raise clear from error
            if before is None or not is_out_of_memory(error):
                raise
            reason = str(error).splitlines()[0]
        # Outside the except block: the traceback, and with it every activation, is gone now.
        group.shrink_micro_batch(sizes[0] if sizes else _count_to_split(batch, split, reason), reason)
        before.restore()
        release(group.context.device)


def _sizes(group: Group, batch: Batch, split: Split | None, micro_batch: MicroBatch) -> list[int] | None:
    """Return the numbers of examples computed at once, None for the whole batch."""
    limit = group.micro_batch_in_use if micro_batch == "auto" else micro_batch
    if limit is None:
        return None
    if not isinstance(limit, int):
        return list(limit)
    total = count_with(split, batch) if split else count_examples(batch)
    if limit >= total:
        return None
    return [limit] * (total // limit) + ([total % limit] if total % limit else [])


def _count_to_split(batch: Batch, split: Split | None, reason: str) -> int:
    try:
        return count_with(split, batch) if split else count_examples(batch)
    except BatchError as error:
        error.add_note(f"The batch had to be split because memory ran out: {reason}")
        raise


def accumulate(
    group: Group, loss: Loss, batch: Batch, *, sizes: Sequence[int] | None, split: Split | None
) -> Sums:
    """Compute the loss and its gradient part by part; `sizes` None is the whole batch at once."""
    group.clear_gradients()
    sums = Sums()
    if sizes is None:
        num_examples = count_with(split, batch) if split else try_count(batch)
        part = _evaluate(group, loss, batch, index=0, num_examples=num_examples, whole=True)
        # Without weights every value counts one, so that nothing remains to be multiplied afterwards.
        sums.expected = part.num_values if part.weights is None else (num_examples or part.num_values)
        _backward(group, part, sums)
        return sums
    group.warn_of_batch_statistics(len(sizes))
    spectral = group.spectral_snapshot()
    sums.expected = sum(sizes)
    for index, (piece, size) in enumerate(zip(cut(batch, sizes, split), sizes, strict=True)):
        if index:
            spectral.restore()
        part = _evaluate(group, loss, piece, index=index, num_examples=size, whole=len(sizes) == 1)
        _backward(group, part, sums)
        group.accumulate_half()
    return sums


def _evaluate(
    group: Group, loss: Loss, batch: Batch, *, index: int, num_examples: int | None, whole: bool
) -> Part:
    context = group.context
    context.random.set(context.key(index))
    with group.precision.surround(context.device):
        result = group.call(loss, batch)
    return read_loss(result, num_examples=num_examples, whole=whole)


def _backward(group: Group, part: Part, sums: Sums) -> None:
    """Go back through one part, seeded with scale / expected, so that its share of the mean is what accumulates."""
    sums.add(part)
    values = part.values
    if part.is_scalar:
        seed = torch.ones_like(values)
    elif part.weights is None:
        seed = group.uniform_seed(values, sums.expected)
    else:
        seed = part.weights / sums.expected
    scale = group.shared_scale()
    if scale is not None:
        seed = seed * scale.to(seed.dtype)
    backward(values, seed)

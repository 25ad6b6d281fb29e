# SPDX-License-Identifier: Apache-2.0
"""Relations of the items of a batch: whether the loss uses each, and which example it belongs to."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from truestep.doctor.relations.noise import SEED
from truestep.doctor.relations.trials.order import halves
from truestep.doctor.relations.trials.trial import TrialOutcome, Trials
from truestep.doctor.relations.verdict import RelationOutcome, Verdict

_OTHER_SEEDS = 5
_UNIT = "relative change of the gradient"
# what a loss is given to be used, by its usual names; a position in a tuple has none
_USED = re.compile(r"mask|weight|label|target|input|image|token|ids|length|^\[?\d*\]?$|\b[xy]\b", re.I)


def item_verdicts(trials: Trials) -> Iterator[Verdict]:
    """Each item of the batch is used: made the same for all examples, or given to others, it changes the gradient."""
    varying = [
        item
        for item in trials.examples.items
        if _is_numeric_item(trials, item) and trials.examples.varies(item)
    ]
    used = []
    for item in varying:
        change = _change_by_constants(trials, item)
        if change > trials.tolerance:
            used.append((item, change))
        elif (other := _change_by_other_labels(trials, item)) > trials.tolerance:
            yield Verdict(_item_name(item), "held", expected=0.0, found=other, unit=_UNIT, is_other=True)
        else:
            yield _unused_item_verdict(trials, item, change)
    for number, (item, change) in enumerate(used):
        # the first given to others is the others given to others
        yield _exchanged_item_verdict(trials, item, change, alone=number == 0)
    left = [item for item in trials.examples.items if item not in varying]
    for item in left:
        yield Verdict(_item_name(item), "not tried", "it holds no numbers, or the same for all examples")


def _unused_item_verdict(trials: Trials, item: str, change: float) -> Verdict:
    outcome: RelationOutcome = "broken" if _is_meant_to_be_used(trials, item) else "question"
    why = (
        "made the same for all examples it changes nothing: the loss does not use it, or its effect is cut off. Use it in "
        "the loss, or leave it out of the batch"
    )
    return Verdict(_item_name(item), outcome, why, expected=0.0, found=change, unit=_UNIT, is_other=True)


def _change_by_constants(trials: Trials, item: str) -> float:
    """Return what changes where all examples have one value: of several examples' ones, since one may change nothing by chance."""
    count = trials.examples.count
    rows = sorted({0, count // 2, count - 1})
    return _largest_change(trials, lambda: (trials.examples.constant(item, row) for row in rows))


def _largest_change(trials: Trials, batches: Callable[[], Iterable[Any]]) -> float:
    """Return what changes most, with other random numbers too: of drawn actions none may fit an example by chance."""
    change, seeds = 0.0, [SEED]
    for seed in seeds:
        with trials.other_noise(seed):
            for batch in batches():
                change = max(change, _relative_change(trials, trials.gradients(batch, trials.examples.count)))
                if change > trials.tolerance:
                    return change
        if seed == SEED and trials.draws:
            seeds += range(SEED + 1, SEED + 1 + _OTHER_SEEDS)
    return change


def _change_by_other_labels(trials: Trials, item: str) -> float:
    """Return what changes where all examples have a whole number that none has, such as a class that is predicted."""
    change = 0.0
    for value in trials.examples.absent_numbers(item):
        outcome = trials.attempt(trials.examples.filled(item, value), trials.examples.count)
        # who refuses a number has looked at it
        change = max(change, 1.0 if isinstance(outcome, str) else _relative_change(trials, outcome))
        if change > trials.tolerance:
            break
    return change


def _exchanged_item_verdict(trials: Trials, item: str, change: float, *, alone: bool) -> Verdict:
    """Say whether it matters which example the values of an item belong to."""
    if not alone:
        exchanged = _largest_change(trials, lambda: [trials.examples.with_exchanged_item(item)])
        if exchanged <= trials.tolerance:
            return _unpaired_item_verdict(trials, item, exchanged)
        change = min(change, exchanged)
    return Verdict(_item_name(item), "held", expected=0.0, found=change, unit=_UNIT, is_other=True)


def _unpaired_item_verdict(trials: Trials, item: str, change: float) -> Verdict:
    if trials.once("halves", halves).outcome == "held":
        why = "given to other examples it changes nothing. That is right if the items of a batch are independent of each other"
        return Verdict(
            _item_name(item), "question", why, expected=0.0, found=change, unit=_UNIT, is_other=True
        )
    mixing = trials.mixing()
    return Verdict(
        _item_name(item),
        "broken",
        "given to other examples it changes nothing: every example meets every value. Give both sides of the comparison one shape, "
        "such as (batch,) and not (batch, 1)",
        expected=0.0,
        found=change,
        unit=_UNIT,
        is_other=True,
        place=str(mixing) if mixing else None,
    )


def _relative_change(trials: Trials, outcome: TrialOutcome) -> float:
    compared = trials.compare(outcome.gradients, trials.whole.gradients)
    # a gradient that vanishes everywhere can't show what the loss shows
    moved = abs(outcome.value - trials.whole.value) / (abs(trials.whole.value) or 1.0)
    return max(compared.difference, moved)


def _is_numeric_item(trials: Trials, item: str) -> bool:
    leaf = trials.examples.leaves[item]
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind in "biufc"
    return isinstance(leaf, Tensor) or (
        isinstance(leaf, (list, tuple)) and not isinstance(leaf[0], (str, bytes))
    )


def _is_meant_to_be_used(trials: Trials, item: str) -> bool:
    """Whether a loss needs an item by its usual names; one that compares examples with each other may do without labels."""
    if not _USED.search(item) or trials.once("halves", halves).outcome == "question":
        return False
    mixing = trials.mixing()
    return not (mixing and mixing.meaning)


def _item_name(item: str) -> str:
    return f"item: batch{item}"

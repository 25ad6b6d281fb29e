# SPDX-License-Identifier: Apache-2.0
"""Relations of the items of a batch: whether the loss uses each, and which example it belongs to."""

import re
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from truestep.doctor.relations.trials.order import halves
from truestep.doctor.relations.trials.trial import TrialOutcome, Trials
from truestep.doctor.relations.verdict import RelationOutcome, Verdict

_UNIT = "relative change of the gradient"
# what a loss is given to be used, by its usual names; a position in a tuple has none
_USED = re.compile(r"mask|weight|label|target|input|image|token|ids|length|^\[?\d*\]?$|\b[xy]\b", re.I)


def items(trials: Trials) -> Iterator[Verdict]:
    """Each item of the batch is used: made the same for all examples, or given to others, it changes the gradient."""
    varying = [
        item for item in trials.examples.items if _is_numbers(trials, item) and trials.examples.varies(item)
    ]
    used = []
    for item in varying:
        change = _change_by_constants(trials, item)
        if change > trials.tolerance:
            used.append((item, change))
            continue
        outcome: RelationOutcome = "broken" if _is_meant_to_be_used(trials, item) else "question"
        why = (
            "made the same for all examples it changes nothing: the loss does not use it, or its effect is cut off. Use it in "
            "the loss, or leave it out of the batch"
        )
        yield Verdict(_called(item), outcome, why, expected=0.0, found=change, unit=_UNIT, is_other=True)
    for number, (item, change) in enumerate(used):
        # the first given to others is the others given to others
        yield _exchanged(trials, item, change, alone=number == 0)
    left = [item for item in trials.examples.items if item not in varying]
    for item in left:
        yield Verdict(_called(item), "not tried", "it holds no numbers, or the same for all examples")


def _change_by_constants(trials: Trials, item: str) -> float:
    """Return what changes where all examples have one value: of several examples' ones, since one may change nothing by chance."""
    count, change = trials.examples.count, 0.0
    for row in sorted({0, count // 2, count - 1}):
        outcome = trials.gradients(trials.examples.take([row] * count, item), count)
        change = max(change, _change(trials, outcome))
        if change > trials.tolerance:
            break
    return change


def _exchanged(trials: Trials, item: str, change: float, *, alone: bool) -> Verdict:
    """Say whether it matters which example the values of an item belong to."""
    if not alone:
        outcome = trials.gradients(trials.examples.exchanged(item), trials.examples.count)
        exchanged = _change(trials, outcome)
        if exchanged <= trials.tolerance:
            return _unpaired(trials, item, exchanged)
        change = min(change, exchanged)
    return Verdict(_called(item), "held", expected=0.0, found=change, unit=_UNIT, is_other=True)


def _unpaired(trials: Trials, item: str, change: float) -> Verdict:
    if trials.once("halves", halves).outcome == "held":
        why = "given to other examples it changes nothing. That is right if the items of a batch are independent of each other"
        return Verdict(_called(item), "question", why, expected=0.0, found=change, unit=_UNIT, is_other=True)
    mixing = trials.mixing()
    return Verdict(
        _called(item),
        "broken",
        "given to other examples it changes nothing: every example meets every value. Give both sides of the comparison one shape, "
        "such as (batch,) and not (batch, 1)",
        expected=0.0,
        found=change,
        unit=_UNIT,
        is_other=True,
        place=str(mixing) if mixing else None,
    )


def _change(trials: Trials, outcome: TrialOutcome) -> float:
    compared = trials.compare(outcome.gradients, trials.whole.gradients)
    # a gradient that vanishes everywhere can't show what the loss shows
    moved = abs(outcome.value - trials.whole.value) / (abs(trials.whole.value) or 1.0)
    return max(compared.difference, moved)


def _is_numbers(trials: Trials, item: str) -> bool:
    leaf = trials.examples.leaves[item]
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind in "biufc"
    return isinstance(leaf, Tensor) or (
        isinstance(leaf, list | tuple) and not isinstance(leaf[0], str | bytes)
    )


def _is_meant_to_be_used(trials: Trials, item: str) -> bool:
    """Whether a loss needs an item by its usual names; one that compares examples with each other may do without labels."""
    mixing = None if trials.once("halves", halves).outcome == "held" else trials.mixing()
    return bool(_USED.search(item)) and not (mixing and mixing.meaning)


def _called(item: str) -> str:
    return f"item: batch{item}"

# SPDX-License-Identifier: Apache-2.0
"""Under which meaning it is right that examples mix, and whether what follows shows that it is meant."""

from collections.abc import Sequence
from typing import Any, NamedTuple

# The meaning under which it is right that examples mix, by the operation that mixes them.
PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "cdist_forward", "euclidean_dist", "dist"})
_COMPARES = "each example is compared with all others, as in contrastive losses and metric learning"
_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow"})
_NORMALISES = "the examples are normalised by a figure of the whole batch, as advantages are"
RATIO = "the loss is a ratio of sums over the whole batch, as a Dice loss is"
_NORMS = ("native_batch_norm", "batch_norm_with_update", "cudnn_batch_norm")
_MEANINGS = {
    **dict.fromkeys(
        ("sort", "topk", "argsort", "cumsum", "logcumsumexp", "cummax", "cummin"), "the examples are ranked"
    ),
    **dict.fromkeys(
        ("roll", "flip", "index", "index_select", "gather"),
        "each example is paired with another, as in mix-up and losses with negatives",
    ),
    **dict.fromkeys(_NORMS, "batch normalisation without stored statistics"),
}
RANKS = frozenset({"sort", "argsort", "topk"})
_WEIGHS = frozenset({"mul", "mv", "dot"})  # what a weight meets a loss by


class RowSums(NamedTuple):
    """What is kept of an operation's result: its name, where it was called, and the sums of its rows along each dimension.

    Of what has no rows of examples, as the sum over them, `total` is a weighted sum of all numbers.
    """

    operation: str
    place: str | None
    layer: str | None
    shape: tuple[int, ...]
    given: tuple[tuple[int, ...], ...]
    read: tuple[int, ...]  # the memory of what was given
    made: int  # and of the result
    with_graph: bool  # whether a tensor of what was given needs a gradient
    of_itself: bool  # whether all that was given is one tensor in several forms
    number: int  # of the call, among those that are kept
    total: float | None
    sums: tuple[tuple[int, Any], ...]
    """The rows of an example and the sums of all rows, for each dimension that can hold the examples."""


def meaning_of_mixing(call: RowSums) -> str | None:
    """Return under which meaning it is right that a call mixes the examples."""
    if "ttention" in (call.layer or ""):
        return None
    if _is_table_of_itself(call):
        return _COMPARES
    if call.operation in PRODUCTS:
        squares = len(call.shape) >= 2 and call.shape[-1] == call.shape[-2]
        return _COMPARES if squares else None
    if call.operation in _ARITHMETIC:
        # by something of fewer numbers, and no two that spread to a table of all with all
        figures = [each for each in call.given if each != call.shape]
        return _NORMALISES if call.shape in call.given and figures else None
    return _MEANINGS.get(call.operation)


def is_mixing_meant(call: RowSums, following: Sequence[RowSums]) -> bool:
    """Tell whether it shows that examples are meant to mix in a call.

    They are in a batch norm, and where numbers are ranked of which each example has one. So are they in figures of the data that
    the batch normalises and a loss is weighed by, as advantages are: as inputs, or as targets, they may be a mistake. A table of
    all with all is, where no product takes it back to a row for each example, as attention over the batch does.

    Args:
        call: the one that mixes.
        following: those behind it that reach the loss.
    """
    meaning = meaning_of_mixing(call)
    if call.operation in _NORMS:
        return True
    if call.operation in RANKS:
        return all(size == 1 for size in call.shape[1:])
    if meaning == _COMPARES:
        return not any(
            each.operation in PRODUCTS for each in calls_derived_from(call, following) if each is not call
        )
    if meaning == _NORMALISES and not call.with_graph:
        meets = next((each for each in calls_derived_from(call, following) if each.with_graph), None)
        return meets is not None and meets.operation in _WEIGHS
    return False


def _is_table_of_itself(call: RowSums) -> bool:
    """Tell whether a table of all with all is made of one tensor, as `y[:, None] == y` is: no slip spreads one over itself."""
    size = max(call.given[0], default=1) if call.given else 1
    return call.of_itself and call.shape[:2] == (size, size)


def calls_derived_from(call: RowSums, following: Sequence[RowSums]) -> list[RowSums]:
    """Return the calls that are given what a call made, or what was made of that, in their order."""
    made, found = {call.made}, []
    for each in following:
        if not made.isdisjoint(each.read):
            made.add(each.made)
            found.append(each)
        elif each.made in made:
            made.discard(each.made)  # something else lies there now
    return found

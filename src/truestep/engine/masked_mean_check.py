# SPDX-License-Identifier: Apache-2.0
"""A loss whose values a mask has set to zero and whose mean counts them: told once, when a loss function is first used.

Read off the operations that the values end in: a product with zeros and ones, a selection, labels that a cross entropy ignores.
"""

from contextlib import suppress
from typing import Any, NamedTuple

from torch import Tensor

from truestep.core.user_frames import warn_user
from truestep.engine.loss_results import Weighted

_FORMS = (
    "View",
    "UnsafeView",
    "Reshape",
    "Unsqueeze",
    "Squeeze",
    "Transpose",
    "T",
    "Permute",
    "Neg",
    "ToCopy",
)
_MOST_FORMS = 8  # operations that change the form of values and nothing in them


class _MaskedValues(NamedTuple):
    left_out: Tensor
    """Where a value does not count."""
    ignored: int | None
    """The label that says so, where it is a cross entropy that leaves it out."""


def warn_of_masked_mean(names: str, result: Any) -> None:
    """Warn of values without weights of which a mask has set some to zero: the mean of all counts these, too.

    What a loss of one value an example is multiplied by may be a reward, so a product is told of where it is given alone to
    `ts.weighted`, which has a place for the mask.
    """
    given = isinstance(result, Weighted)
    values = result.values if given else result
    if not isinstance(values, Tensor) or not values.ndim or (given and result.weights is not None):
        return
    masked = _find_masked_values(values)
    if masked is None or (masked.ignored is None and not (given and (values.ndim > 1 or not result.metrics))):
        return
    num_out = int(masked.left_out.sum())
    if not 0 < num_out < masked.left_out.numel():
        return
    count, share = values.numel(), num_out * (values.numel() // masked.left_out.numel())
    if masked.ignored is None:
        warn_user(_PRODUCT.format(names=names, count=count, share=share))
    else:
        warn_user(_IGNORED.format(names=names, count=count, share=share, label=masked.ignored))


def _find_masked_values(values: Tensor) -> _MaskedValues | None:
    node: Any = values.grad_fn
    for _ in range(_MOST_FORMS):
        if node is None or node.name().removesuffix("Backward0") not in _FORMS:
            break
        node = next((each for each, _ in node.next_functions if each is not None), None)
    if node is None:
        return None
    with suppress(RuntimeError, AttributeError):  # what it has saved is given back, or was changed in place
        return _read_mask_of_node(node, node.name().removesuffix("Backward0"))
    return None


def _read_mask_of_node(node: Any, kind: str) -> _MaskedValues | None:
    if kind in ("NllLoss", "NllLoss2D", "NllLossNd"):
        label = node._saved_ignore_index
        label = label - (1 << 64) if label >= 1 << 63 else label  # it is kept without its sign
        return _MaskedValues(node._saved_target == label, label)
    if kind == "MaskedFill":
        return _MaskedValues(node._saved_mask, None)
    if kind == "Where":
        has_graph = [each is not None for each, _ in node.next_functions]
        chosen = node._saved_condition
        return (
            _MaskedValues(~chosen if has_graph[0] else chosen, None) if has_graph.count(True) == 1 else None
        )
    if kind != "Mul":
        return None
    for factor in (node._saved_other, node._saved_self):
        if isinstance(factor, Tensor) and factor.ndim and not factor.requires_grad:
            is_flag = (factor == 0) | (factor == 1)
            return _MaskedValues(factor == 0, None) if bool(is_flag.all()) else None
    return None


_PRODUCT = (
    "The loss of {names} gives ts.weighted {count} values and no weights, and a mask has set {share} of them to zero: the mean is "
    "over all {count}, so the more is masked, the smaller is the update. If the mask says what counts, give it as the weights: "
    "ts.weighted(values, mask)."
)
_IGNORED = (
    "The loss of {names} has {count} values of which {share} are zero, since their labels are ignore_index={label}: the mean is "
    "over all {count}, while torch's own mean leaves those out. Give what counts as the weights: ts.weighted(values, (labels != "
    "{label}).float())."
)

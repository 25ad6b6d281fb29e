# SPDX-License-Identifier: Apache-2.0
"""A loss that is split, and gives an example another value beside other examples: then the update depends on the split."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from truestep.core.call_site import attributes_read
from truestep.core.frames import warn_user
from truestep.engine.context import LearnerContext
from truestep.engine.counting import BatchCounting
from truestep.engine.cut_graph import codes_of_loss

_JOINING = frozenset(
    {
        "mean",
        "std",
        "var",
        "std_mean",
        "var_mean",
        "sum",
        "norm",
        "max",
        "min",
        "amax",
        "amin",
        "median",
        "quantile",
    }
    | {"sort", "argsort", "topk", "cumsum", "logsumexp", "softmax", "normalize", "layer_norm", "standardize"}
    | {"T", "mT", "t", "transpose", "matmul", "mm", "einsum", "cdist", "roll", "flip", "corrcoef", "cov"}
)
_EXACT, _HALF = 1e-3, 0.1  # of the largest value: kernels of another size round otherwise


def tell_of_joint_examples(
    context: LearnerContext, loss: Callable[[Any], Any], part: Any, values: Tensor, counting: BatchCounting
) -> None:
    """Warn where half of the examples of a part have other losses by themselves; asked once of each loss function.

    Asked is a loss whose code holds a name of what joins examples. Nothing is said where it draws, counts or can't be asked
    again, nor where a model has buffers, which a forward may fill.
    """
    alone = len(values) // 2 if values.ndim else 0
    modules = [each.module for each in context.learners.values()]
    joins = any(name in _JOINING for code in codes_of_loss(loss) for name, _ in attributes_read(code))
    has_buffers = any(True for module in modules for _ in module.buffers())
    if not joins or alone == 0 or context.world is not None or has_buffers or context.draws.are_used:
        return
    found = _alone(context, loss, part, counting, [alone, len(values) - alone])
    if found is None:
        return
    beside = values.detach()[:alone]
    apart = float((found - beside).abs().max())
    bound = _HALF if torch.is_autocast_enabled(context.device.type) else _EXACT
    if apart > bound * float(beside.abs().max()):
        names = " and ".join(map(repr, context.learners))
        warn_user(_SAID.format(names=names, alone=alone, count=len(values), apart=apart))


def _alone(
    context: LearnerContext, loss: Callable[[Any], Any], part: Any, counting: BatchCounting, sizes: list[int]
) -> Tensor | None:
    """Return the losses of the first examples by themselves; None where two tries differ, or fail."""
    streams = context.random.save()
    try:
        with torch.no_grad():
            few = next(iter(counting.cut(part, sizes)))
            tries = [_values(loss(few), sizes[0]) for _ in range(2)]
    except Exception:  # noqa: BLE001 - a loss that can't be asked so has its answer already
        return None
    finally:
        context.random.restore(streams)
    return tries[0] if torch.equal(*tries) else None


def _values(result: Any, count: int) -> Tensor:
    values = result if isinstance(result, Tensor) else getattr(result, "values", None)
    if not isinstance(values, Tensor) or values.shape != (count,):
        raise ValueError("no value for each example")
    return values


_SAID = (
    "The loss of {names} gives {alone} examples other values by themselves than in their part of {count} ({apart:.3g} apart): "
    "it takes a mean, a deviation or a rank over its batch, and a batch that is split has one for each part, so the update depends "
    "on micro_batch=. Compute that over the whole batch before the update, advantage = (a - a.mean()) / a.std(), and give it with "
    "the batch; or write net.update(loss, batch, decomposable=False), which is never split."
)

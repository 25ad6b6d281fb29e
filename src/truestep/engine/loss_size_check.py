# SPDX-License-Identifier: Apache-2.0
"""Losses whose size depends on how many examples or parts there are: told once, when a loss function is first used.

A loop that accumulates by hand divides each loss by the number of parts, and an update takes the mean over them itself; a sum
over the batch grows with it. Both are read off the operations that the loss ends in.
"""

from typing import Any

import torch
from torch import Tensor

from truestep.core.user_frames import warn_user
from truestep.engine.loss_results import LossOutput
from truestep.engine.precision import Precision
from truestep.engine.unowned_parameters import graph_nodes

_KEEP = ("MeanBackward", "ToCopyBackward", "ViewBackward", "UnsafeViewBackward", "SqueezeBackward")
"""Operations behind which a loss is still as many times too small."""
_SUMMED = 2  # torch's number of reduction="sum"
_MOST_PARTS = 1_000_000  # "a hundred thousandth" is a factor, no number of parts


def warn_of_wrong_reduction(names: str, part: LossOutput, num_parts: int) -> None:
    """Warn of a loss that is divided by the number of parts of its batch, or that is a sum over the batch."""
    if num_parts > 1 and loss_divisor(part.values) == num_parts:
        warn_user(_DIVIDED.format(names=names, parts=num_parts))
    if part.is_scalar and is_summed_loss(part.values, part.num_examples):
        warn_user(_SUM.format(names=names))


def warn_of_divided_losses(names: str, divisor: int, num_parts: int, *, scalars: bool) -> None:
    """Warn of a block of losses per example that were divided by their number, or of one loss alone that was divided."""
    if num_parts == 1:
        call = "loss(part), weight=len(part)" if scalars else "loss(part)"
        warn_user(_ALONE.format(names=names, parts=divisor, call=call))
    elif divisor == num_parts and not scalars:
        warn_user(_DIVIDED.format(names=names, parts=num_parts))


def warn_of_autocast(names: str, values: Tensor) -> None:
    """Warn of torch.autocast around an update, which decides its precision in the run's stead."""
    if torch.is_autocast_enabled(device := values.device.type):
        kind = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        mode = "fp16-mixed" if kind == "float16" else "bf16-mixed"
        warn_user(_AUTOCAST.format(names=names, kind=kind, mode=mode))


def warn_of_unscaled_float16(names: str, values: Tensor, precision: Precision) -> None:
    """Warn of a loss that is computed in float16, at least in part, where nothing scales it, unless its precision is float16."""
    if precision.loss_scaling or precision.autocast is torch.float16:
        return
    for node in graph_nodes(values):
        if any(each.dtype == torch.float16 for each in node._input_metadata):
            warn_user(_HALF.format(names=names))
            return


def loss_divisor(values: Tensor) -> int:
    """Return the whole number above one by which a loss was divided as a whole; 0 where it was not.

    The mean of two losses, (a + b) / 2, and half a square are what they look like, and divided by no number of parts.
    """
    node: Any = values.grad_fn
    while node is not None and node.name().startswith(_KEEP):
        node = node.next_functions[0][0]
    if node is None or node.name() not in ("DivBackward0", "MulBackward0"):
        return 0
    number, divided = node._saved_other, node.next_functions[0][0]
    if number is None or divided is None or number.ndim or not number.is_cpu or number.requires_grad:
        return 0
    divisor = float(number) if node.name() == "DivBackward0" else 1 / float(number or 1)
    whole = round(divisor) if 1.5 < divisor < _MOST_PARTS else 0
    if abs(divisor - whole) > 1e-6 or (whole == 2 and divided.name().startswith(("Add", "Pow"))):
        return 0
    return 0 if divided.name().startswith("Sum") else whole


def is_summed_loss(values: Tensor, num_examples: int | None) -> bool:
    """Whether a scalar loss is a sum over the examples of its batch."""
    node: Any = values.grad_fn
    while node is not None and node.name().startswith("ToCopyBackward"):
        node = node.next_functions[0][0]
    if node is None:
        return False
    if node.name() == "SumBackward0":
        shape = node._saved_self_sym_sizes
        return num_examples is not None and num_examples > 1 and shape[:1] == (num_examples,)
    nodes = [node, *(each for each, _ in node.next_functions)] if node.name() == "AddBackward0" else [node]
    return any(getattr(each, "_saved_reduction", None) == _SUMMED for each in nodes)


_DIVIDED = (
    "The loss of {names} is divided by {parts}, and it is computed in {parts} parts: an update takes the mean over all examples of "
    "all parts already, so its gradient is {parts} times too small. Leave the division out. (A factor of the loss's own may stay: "
    "this is said once.)"
)
_ALONE = (
    "The loss of {names} is divided by {parts}, and the block makes its update of this one loss: the gradient is {parts} times too "
    "small, and nothing is accumulated. Leave the division out, with net.update(loss, batch), or have the block around all parts: "
    "with net.accumulating() as update: for part in parts: update.backward({call}). To save memory make the batch {parts} "
    "times as large, and give micro_batch= the size that fits."
)
_SUM = (
    'The loss of {names} is a sum over its batch (reduction="sum", or .sum()): its gradient grows with the batch size, a shorter '
    'last batch counts less, and it can\'t be split. Return one loss per example (reduction="none"), of which the update takes '
    "the mean; the learning rate was chosen for the sum, so it is as many times too small then as a batch has examples."
)
_AUTOCAST = (
    "The update of {names} is made within torch.autocast ({kind}), which changes its precision, and the run knows nothing of it: "
    'checkpoints and the report call it full precision. Leave torch.autocast out and write ts.Run(directory, precision="{mode}").'
)
_HALF = (
    "The loss of {names} is computed in float16 at least in part (torch.autocast or .half() within it), and its run scales no "
    "loss: gradients below 6e-8 become 0 on their way through it, and nothing tells. Leave that out and write ts.Run(directory, "
    'precision="fp16-mixed"), which scales the loss, or precision="bf16-mixed", which needs no scale.'
)

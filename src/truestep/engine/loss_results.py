# SPDX-License-Identifier: Apache-2.0
"""What a loss function may return, and what is made of it.

A loss function returns one value per example, or `weighted(values, weights, **metrics)`. A scalar is
accepted where a batch is not split.
"""

import difflib
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truestep.core.errors import LossError
from truestep.core.guidance import option_by_other_name
from truestep.core.text_formatting import a_type
from truestep.engine.loss_extra_outputs import check_loss_outputs

# what a run writes under its own names
RESERVED = ("loss", "learning_rate", "gradient_norm", "updates_skipped")

_NONE: dict[str, Tensor] = {}  # never changed
MOST_NODES = 64
"""Operations of a graph that are looked at, where it is asked what was broadcast."""


class Weighted(NamedTuple):
    """Loss values of any shape, their weights (None: all one), named values of the same shape, or scalars, and outputs."""

    values: Tensor
    weights: Tensor | None
    metrics: dict[str, Tensor]
    outputs: dict[str, Tensor] = _NONE


def _unreduced_loss_hint(values: Tensor) -> str:
    told = ': of a loss that is a mean already, ask for one value per example (reduction="none")'
    return "" if values.ndim else told


def weighted(
    values: Tensor,
    weights: Tensor | None = None,
    *,
    outputs: Mapping[str, Tensor] | None = None,
    **metrics: Tensor,
) -> Weighted:
    """Return loss values with weights, and named values that are averaged with the same weights and logged.

    Args:
        values: losses of any shape, for example (batch, tokens); or the weighted mean of them, a scalar.
        weights: of the same shape (the sum of weights for a scalar), none negative, without a gradient; zeros
            mask. The update is the gradient of Σ weights·values / Σ weights over the whole batch, however it is split.
        outputs: named tensors to hand out of the loss, with the batch's examples along the dimension that the batch has
            them along: `update.outputs["hidden"]` holds the whole batch's, detached.
        metrics: named tensors of the same shape, or scalars; they need no gradient.
    """
    if not isinstance(values, Tensor):
        raise LossError(_NO_TENSOR.format(given=type(values).__name__))
    if weights is not None and not isinstance(weights, Tensor):
        raise LossError(
            f"ts.weighted was given {a_type(weights)} as weights; give a tensor of the losses' shape "
            f"{tuple(values.shape)}, on their device: torch.as_tensor(weights, device=values.device)."
        )
    if weights is not None and weights.shape != values.shape:
        raise LossError(
            f"The losses have shape {tuple(values.shape)} and their weights {tuple(weights.shape)}. They would "
            f"broadcast and count examples twice; give one weight for each value, of the same shape{_unreduced_loss_hint(values)}."
        )
    # they go into the backward's seed, from where no gradient comes back
    if weights is not None and weights.requires_grad:
        is_exchanged = not values.requires_grad and torch.is_grad_enabled()
        raise LossError(_EXCHANGED if is_exchanged else _LEARNED_WEIGHTS)
    if metrics:
        _check_metrics(metrics, values.shape)
    return Weighted(values, weights, metrics, check_loss_outputs(outputs) if outputs else _NONE)


_NO_TENSOR = (
    "ts.weighted needs a tensor of losses, got {given}. Give one value for each example, as F.cross_entropy(outputs, labels, "
    'reduction="none") does; torch.stack(losses) makes one tensor of a list of numbers with their graphs.'
)
_EXCHANGED = (
    "ts.weighted was given values without a gradient and weights with one: the two stand in each other's place. The losses come "
    "first, and how much each counts behind them: ts.weighted(losses, weights)."
)
_LEARNED_WEIGHTS = (
    "The weights of ts.weighted need a gradient, and none would reach them: they say how much a value counts. Detach them if they "
    "are meant so: ts.weighted(values, weights.detach()). Weights that are learned belong to the values: ts.weighted(values * "
    "weights)."
)


def _check_metrics(metrics: Mapping[str, Any], shape: torch.Size) -> None:
    if not torch.compiler.is_compiling():
        for name in metrics:
            if option := _intended_option(name):
                raise LossError(
                    f"ts.weighted has no option {name!r}, and would log it as a metric, without effect on the loss. Write "
                    f"{option}=; a metric needs another name."
                )
    for name in RESERVED:
        if name in metrics:
            raise LossError(
                f"The name {name!r} is taken: the run logs its own value by it. Call this metric something else."
            )
    for name, metric in metrics.items():
        if not isinstance(metric, Tensor) or (metric.ndim and metric.shape != shape):
            given = tuple(metric.shape) if isinstance(metric, Tensor) else type(metric).__name__
            raise LossError(
                f"The metric {name!r} must be a tensor of the losses' shape {tuple(shape)}, or a scalar tensor; got {given}. It is "
                "averaged with the losses' weights, so each value needs its own: give the values of the examples as they are, "
                "without .item()."
            )


@functools.cache
def _intended_option(name: str) -> str | None:
    """Return the option of `ts.weighted` that a metric's name was meant for; None where it is a metric."""
    options = ["weights", "outputs"]
    # `weight=` would be logged as a metric, and the loss would go on unweighted
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.8)
    return near[0] if near else option_by_other_name(name, options)


def negative_weights_error() -> LossError:
    """Return the error for weights below zero."""
    return LossError(
        "ts.weighted was given negative weights: a mean divided by their sum says nothing, and may divide by nearly zero. Weights "
        "say how much a value counts; a sign belongs to the value: ts.weighted(sign * values, weights)."
    )


def nonzero_loss_weight(weight: Tensor) -> Tensor:
    """Keep a sum of weights from dividing by zero: with no weight there is no gradient either."""
    return torch.where(weight == 0, torch.ones_like(weight), weight)


class LossOutput(NamedTuple):
    """What one call of the loss function gave: what the backward starts from, and what is logged.

    Made by `tuple.__new__` where each update makes one: a named tuple's own constructor is a Python function.
    """

    values: Tensor
    weights: Tensor | None  # None: every value counts one
    metrics: dict[str, Tensor]
    is_scalar: bool
    outputs: dict[str, Tensor] = _NONE
    num_examples: int | None = None

    @property
    def num_values(self) -> int:
        """How many loss values there are; a scalar is one."""
        return self.values.numel()

    @property
    def mean(self) -> Tensor:
        """The weighted mean of the values, detached; 0 where all weights are zero."""
        values = self.values.detach()
        if self.weights is None:
            return values.mean()
        return (values * self.weights).sum() / nonzero_loss_weight(self.weights.sum())


def read_loss(
    result: Any, *, num_examples: int | None, whole: bool, may_be_empty: bool = False
) -> LossOutput:
    """Check what a loss function returned and bring it into one form.

    Args:
        result: what the loss function returned.
        num_examples: examples of the (micro-)batch, None where they can't be counted.
        whole: whether the batch is in one piece, so that a scalar will do.
        may_be_empty: whether other processes may have all of the examples.
    """
    is_usual = num_examples and type(result) is Tensor and result.shape == (num_examples,)
    if is_usual and result.dtype is torch.float32 and result.requires_grad:  # nothing is left to check
        return tuple.__new__(LossOutput, (result, None, _NONE, False, _NONE, num_examples))
    values, weights, metrics, outputs = result if isinstance(result, Weighted) else Weighted(result, None, {})
    if not isinstance(values, Tensor):
        raise LossError(
            f"The loss function returned {_describe_returned_value(values)}. Return one loss per example, for example "
            'F.cross_entropy(net(images), labels, reduction="none"), or ts.weighted(values, weights). What is to be logged beside '
            "it goes with it by name: ts.weighted(values, accuracy=correct)."
        )
    _check_values(values, may_be_empty)
    # a scalar with its weight says what it is the mean of, so that parts of it can be put together
    is_scalar = values.ndim == 0 and weights is None
    if is_scalar and not whole:
        raise LossError(
            "The loss function returned a scalar, and this batch is split (into micro-batches, or among processes). A mean over a "
            "part is not a part of the mean, so the update would depend on the split. Return one loss per example "
            '(reduction="none"); on one process decomposable=False forbids splitting.'
        )
    if not is_scalar and not isinstance(result, Weighted):
        _check_shape(values, num_examples)
    # a mean of many half-precision values is summed in float32, as torch's own losses are under autocast
    values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    weights = None if weights is None else weights.to(values.dtype)
    return LossOutput(values, weights, metrics, is_scalar, outputs, num_examples)


def _describe_returned_value(values: object) -> str:
    if values is None:
        return (
            "NoneType, not a tensor: its `return` is missing, or what stands there is None, as the .loss of a transformers model's "
            "output is where the batch holds no `labels`"
        )
    if hasattr(values, "logits"):
        return (
            f"{type(values).__name__}, the whole output of a model and not a tensor: its predictions are its .logits, as in "
            'F.cross_entropy(net(**inputs).logits, labels, reduction="none")'
        )
    if isinstance(values, int | float):
        return f"{type(values).__name__}, not a tensor, and a plain number has no gradient: leave out .item() or float(...)"
    return f"{type(values).__name__}, not a tensor"


def _check_values(values: Tensor, may_be_empty: bool) -> None:
    # asked first: without gradients every loss lacks one, and the cause is not the loss
    if not torch.is_grad_enabled():
        raise LossError(
            "An update was asked for where gradients are switched off, so there is nothing to step by: inside net.evaluate(...), "
            "which measures and trains nothing, or under torch.no_grad(). Write net.update(loss, batch) in the loop itself."
        )
    if not values.requires_grad:
        raise LossError(
            "The loss has no gradient: nothing in it depends on parameters that are being trained. Was it computed under "
            "torch.no_grad(), detached (.detach(), .item(), .numpy()), or are all parameters frozen? In an update of one learner "
            "those of the others are: each learner needs a loss that depends on its own."
        )
    # a complex loss has a gradient, too, and no minimum
    if not values.is_floating_point():
        raise LossError(f"The loss is of type {values.dtype}; an update needs real floating-point values.")
    if values.numel() == 0 and not may_be_empty:
        raise LossError(
            f"The loss has shape {tuple(values.shape)}, so there is nothing to take a mean of. Is the batch empty, or did a mask "
            "select nothing? Mask with zeros: ts.weighted(values, weights); an update whose weights are all zero is skipped."
        )


def node_output_shape(node: Any) -> tuple[int, ...]:
    """Return the shape of what an operation gave."""
    given = getattr(node, "_input_metadata", None)
    return tuple(given[0].shape) if given else (-1,)


def pairwise_hint(values: Tensor) -> str:
    """Say how a table of all examples by all comes to be; nothing of another shape."""
    if values.ndim != 2 or len(values) != values.shape[1]:
        return ""
    count = len(values)
    met = _broadcast_shapes(values.grad_fn, count)
    column, row = f"of shape ({count}, 1)", f"of shape ({count},)"
    if met == {(count, 1)}:
        sides, mended = f"outputs {column} and targets {row}", "outputs.squeeze(1)"
    elif met == {(count,)}:  # the graph ends in these, so what they met has no gradient
        sides, mended = f"outputs {row} and targets {column}", "targets.squeeze(1)"
    else:
        sides = f"one side {column} and one {row}"
        mended = "outputs.squeeze(1) or targets.squeeze(1), whichever has the axis too many"
    return (
        f"Each example was compared with each other one: {sides} were broadcast. "
        f"Give both one shape before they are compared: {mended}."
    )


def _broadcast_shapes(node: Any, count: int) -> set[tuple[int, ...]]:
    """Return the shapes of what carries a gradient and became a table of `count` by `count`; nothing where there is no graph."""
    waiting, seen, met = [node], set[Any](), set[tuple[int, ...]]()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (shape := node_output_shape(node)) == (count, count):
            waiting += [each for each, _ in node.next_functions]
        elif shape:  # a number is broadcast by right
            met.add(shape)
    return met


def _check_shape(values: Tensor, num_examples: int | None) -> None:
    if values.ndim != 1 or num_examples not in (None, values.shape[0]):
        expected = "(batch,)" if num_examples is None else f"({num_examples},)"
        if num_examples not in (None, 1) and values.shape == (num_examples, num_examples):
            raise LossError(
                f"The loss has shape {tuple(values.shape)}, expected {expected}: one value per example. {pairwise_hint(values)}"
            )
        if values.shape == (1,):
            raise LossError(
                f"The loss has shape (1,), expected {expected}: one value per example. The batch counts as {num_examples}, "
                "by its tensors' first dimension. If it is one example, it lacks that dimension: each tensor of it is given as "
                "x[None]. If the loss is a mean over the batch, return the values themselves, or the mean without a dimension: "
                "values.mean()."
            )
        if values.ndim == 1:
            raise LossError(
                f"The loss has shape {tuple(values.shape)}, expected {expected}: one value per example. "
                f"{_other_row_count_hint(values, num_examples)}"
            )
        raise LossError(
            f"The loss has shape {tuple(values.shape)}, expected {expected}: one value per example. For one value per token "
            f"or pixel say how they count: ts.weighted(values, mask). {_per_example_reduction_hint(values)}"
        )


def _other_row_count_hint(values: Tensor, num_examples: int | None) -> str:
    """Say how a loss comes to have another number of rows than the batch."""
    if num_examples is not None and (shape := _shape_before_flattening(values, num_examples)):
        return (
            f"It was flattened, or places were picked, out of {shape}, which has the batch's {num_examples} rows. Leave the rows "
            "as they are, one value per token or pixel, and say how each counts, padding with 0: ts.weighted(losses, mask)."
        )
    if (
        num_examples is not None
        and len(values) < num_examples
        and (num_examples,) in _shapes_in_graph(values)
    ):
        return (
            f"It was picked out of {num_examples} values. Keep them all, and count those that you leave out as 0: "
            "ts.weighted(losses, kept). To choose among all rows, as for the largest losses, look at ts.gather(losses.detach()): "
            "each process has some rows alone, and so has each part where decomposable=False doesn't keep the batch whole."
        )
    return (
        "What is made beside a batch, as noise is, has as many rows as it: torch.randn(len(x), ...), since the last batch may be "
        "shorter. Where the values are of other rows than the batch's, say so: ts.weighted(values)."
    )


def _shape_before_flattening(values: Tensor, num_examples: int) -> tuple[int, ...]:
    """Return the shape with the batch's rows that a loss of more values was flattened from, or picked out of; () where none was."""
    for shape in _shapes_in_graph(values):
        if len(shape) > 1 and shape[0] == num_examples < len(values) <= math.prod(shape):
            return shape
    return ()


def _shapes_in_graph(values: Tensor) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of what a loss was made from, the nearest first."""
    waiting, seen = [values.grad_fn], set[Any]()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop(0)
        if node is None or node in seen or node.name().startswith(("Cat", "Stack", "Repeat")):
            continue
        seen.add(node)
        yield node_output_shape(node)
        waiting += [each for each, _ in node.next_functions]


def _per_example_reduction_hint(values: Tensor) -> str:
    """Say how the values of an example are made one: terms of a divergence or a cross entropy add up over the classes."""
    node: Any = values.grad_fn
    for _ in range(4):  # target * (target.log() - log_probabilities), in whatever way it is written
        if node is None or not node.name().startswith(("Sub", "Mul", "Neg")):
            break
        node = next((each for each, _ in reversed(node.next_functions) if each is not None), None)
    if node is not None and node.name().startswith("LogSoftmax"):
        return (
            "These are the terms of a divergence or a cross entropy, one for each class, which add up within an example: "
            "values.flatten(1).sum(1)."
        )
    return "To average within an example: values.flatten(1).mean(1)."

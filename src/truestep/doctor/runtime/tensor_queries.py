# SPDX-License-Identifier: Apache-2.0
"""Small questions about tensors and modules; torch is imported when one is asked, not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.core.state_trees import tree_leaves

if TYPE_CHECKING:
    from torch import Tensor, nn

# what passes a tensor's numbers on as they are
_PASSES = (
    "View",
    "ReshapeAlias",
    "UnsafeView",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "T",
    "Clone",
    "Permute",
    "ToCopy",
)

_WORDS = {"LogSoftmax": "log_softmax", "Addmm": "linear", "Mm": "linear"}  # where torch's own word is another


def is_readable_without_sync(tensor: Tensor) -> bool:
    """Tell whether a tensor's values can be read without waiting for a device."""
    return tensor.device.type == "cpu"


def is_plain_watched_tensor(tensor: Tensor) -> bool:
    """Tell a tensor of real numbers that lie side by side from sparse, nested, quantized, complex and meta ones."""
    from torch import strided

    other = tensor.is_nested or tensor.is_quantized or tensor.is_meta or tensor.is_complex()
    return tensor.layout is strided and not other


def watched_tensors(value: Any) -> Iterator[Tensor]:
    """Return the tensors in nested lists, tuples and dicts."""
    from torch import Tensor

    return (leaf for _, leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def first_watched_tensor(value: Any) -> Tensor | None:
    """Return the first tensor in nested lists, tuples and dicts."""
    return next(watched_tensors(value), None)


def watched_sensitive_layers(module: nn.Module, training: bool) -> list[str]:
    """Return the kinds of layers within a module that act differently in training, and are in that mode.

    Frozen norms in eval mode don't count: so they are meant to be.
    """
    return sorted({type(each).__name__ for each in sensitive_layers_of(module, training)})


def sensitive_layers_of(module: nn.Module, training: bool) -> list[nn.Module]:
    """Return those layers themselves."""
    return [
        each
        for each in module.modules()
        if each.training is training and _acts_differently_in_training(each, training)
    ]


def _acts_differently_in_training(module: nn.Module, training: bool) -> bool:
    from torch import nn

    if isinstance(module, nn.modules.batchnorm._NormBase):
        weight = module.weight
        return weight is None or weight.requires_grad or training
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p != 0
    return _has_inner_dropout(module)


def _has_inner_dropout(module: nn.Module) -> bool:
    """Tell of attention and recurrent layers, whose dropout is a number of theirs."""
    from torch import nn

    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    return isinstance(module, nn.MultiheadAttention) and module.dropout > 0


def watched_last_operation(tensor: Tensor) -> str:
    """Return the name of the operation that made a tensor last ("softmax"), past mere changes of shape."""
    node = tensor.grad_fn
    for _ in range(6):
        if node is None:
            return ""
        name = node.name().rstrip("0123456789").removesuffix("Backward")
        if name not in _PASSES:
            return _WORDS.get(name, name.lower())
        node = node.next_functions[0][0] if node.next_functions else None
    return ""

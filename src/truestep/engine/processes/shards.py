# SPDX-License-Identifier: Apache-2.0
"""Tensors of which each process has a part: the part that is here, the whole on rank 0, and parts of a whole."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_NOTHING = torch.empty(0)


def is_divided(tensor: Any) -> bool:
    """Whether a tensor is one of which each process has a part; torch's module for them is not imported for it."""
    return type(tensor) not in (Tensor, torch.nn.Parameter) and hasattr(tensor, "device_mesh")


def here(tensor: Tensor) -> Tensor:
    """Return the part that is here, which shares the memory; of any other tensor all of it."""
    return tensor._local_tensor if is_divided(tensor) else tensor  # type: ignore[attr-defined]


def whole(tree: Any, *, keep: bool) -> Any:
    """Return a tree with its divided tensors gathered, one after the other; all processes call it, one alone keeps them."""
    if isinstance(tree, Mapping):
        return {name: whole(member, keep=keep) for name, member in tree.items()}
    if isinstance(tree, list):
        return [whole(member, keep=keep) for member in tree]
    if isinstance(tree, tuple):
        return tuple(whole(member, keep=keep) for member in tree)
    if not is_divided(tree):
        return tree
    gathered = tree.detach().full_tensor()
    return gathered if keep else _NOTHING


def divided_as(value: Any, like: Any) -> Any:
    """Return this process's part of a whole tensor, divided as another of the same shape is; anything else as it is."""
    if (
        not is_divided(like)
        or not isinstance(value, Tensor)
        or is_divided(value)
        or value.shape != like.shape
    ):
        return value
    from torch.distributed.tensor import distribute_tensor

    # each process has the whole: nothing travels
    there = value.to(like.device)
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)


def divided_by_name(values: Mapping[str, Any], likes: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors by name, each divided as that of its name is."""
    return {name: divided_as(value, likes.get(name)) for name, value in values.items()}


def any_divided(tensors: Any, look: Callable[[Any], bool] = is_divided) -> bool:
    """Whether one of them is divided."""
    return any(map(look, tensors))

# SPDX-License-Identifier: Apache-2.0
"""Tensors of which each process has a part: the part that is here, the whole on rank 0, and parts of a whole."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from truestep.checkpoints.state_codec import SavedTensorPiece
from truestep.checkpoints.tensor_selection import RequestedTensorBox, TensorBox
from truestep.core.state_trees import map_tree_leaves

_NOTHING = torch.empty(0)


def is_divided_over_ranks(tensor: Any) -> bool:
    """Whether a tensor is one of which each process has a part; torch's module for them is not imported for it."""
    return type(tensor) not in (Tensor, torch.nn.Parameter) and hasattr(tensor, "device_mesh")


def local_part(tensor: Tensor) -> Tensor:
    """Return the part that is here, which shares the memory; of any other tensor all of it."""
    return tensor._local_tensor if is_divided_over_ranks(tensor) else tensor  # type: ignore[attr-defined]


def gather_over_ranks(tree: Any, *, keep: bool) -> Any:
    """Return a tree with its divided tensors gathered, one after the other; all processes call it, one alone keeps them."""

    def gather_leaf(leaf: Any) -> Any:
        if not is_divided_over_ranks(leaf):
            return leaf
        found = leaf.detach().full_tensor()
        return found if keep else _NOTHING

    return map_tree_leaves(gather_leaf, tree)


def pieces_on_this_rank(tree: Any, *, alone: bool) -> Any:
    """Return a tree with what this process has of its divided tensors; with `alone` all else is None."""
    return map_tree_leaves(
        lambda leaf: _saved_piece(leaf) if is_divided_over_ranks(leaf) else None if alone else leaf, tree
    )


def _saved_piece(tensor: Any) -> SavedTensorPiece:
    here = local_part(tensor).detach()
    return SavedTensorPiece(tensor=here, whole=tuple(tensor.shape), offset=_local_box(tensor).offset)


def _local_box(tensor: Any) -> TensorBox:
    """Return the box that is here; torch's own word for where it lies is that of its distributed checkpoints."""
    ((box),) = tensor.__create_chunk_list__()
    return TensorBox(tuple(box.offsets), tuple(local_part(tensor).shape))


def part_wanted_of_divided_tensor(like: Any) -> RequestedTensorBox:
    """Return the part of a tensor of the same shape that is this process's, where it is divided as `like` is."""

    def make_dtensor(values: Tensor) -> Any:
        from torch.distributed.tensor import DTensor

        there = values.to(like.device)
        place = like.device_mesh, like.placements
        return DTensor.from_local(there, *place, run_check=False, shape=like.shape, stride=like.stride())

    return RequestedTensorBox(_local_box(like), make_dtensor)


def divide_like(value: Any, like: Any) -> Any:
    """Return this process's part of a whole tensor, divided as another of the same shape is; anything else as it is."""
    is_whole = isinstance(value, Tensor) and not is_divided_over_ranks(value)
    if not is_divided_over_ranks(like) or not is_whole or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    # each process has the whole: nothing travels
    there = value.to(like.device)
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)


def divide_like_by_name(values: Mapping[str, Any], likes: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors by name, each divided as that of its name is."""
    return {name: divide_like(value, likes.get(name)) for name, value in values.items()}


def divide_loaded_weights(module: nn.Module) -> None:
    """Let a divided module take whole tensors by `load_state_dict`: each process has all of them, and keeps its part."""
    for each in module.modules():
        each.register_load_state_dict_pre_hook(_divide_loaded)  # type: ignore[no-untyped-call]


def _divide_loaded(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    # Torch copies a whole tensor into a weight, and not into a part of one.
    for name, weight in module.named_parameters(recurse=False):
        if prefix + name in state:
            state[prefix + name] = divide_like(state[prefix + name], weight)

# SPDX-License-Identifier: Apache-2.0
"""A learner's state where its weights are divided: which part of each tensor is this process's."""

from typing import Any

from truestep.checkpoints.state_codec import saved_tensor_name
from truestep.checkpoints.tensor_selection import PartOf, RequestedTensorBox
from truestep.engine.optimizers import optimizer_parameters
from truestep.engine.parts import LearnerParts
from truestep.engine.processes.shards import (
    divide_like,
    divide_like_by_name,
    is_divided_over_ranks,
    part_wanted_of_divided_tensor,
)


def divided_learner_state(learner: LearnerParts, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with this process's parts of what is whole in it."""
    optimizers = []
    for optimizer, saved in zip(learner.optimizers, state["optimizers"], strict=True):
        parameters = optimizer_parameters(optimizer)
        kept = {
            index: {name: divide_like(value, parameters[index]) for name, value in each.items()}
            for index, each in saved["state"].items()
        }
        optimizers.append(saved | {"state": kept})
    found = state | {
        "modules": divide_like_by_name(state["modules"], learner.module.state_dict()),
        "optimizers": optimizers,
    }
    if learner.average is not None:
        found["averages"] = divide_like_by_name(state["averages"], learner.average.state_dict())
    return found


def learner_parts_here(learner: LearnerParts, *under: str) -> PartOf:
    """Return what says which part of a checkpoint's tensor is this process's, of a learner whose state lies under these keys."""
    likes: dict[str, Any] = {}
    # of the state that an optimizer keeps for a parameter, under names of its own
    owners: dict[str, Any] = {}
    named = {"modules": learner.module.state_dict()}
    if learner.average is not None:
        named["averages"] = learner.average.state_dict()
    for part, tensors in named.items():
        likes |= {saved_tensor_name((*under, part, name)): tensor for name, tensor in tensors.items()}
    for number, optimizer in enumerate(learner.optimizers):
        for index, parameter in enumerate(optimizer_parameters(optimizer)):
            owners[saved_tensor_name((*under, "optimizers", number, "state", index))] = parameter

    def part_of(name: str, shape: tuple[int, ...]) -> RequestedTensorBox | None:
        like: Any = likes.get(name, owners.get(name.rpartition("/")[0]))
        is_part = is_divided_over_ranks(like) and like.shape == shape
        return part_wanted_of_divided_tensor(like) if is_part else None

    return part_of

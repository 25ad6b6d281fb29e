# SPDX-License-Identifier: Apache-2.0
"""A state put back into the objects it came from: into all of them, or into none."""

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from truestep.checkpoints.weights import load_matching_weights, read_weights
from truestep.core.errors import CheckpointError, names_hint
from truestep.core.state_trees import map_tree_leaves
from truestep.core.text_formatting import a_type


class Stateful(Protocol):
    """Whatever gives its state away and takes one back: a module, an optimizer, a scheduler, a scaler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take a state."""


def apply_state(state: Mapping[str, Any], objects: Mapping[str, Stateful]) -> None:
    """Load each object's part of a state, `state["net"]` into `objects["net"]`.

    If one of them fails, those already loaded get back what they had, and CheckpointError says which and
    why; of a module, with every missing, unexpected and reshaped name.
    """
    if not isinstance(state, Mapping):
        raise CheckpointError(f"The state is {a_type(state)}; give a dict with one state for each name.")
    if not isinstance(objects, Mapping):
        raise CheckpointError(
            f"The objects are {a_type(objects)}; give a dict by the names of the state: ts.apply_state(state, {{'net': net}}). One "
            "state for one module is module.load_state_dict(state)."
        )
    plain = [name for name, target in objects.items() if not hasattr(target, "load_state_dict")]
    if plain:
        raise CheckpointError(
            f"{plain[0]!r} is {a_type(objects[plain[0]])}, which has no load_state_dict; nothing was loaded. Take its "
            f"value out of the state: state[{plain[0]!r}]."
        )
    absent = [name for name in objects if name not in state]
    if absent:
        there = names_hint(absent[0], state)
        raise CheckpointError(f"The state has nothing for {absent[0]!r}; nothing was loaded. {there}")
    before: list[tuple[Stateful, Any]] = []
    for name, target in objects.items():
        # Noted before it is loaded: torch's own load_state_dict copies what fits before it raises.
        before.append((target, map_tree_leaves(_copy_to_host, target.state_dict())))
        try:
            _load_object_state(target, state[name])
        except Exception as error:
            # Backwards, so that an object under two names ends with what it had first.
            for other, old in reversed(before):
                other.load_state_dict(old)
            raise CheckpointError(
                f"The state of {name!r} could not be loaded; everything is as it was before.\n{error}"
            ) from error


def _load_object_state(target: Stateful, state: Any) -> None:
    if isinstance(target, nn.Module):
        load_matching_weights(target, read_weights(state), "the given dict")
    else:
        # torch's optimizers keep the tensors they are given, and the next step would write to the caller's state.
        target.load_state_dict(copy.deepcopy(state))


def _copy_to_host(leaf: Any) -> Any:
    """Return a copy on the host, so that undoing needs no memory on the device."""
    if isinstance(leaf, Tensor):
        with torch.no_grad():
            return leaf.detach().to("cpu", copy=True)
    return copy.deepcopy(leaf)

# SPDX-License-Identifier: Apache-2.0
"""Optimizers' states as checkpoints hold them: sets and bytes are written as lists and text, what can't be is refused early."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from truestep.core.errors import OptionError
from truestep.engine.processes.shards import is_divided_over_ranks

# the keys of what stands in the place of a set and of bytes
_SET, _BYTES = "set of", "bytes of"


def saved_optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return the optimizer's `state_dict` with sets and bytes in a form that checkpoints have."""
    state: dict[str, Any] = _map_tree(optimizer.state_dict(), _encode_value)
    return state


def loadable_optimizer_state(saved: dict[str, Any]) -> dict[str, Any]:
    """Return what `saved_optimizer_state` was given."""
    state: dict[str, Any] = _map_tree(saved, _decode_value)
    return state


def refuse_unsavable_states(optimizer: Optimizer) -> None:
    """Raise an OptionError where a state holds tensors that no checkpoint can; states are made in the first step."""
    from truestep.checkpoints.shared_memory_regions import why_tensor_cannot_be_saved

    for state in optimizer.state.values():
        for key, value in state.items() if isinstance(state, dict) else ():
            plain = type(value) in (Tensor, Parameter) or not isinstance(value, Tensor)
            if plain or is_divided_over_ranks(value):
                continue
            if problem := why_tensor_cannot_be_saved(value):
                name = type(optimizer).__name__
                raise OptionError(
                    f"{name} can't be used in a run: its {key!r} {problem.split(';')[0]}, which no checkpoint can hold, so "
                    f"that the run could not be saved. Use an optimizer whose state is plain tensors: torch.optim.AdamW for {name}."
                )


def _map_tree(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested dicts, lists and tuples with `change` made in each; the very object where nothing changes in it."""
    value = change(value)
    if type(value) is dict:
        made = {key: _map_tree(member, change) for key, member in value.items()}
        return made if any(made[key] is not member for key, member in value.items()) else value
    if type(value) in (list, tuple):
        parts = [_map_tree(member, change) for member in value]
        same = all(part is member for part, member in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    return value


def _encode_value(value: Any) -> Any:
    if type(value) is set:
        return {_SET: sorted(value)}
    return {_BYTES: value.hex()} if type(value) is bytes else value


def _decode_value(value: Any) -> Any:
    if type(value) is not dict or len(value) != 1:
        return value
    (key, held), *_ = value.items()
    return set(held) if key == _SET else bytes.fromhex(held) if key == _BYTES else value

# SPDX-License-Identifier: Apache-2.0
"""What may stand in `run.state`: whatever comes back from a checkpoint as it went in."""

from collections import Counter, OrderedDict
from typing import Any

from torch import Size, Tensor

from truestep.engine.checkpoints.regions import problem_of_tensor
from truestep.engine.checkpoints.tree import ADVICE, MAX_INTEGER_BITS
from truestep.errors import CheckpointError

MAX_DEPTH = 30

_ADVICE = ADVICE | {
    "defaultdict": "dict(value)",
    "deque": "list(value)",
    "complex": "[value.real, value.imag]",
}


def check_user_state(state: dict[str, Any]) -> None:
    """Raise a CheckpointError with the path of whatever a resumed run would not find as it was."""
    if type(state) not in (dict, OrderedDict):
        raise CheckpointError(
            f"run.state is a {type(state).__name__}; it is a dict, so write run.state['name'] = value and leave run.state itself."
        )
    _check(state, "run.state", 0)


def _check(value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise CheckpointError(
            f"{path[:60]}... is nested more than {MAX_DEPTH} deep, or holds itself, so it can't be saved. Keep what identifies "
            "it instead."
        )
    if isinstance(value, Tensor):
        if problem := problem_of_tensor(value):
            raise CheckpointError(f"The tensor {path} can't be saved: it {problem}.")
    elif type(value) in (dict, OrderedDict, Counter):
        for key, member in value.items():
            _check_key(key, path)
            _check(member, f"{path}[{key!r}]", depth + 1)
    elif type(value) in (list, tuple, Size):
        for index, member in enumerate(value):
            _check(member, f"{path}[{index}]", depth + 1)
    elif not _is_plain(value):
        raise CheckpointError(_refusal(value, path))


def _check_key(key: Any, path: str) -> None:
    parts = key if type(key) is tuple else (key,)
    if not all(part is None or type(part) in (bool, int, float, str) for part in parts):
        raise CheckpointError(
            f"The key {key!r} of {path} is a {type(key).__name__}, which would not come back equal; write {str(key)!r}."
        )


def _is_plain(value: Any) -> bool:
    if type(value) is int:
        return value.bit_length() <= MAX_INTEGER_BITS
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar
        value = value.item()
    return value is None or type(value) in (bool, int, float, str) or type(value).__base__ in (float, str)


def _refusal(value: Any, path: str) -> str:
    kind = type(value).__name__
    if type(value) is int:
        return f"The integer {path} has {value.bit_length()} bits; keep it as hex(value), a string."
    named = isinstance(value, tuple) and hasattr(value, "_asdict")
    advice = "value._asdict()" if named else _ADVICE.get(kind, "its state_dict(), or its parts")
    return (
        f"{path} is a {type(value).__module__}.{kind}. A resumed run finds tensors, None, bool, int, float and str in dicts, lists "
        f"and tuples, since loading anything else would mean running code from a file. Keep {advice} instead."
    )

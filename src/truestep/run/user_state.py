# SPDX-License-Identifier: Apache-2.0
"""What a user may keep with a run, in `run.state` or in a tracked object's state: it comes back as it went in, or is refused."""

import hashlib
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Size, Tensor

from truestep.checkpoints.shared_memory_regions import why_tensor_cannot_be_saved
from truestep.checkpoints.state_codec import ADVICE, MAX_INTEGER_BITS
from truestep.checkpoints.tensor_memory_view import tensor_memoryview
from truestep.core.errors import NO_GUESS, CheckpointError
from truestep.core.state_trees import tree_leaves
from truestep.core.tensor_bytes import tensor_version
from truestep.core.text_formatting import a_type
from truestep.core.weak import WeakIdentity

MAX_DEPTH = 30  # a checkpoint takes 100, of which a run and the objects that it tracks need some

_ADVICE = ADVICE | {
    "defaultdict": "dict(value)",
    "deque": "list(value)",
    "DataFrame": 'value.to_dict("list")',
    "Series": "value.to_list()",
    "complex": "[value.real, value.imag]",
    "Generator": "the generator itself: run.track(generator=value)",
}
_ARRAY = ("truestep", "array")  # the key that tells an array, spelt out, from a dict of the user's
_ROWS = ("truestep", "rows")  # and rows by columns


class RunStateValues(dict[str, Any]):
    """`run.state` as a run begins with it: a name that is asked for or set behind a point is answered with what to write."""

    __slots__ = ()

    def __missing__(self, name: Any) -> NoReturn:
        raise KeyError(
            f"run.state has no {name!r} yet: a run that begins has none of its names. Write run.state.setdefault({name!r}, value) "
            "before the loop"
        )

    def __setitem__(self, name: str, value: Any) -> None:
        # here, where it is set, and not at a save that comes an epoch later; what containers hold is looked at there
        if type(value) not in _CONTAINERS:
            check_run_state_value(value, f"run.state[{name!r}]")
        super().__setitem__(name, value)

    def setdefault(self, name: str, value: Any = None) -> Any:
        """Return what has a name, or the value, which has it from here on."""
        if name not in self:
            self[name] = value
        return self[name]

    def update(self, *given: Any, **named: Any) -> None:
        """Set several names."""
        for name, value in dict(*given, **named).items():
            self[name] = value

    def __getattr__(self, name: str) -> NoReturn:
        # a protocol that somebody asks for is not there, without more words
        said = name if name.startswith("__") else _STATE_IS_DICT.format(written=f"run.state[{name!r}]")
        raise AttributeError(said, name=name, obj=NO_GUESS)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            _STATE_IS_DICT.format(written=f"run.state[{name!r}] = value"), name=name, obj=NO_GUESS
        )


_CONTAINERS = (dict, OrderedDict, Counter, list, tuple, Size)

_STATE_IS_DICT = "run.state is a dict, which a checkpoint keeps with its names. Write {written}."


def check_run_state(state: dict[str, Any]) -> None:
    """Raise a CheckpointError with the path of whatever a resumed run would not find as it was."""
    check_run_state_kind(state)
    check_run_state_value(state, "run.state")


def check_run_state_kind(state: object) -> None:
    """Raise a CheckpointError unless it is a dict."""
    if type(state) not in (dict, OrderedDict, RunStateValues):
        raise CheckpointError(
            f"run.state is {a_type(state)} and not the dict it was, so write run.state['name'] = value and leave "
            "run.state itself."
        )


def check_run_state_value(value: Any, path: str, depth: int = 0) -> None:
    """Raise a CheckpointError with the path of whatever can't be saved without running code when it is loaded."""
    if depth > MAX_DEPTH:
        raise CheckpointError(
            f"{path[:60]}... is nested more than {MAX_DEPTH} deep, or holds itself, so it can't be saved. Keep what identifies "
            "it instead."
        )
    if isinstance(value, Tensor):
        _check_tensor_can_be_saved(value, path)
    elif type(value) is np.ndarray or isinstance(value, np.generic):
        _check_no_object_dtype(value, path)
    elif type(value) in (dict, OrderedDict, Counter, RunStateValues):
        for key, member in value.items():
            _check_key(key, path)
            check_run_state_value(member, f"{path}[{key!r}]", depth + 1)
    elif type(value) in (list, tuple) and _are_plain_rows(value):
        return
    elif type(value) in (list, tuple, Size):
        for index, member in enumerate(value):
            check_run_state_value(member, f"{path}[{index}]", depth + 1)
    elif not _is_plain_json_value(value):
        raise CheckpointError(_unsavable_value_message(value, path))


def _are_plain_rows(rows: Any) -> bool:
    """Tell rows of one kind that hold numbers and arrays alone, which are looked at by columns."""
    from truestep.run.uniform_rows import columns_of  # at the first save

    columns = columns_of(rows)
    return columns is not None and all(map(_is_plain_column, columns))


def _is_plain_column(column: Sequence[Any]) -> bool:
    kinds = set(map(type, column))
    if kinds == {np.ndarray}:
        return not any(each.dtype.hasobject for each in column)
    if kinds <= {bool, float, int, type(None)}:
        return all(map(_is_plain_json_value, column)) if int in kinds else True
    return all(issubclass(kind, np.number | np.bool_) for kind in kinds)


def _check_tensor_can_be_saved(tensor: Tensor, path: str) -> None:
    if problem := why_tensor_cannot_be_saved(tensor):
        raise CheckpointError(f"The tensor {path} can't be saved: it {problem}.")


def _check_no_object_dtype(array: Any, path: str) -> None:
    if array.dtype.hasobject:
        raise CheckpointError(
            f"The array {path} holds python objects (dtype object), which would have to be pickled. Keep numbers: an array of a "
            "numeric dtype, or a list."
        )


def _check_key(key: Any, path: str) -> None:
    parts = key if type(key) is tuple else (key,)
    if not all(part is None or type(part) in (bool, int, float, str) for part in parts):
        raise CheckpointError(
            f"The key {key!r} of {path} is {a_type(key)}, which would not come back equal; write {str(key)!r}."
        )


def _is_plain_json_value(value: Any) -> bool:
    if type(value) is int:
        return value.bit_length() <= MAX_INTEGER_BITS
    return value is None or type(value) in (bool, float, str) or type(value).__base__ in (float, str)


def _unsavable_value_message(value: Any, path: str) -> str:
    kind = type(value).__name__
    if type(value) is int:
        return f"The integer {path} has {value.bit_length()} bits; keep it as hex(value), a string."
    named = isinstance(value, tuple) and hasattr(value, "_asdict")
    own = "its state_dict(), or its parts" if hasattr(value, "state_dict") else "its parts"
    advice = "value._asdict()" if named else _ADVICE.get(kind, own)
    return (
        f"{path} is a {type(value).__module__}.{kind}. A resumed run finds tensors, arrays, None, bool, int, float and str in "
        f"dicts, lists and tuples, since loading anything else would mean running code from a file. Keep {advice} instead."
    )


def run_state_change_mark(value: Any, depth: int = 0) -> Any:
    """Return what is equal as long as nothing in `value` has changed, without a copy of its tensors and arrays."""
    if depth > MAX_DEPTH:
        return None  # refused when it is saved
    if isinstance(value, Tensor):
        return WeakIdentity(value), tensor_version(value)
    if isinstance(value, np.ndarray | np.generic):
        return (value.dtype.str, value.shape, zlib.crc32(value.tobytes()))
    if isinstance(value, dict):
        return [(key, run_state_change_mark(member, depth + 1)) for key, member in value.items()]
    if isinstance(value, list | tuple):
        return [run_state_change_mark(member, depth + 1) for member in value]
    return repr(value)  # NaN, too, is equal to itself so


def run_state_digest(tree: Any) -> str | None:
    """Return what tells an encoded value from every other; None where there is nothing in it."""
    if not tree:
        return None
    hashed = hashlib.sha256()
    for path, leaf in tree_leaves(tree):
        for part in _bytes_of_leaf(path, leaf):
            hashed.update(part)
    return hashed.hexdigest()


def run_state_digests(state: dict[str, Any]) -> dict[str, str]:
    """Return what tells each value of `run.state` from every other, by what one writes for it."""
    return {
        f"run.state[{name!r}]": run_state_digest([encode_run_state(value)]) or ""
        for name, value in state.items()
    }


def refuse_differing_run_states(ranks: list[dict[str, str]]) -> None:
    """Raise a CheckpointError where a rank has another `run.state` than rank 0, whose is saved."""
    for rank, mine in enumerate(ranks):
        for name in [*ranks[0], *mine]:
            if ranks[0].get(name) != mine.get(name):
                raise CheckpointError(
                    f"{name} is another value on rank {rank} than on rank 0. A checkpoint keeps rank 0's, for all, so a run that "
                    "goes on would be another training. What each process has of its own (a state of its rows) belongs into an "
                    "object with state_dict() and load_state_dict(): run.track(per_rank=True, name=object). Else set the same "
                    "value on all ranks."
                )


def _bytes_of_leaf(path: tuple[Any, ...], leaf: Any) -> Iterator[bytes | memoryview]:
    if isinstance(leaf, Tensor):
        yield repr((path, leaf.dtype, tuple(leaf.shape))).encode()
        yield tensor_memoryview(leaf.detach().resolve_conj().resolve_neg().cpu().contiguous())
    else:
        yield repr((path, leaf)).encode("utf-8", "backslashreplace")


def encode_run_state(value: Any) -> Any:
    """Return a checked value as what a checkpoint can hold: its arrays spelt out."""
    if isinstance(value, np.ndarray | np.generic):
        return _encode_array(value)
    if type(value) in (list, tuple):
        from truestep.run.uniform_rows import encode_rows

        if (rows := encode_rows(value, encode_run_state)) is not None:
            return {_ROWS: rows}
    return _map_container(value, encode_run_state) if isinstance(value, dict | list | tuple) else value


def decode_run_state(tree: Any, *, copy: bool = False) -> Any:
    """Undo `encode_run_state`; with `copy` no tensor shares memory with the tree."""
    if isinstance(tree, Tensor):
        return tree.clone() if copy else tree
    if isinstance(tree, dict) and _ARRAY in tree:
        return _decode_array(tree)
    if isinstance(tree, dict) and _ROWS in tree:
        from truestep.run.uniform_rows import decode_rows

        return decode_rows(tree[_ROWS], partial(decode_run_state, copy=copy))
    if isinstance(tree, dict | list | tuple):
        return _map_container(tree, partial(decode_run_state, copy=copy))
    return tree


def run_state_bytes(tree: Any) -> int:
    """Return the bytes of all tensors in an encoded value; what is JSON counts for its characters, roughly."""
    return sum(
        leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else len(str(leaf))
        for _, leaf in tree_leaves(tree)
    )


def _map_container(value: Any, transform: Any) -> Any:
    """Return a container like `value` with each member transformed."""
    if isinstance(value, dict):
        members = {key: transform(member) for key, member in value.items()}
        return type(value)(members) if type(value) in (Counter, OrderedDict) else members
    return type(value)(transform(member) for member in value)


def _encode_array(value: Any) -> dict[Any, Any]:
    """Spell an array out, its dtype exactly; what no tensor can hold (text, dates, records) goes in as bytes."""
    # a copy, also of what can't be written to or has negative strides, which torch.from_numpy refuses
    array = np.array(value, order="C")
    tensor = torch.empty(0, dtype=torch.uint8)
    if array.size:
        try:
            tensor = torch.from_numpy(array)
        except (TypeError, ValueError):  # of torch's: a dtype, or a byte order, that it lacks
            tensor = torch.frombuffer(bytearray(array.tobytes()), dtype=torch.uint8)
    return {
        _ARRAY: tensor,
        "dtype": np.lib.format.dtype_to_descr(array.dtype),
        "shape": list(array.shape),
        "is_scalar": isinstance(value, np.generic),
    }


def _decode_array(value: dict[Any, Any]) -> Any:
    dtype, shape = np.lib.format.descr_to_dtype(value["dtype"]), value["shape"]
    content = value[_ARRAY].cpu().numpy().tobytes()
    array = np.frombuffer(content, dtype).reshape(shape).copy() if content else np.empty(shape, dtype)
    return array[()] if value["is_scalar"] else array

# SPDX-License-Identifier: Apache-2.0
"""What a loader's data set holds, beside what it gives: rows that no index reads, and maps that are not inverse."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import IterableDataset

from truestep.doctor.experiments.budget import ExperimentBudget
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError, RelationNotApplicableError
from truestep.doctor.forks.fork import run_in_sealed_child

_MOST_ASKED = 48  # indexes
_MOST_CHANGED = 8
_LEAST_SHARE = 0.5  # of the indexes that give what another one gives
_LEAST_ROWS = 16
_LEAST_ALIKE = 0.8  # of the entries of two maps that lead back
_LEAST_ENTRIES = 3
_SHIFT = 3


class UnreadRows(NamedTuple):
    """Rows that a data set holds and gives at no index."""

    name: str  # where it holds them
    asked: int  # so many indexes
    different: int  # of what they gave
    length: int


class NonInverseMaps(NamedTuple):
    """Two maps of a data set, and a key that they do not lead back to."""

    one: str
    other: str
    key: Any
    value: Any
    back: Any


def find_unread_rows(data: Any, budget: ExperimentBudget) -> UnreadRows | None:
    """Return rows of a data set that no index reads, None where each index has its own.

    Raises:
        RelationNotApplicableError: it holds no rows of as many as it says that it has.
        ExperimentNotTriedError: nothing was learned.
    """
    length = _dataset_length(data)
    if length is None or length < _LEAST_ROWS or not any(True for _ in _tables_of_dataset(data, length)):
        raise RelationNotApplicableError("the data set holds no table with a row for each index")
    seconds = budget.seconds_left()
    with budget.child():
        told = run_in_sealed_child(lambda: _look_for_unread_rows(data, length), seconds=seconds, num_bytes=0)
    if told.failure is not None:
        raise ExperimentNotTriedError(told.failure)
    return UnreadRows(**told.value) if told.value else None


def _dataset_length(data: Any) -> int | None:
    try:
        return None if isinstance(data, IterableDataset) else len(data)
    except TypeError:
        return None


def _tables_of_dataset(data: Any, length: int) -> Iterator[tuple[str, Any]]:
    """Yield the tables that a data set holds, by name: as long as it says that it is."""
    for name, value in getattr(data, "__dict__", {}).items():
        parts: Iterable[tuple[Any, Any]] = enumerate(value) if isinstance(value, tuple) else ()
        if isinstance(value, Mapping):
            parts = value.items()
        for part, each in ((name, value), *((f"{name}[{key!r}]", each) for key, each in parts)):
            if (
                isinstance(each, (Tensor, np.ndarray))
                and each.ndim
                and len(each) == length
                and _is_real_numeric(each)
            ):
                yield part, each


def _is_real_numeric(table: Any) -> bool:
    return table.dtype.kind in "fiu" if isinstance(table, np.ndarray) else not table.is_complex()


def _look_for_unread_rows(data: Any, length: int) -> dict[str, Any]:
    asked = sorted({number * length // _MOST_ASKED for number in range(_MOST_ASKED)})
    given = {each: _digest(data[each]) for each in asked}
    if any(_digest(data[each]) != given[each] for each in asked[:_MOST_CHANGED]):
        return {}  # it draws
    first: dict[str, int] = {}
    again = [(first[one], each) for each, one in given.items() if first.setdefault(one, each) != each]
    if len(again) < _LEAST_SHARE * len(asked):
        return {}
    for name, table in _tables_of_dataset(data, length):
        others = [(one, each) for one, each in again if _digest(table[one]) != _digest(table[each])]
        if len(others) == len(again) and _reads_other_rows(
            data, table, [each for _, each in others][:_MOST_CHANGED]
        ):
            return UnreadRows(name, len(asked), len(first), length)._asdict()
    return {}


def _reads_other_rows(data: Any, table: Any, indexes: Sequence[int]) -> bool:
    """Tell whether the table changes what an index gives, and the rows of indexes that give what others do change nothing."""
    if not any(_has_effect_on_item(data, table, each, slice(None)) for each in indexes):
        return False
    return not any(_has_effect_on_item(data, table, each, slice(each, each + 1)) for each in indexes)


def _has_effect_on_item(data: Any, table: Any, index: int, rows: slice) -> bool:
    before, held = _digest(data[index]), table[rows] + 0  # a copy of either kind
    table[rows] = held + _SHIFT
    after = _digest(data[index])
    table[rows] = held
    return after != before


def _digest(value: Any) -> str:
    return sha256(pickle.dumps(_to_plain_values(value))).hexdigest()


def _to_plain_values(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return {key: _to_plain_values(each) for key, each in value.items()}
    return [_to_plain_values(each) for each in value] if isinstance(value, (list, tuple)) else value


def find_non_inverse_maps(data: Any) -> list[NonInverseMaps]:
    """Return pairs of maps of a data set that lead back from most of their keys, and from one to another key.

    Raises:
        RelationNotApplicableError: it holds no two such maps.
    """
    held = {
        name: known
        for name, value in _dataset_attributes(data)
        if (known := _as_vocabulary_map(value)) is not None
    }
    pairs = [
        (one, other)
        for one, words in held.items()
        for other, numbers in held.items()
        if one != other and _are_mostly_inverse(words, numbers)
    ]
    if not pairs:
        raise RelationNotApplicableError(
            "the data set holds no two maps of which one leads back from the other"
        )
    found = {}
    for one, other in pairs:
        words, numbers = held[one], held[other]
        for key, value in words.items():
            # a word that the other map lacks is another spelling of what it has
            is_spelling = isinstance(key, str) and key not in numbers.values()
            leads_astray = value in numbers and numbers[value] != key and not is_spelling
            if leads_astray and frozenset((one, other)) not in found:
                found[frozenset((one, other))] = NonInverseMaps(one, other, key, value, numbers[value])
    return list(found.values())


def _dataset_attributes(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a data set, and of one that it wraps."""
    for each in (data, getattr(data, "dataset", None)):
        yield from getattr(each, "__dict__", {}).items()


def _as_vocabulary_map(value: Any) -> dict[Any, Any] | None:
    """Return a map of words to numbers, or of numbers to words; a list of words is one, and keys may be numbers as texts."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping) or len(value) < _LEAST_ENTRIES:
        return None
    if all(isinstance(each, str) for each in value.values()):
        keys = [
            each if isinstance(each, int) else int(each) if str(each).isdigit() else None for each in value
        ]
        return None if None in keys else dict(zip(keys, value.values(), strict=True))
    are_words = all(isinstance(each, str) for each in value)
    return dict(value) if are_words and all(type(each) is int for each in value.values()) else None


def _are_mostly_inverse(words: Mapping[Any, Any], numbers: Mapping[Any, Any]) -> bool:
    if type(next(iter(words))) is type(next(iter(numbers))):
        return False
    back = sum(bool(numbers.get(value) == key) for key, value in words.items())
    return back >= _LEAST_ALIKE * len(words)

# SPDX-License-Identifier: Apache-2.0
"""Telling apart what can be given as data, and refusing what only looks like data."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from truestep.core.errors import DataError
from truestep.core.text_formatting import a_type


def is_map_style_data(data: Any) -> bool:
    """Return whether samples of `data` can be asked for by number, whatever its class is derived from."""
    # torch's Dataset itself has a __getitem__, which only raises
    is_own = getattr(type(data), "__getitem__", None) is not Dataset.__getitem__
    return is_own and hasattr(data, "__getitem__") and _length_or_none(data) is not None


def check_iterable_order(data: Any, *, is_shuffled: bool) -> None:
    """Raise a `DataError` where samples that an iterable data set would shuffle would come unshuffled by number."""
    if isinstance(data, IterableDataset) and not is_shuffled and getattr(data, "shuffle", None) is True:
        raise DataError(
            f"this {type(data).__name__} was made with shuffle=True, which is the order of its own loop. Its samples are asked for "
            "by number here, so that a run can go on anywhere, and would come unshuffled. Write run.data(data, ..., shuffle=True)."
        )


def check_rank_dependent_length(data: Any, num_ranks: int) -> None:
    """Raise a `DataError` where the length of an iterable data set is that of one rank, and how many there are is not known."""
    if not isinstance(data, IterableDataset) or num_ranks == 1:
        return
    kind, size = type(data).__name__, _length_or_none(data) or 0
    if _has_sample(data, size):
        raise DataError(
            f"len() of this {kind} is {size:,}, and it has a sample of that number, too: on several ranks it counts one "
            "rank's part, so the others would never come. Give the whole by number:\n"
            "    class Whole(torch.utils.data.Dataset):\n"
            "        def __len__(self): return data.size  # of all ranks\n"
            "        def __getitem__(self, index): return data[index]\n"
            "    train = run.data(Whole(), batch_size=64, shuffle=True)"
        )


def _has_sample(data: Any, number: int) -> bool:
    try:
        data[number]
    except Exception:  # noqa: BLE001 -- however it says that there is none
        return False
    return True


def _length_or_none(data: Any) -> int | None:
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None


def _looks_like_columns(data: list[Any]) -> bool:
    """Return whether a list is short and holds arrays that agree in length and differ in shape."""
    if not 2 <= len(data) <= 8 or not all(isinstance(part, (torch.Tensor, np.ndarray)) for part in data):
        return False
    lengths, shapes = {part.shape[:1] for part in data}, {tuple(part.shape) for part in data}
    return len(lengths) == 1 and len(shapes) > 1 and all(length and length[0] > 1 for length in lengths)


def check_data_kind(data: Any) -> None:
    """Raise a `DataError` that says what to write when `data` is not data."""
    reason = _columns_in_list_message(data) or _unloadable_reason(data)
    if reason:
        raise DataError(reason)


def _columns_in_list_message(data: Any) -> str | None:
    if type(data) is not list or not _looks_like_columns(data):
        return None
    shapes = ", ".join(str(tuple(part.shape)) for part in data)
    return (
        f"data is a list of arrays of shapes {shapes}. A list holds samples, so these would be "
        f"{len(data)} samples of different shapes; columns stand in a tuple. Write (images, labels) "
        "instead of [images, labels]."
    )


def _unloadable_reason(data: Any) -> str | None:
    """Return why samples of `data` can be had neither by number nor one after the other."""
    is_function = callable(data) and not isinstance(data, Dataset)
    if is_map_style_data(data) or hasattr(data, "__iter__") or is_function:
        return None
    if isinstance(data, Dataset):
        return (
            f"{type(data).__name__} has __getitem__ but no __len__, so nobody knows how many samples make an "
            "epoch. Add __len__, or make it an IterableDataset with __iter__."
        )
    if callable(getattr(data, "sample", None)):
        return (
            f"data is {a_type(data)}, which gives batches by its own sample(): it has no order that a run could keep, and needs no "
            "run.data. Write for step in run.steps(10_000): net.update(loss, buffer.sample(32)), and run.track(buffer=buffer), "
            "which keeps what it holds."
        )
    return (
        f"data is {a_type(data)}, which is none of: tensors or arrays (one, or a tuple or dict of "
        "them), a data set with __len__ and __getitem__, an iterable or a function that makes one, a "
        "DataLoader."
    )

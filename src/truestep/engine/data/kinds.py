# SPDX-License-Identifier: Apache-2.0
"""Telling apart what can be given as data, and refusing what only looks like data."""

from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from truestep.core.errors import DataError
from truestep.core.wording import a_type


def is_map_style_data(data: Any) -> bool:
    """Return whether samples of `data` can be asked for by number."""
    return not isinstance(data, IterableDataset) and hasattr(data, "__getitem__") and _has_length(data)


def _has_length(data: Any) -> bool:
    try:
        len(data)
    except (TypeError, NotImplementedError):
        return False
    return True


def _looks_like_columns(data: list[Any]) -> bool:
    """Return whether a list is short and holds arrays that agree in length and differ in shape."""
    if not 2 <= len(data) <= 8 or not all(isinstance(part, (torch.Tensor, np.ndarray)) for part in data):
        return False
    lengths, shapes = {part.shape[:1] for part in data}, {tuple(part.shape) for part in data}
    return len(lengths) == 1 and len(shapes) > 1 and all(length and length[0] > 1 for length in lengths)


def check_data_kind(data: Any) -> None:
    """Raise a `DataError` that says what to write when `data` is not data."""
    reason = _mistaken(data) or _unloadable(data)
    if reason:
        raise DataError(reason)


def _mistaken(data: Any) -> str | None:
    """Return what is wrong with something that looks like data."""
    if isinstance(data, (str, bytes, PurePath)):
        return (
            f"data is {data!r}, a name and not data. Open it first, as in "
            "torchvision.datasets.ImageFolder(path), numpy.load(path) or torch.load(path, weights_only=True)."
        )
    if hasattr(data, "iloc") or hasattr(data, "__dataframe__"):
        return (
            f"data is {a_type(data)}, whose [] asks for columns and not for samples. Write "
            "{'x': torch.tensor(frame[['a', 'b']].values), 'y': torch.tensor(frame['label'].values)}."
        )
    if type(data) is list and _looks_like_columns(data):
        shapes = ", ".join(str(tuple(part.shape)) for part in data)
        return (
            f"data is a list of arrays of shapes {shapes}. A list holds samples, so these would be "
            f"{len(data)} samples of different shapes; columns stand in a tuple. Write (images, labels) "
            "instead of [images, labels]."
        )
    if isinstance(data, type):
        return f"data is the class {data.__name__}. Make an object of it: {data.__name__}(...)."
    return None


def _unloadable(data: Any) -> str | None:
    """Return why samples of `data` can be had neither by number nor one after the other."""
    is_function = callable(data) and not isinstance(data, Dataset)
    if is_map_style_data(data) or hasattr(data, "__iter__") or is_function:
        return None
    if isinstance(data, Dataset):
        return (
            f"{type(data).__name__} has __getitem__ but no __len__, so nobody knows how many samples make an "
            "epoch. Add __len__, or make it an IterableDataset with __iter__."
        )
    return (
        f"data is {a_type(data)}, which is none of: tensors or arrays (one, or a tuple or dict of "
        "them), a data set with __len__ and __getitem__, an iterable or a function that makes one, a "
        "DataLoader."
    )

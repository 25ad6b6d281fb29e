# SPDX-License-Identifier: Apache-2.0
"""Telling apart what can be given as data, and refusing what only looks like data."""

from pathlib import PurePath
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from truestep.errors import DataError


def is_map_style(data: Any) -> bool:
    """Return whether samples of `data` can be asked for by number."""
    return not isinstance(data, IterableDataset) and hasattr(data, "__getitem__") and _has_length(data)


def _has_length(data: Any) -> bool:
    try:
        len(data)
    except (TypeError, NotImplementedError):
        return False
    return True


def check_kind(data: Any) -> None:
    """Raise a `DataError` that says what to write when `data` is not data."""
    if isinstance(data, (str, bytes, PurePath)):
        raise DataError(
            f"data is {data!r}, a name and not data. Open it first, as in "
            "torchvision.datasets.ImageFolder(path), numpy.load(path) or torch.load(path, "
            "weights_only=True)."
        )
    if hasattr(data, "iloc"):
        raise DataError(
            f"data is a {type(data).__name__}, whose [] asks for columns and not for samples. Write "
            "{'x': torch.tensor(frame[['a', 'b']].values), 'y': torch.tensor(frame['label'].values)}."
        )
    if isinstance(data, type):
        raise DataError(f"data is the class {data.__name__}. Make an object of it: {data.__name__}(...).")
    if callable(data) and not isinstance(data, Dataset):
        return
    if is_map_style(data) or hasattr(data, "__iter__"):
        return
    if isinstance(data, Dataset):
        raise DataError(
            f"{type(data).__name__} has __getitem__ but no __len__, so nobody knows how many samples make "
            "an epoch. Add __len__, or make it an IterableDataset with __iter__."
        )
    raise DataError(
        f"data is a {type(data).__name__}, which is none of: tensors or arrays (one, or a tuple or dict of "
        "them), a data set with __len__ and __getitem__, an iterable or a function that makes one, a "
        "DataLoader."
    )

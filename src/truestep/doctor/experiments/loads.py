# SPDX-License-Identifier: Apache-2.0
"""What a loader's iterator can be asked for again."""

from typing import Any

from torch.utils.data.dataloader import _DatasetKind


def loads_by_number(iterator: Any) -> bool:
    """Whether examples are loaded by number out of a data set that says how many it has; each `Dataset` has a `__getitem__`."""
    if iterator._dataset_kind != _DatasetKind.Map or not hasattr(iterator._dataset, "__getitem__"):
        return False
    try:
        return len(iterator._dataset) >= 0
    except (TypeError, NotImplementedError):
        return False

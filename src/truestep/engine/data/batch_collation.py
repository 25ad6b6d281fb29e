# SPDX-License-Identifier: Apache-2.0
"""One batch of the samples of a list: tensors and lists of numbers become rows, everything else stays structure."""

import copy
import dataclasses
import numbers
import reprlib
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from truestep.core.errors import DataError


def stack_samples(samples: list[Any]) -> Any:
    """Return one batch of `samples`: their tensors stacked, structure by structure, data classes and namespaces too.

    A list of numbers inside a sample is a row, as tokenizers and `datasets` give it; PyTorch's default collation
    makes a list of columns of it. Its tensor has the dtype that `torch.tensor` gives it.
    """
    if _is_number_row(samples[0]):
        raise _ambiguous_list_error(samples[0])
    return _collate_by_kind(samples, _KINDS)


def stack_as_torch(samples: list[Any]) -> Any:
    """Return one batch as PyTorch's default collation makes it, where a list of numbers gives columns; data classes, too."""
    return _collate_by_kind(samples, default_collate_fn_map)


def _collate_by_kind(samples: list[Any], kinds: dict[Any, Any]) -> Any:
    first = samples[0]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first) if field.init]
        stacked = {name: _collate_by_kind([getattr(s, name) for s in samples], kinds) for name in names}
        return dataclasses.replace(first, **stacked)
    if isinstance(first, SimpleNamespace):
        made = {name: _collate_by_kind([getattr(s, name) for s in samples], kinds) for name in vars(first)}
        return type(first)(**made)
    try:
        return collate(samples, collate_fn_map=kinds)
    except DataError:
        raise
    except (RuntimeError, TypeError, KeyError, ValueError) as error:
        error.add_note(
            "These samples can't be stacked into one batch: every sample must have the same structure and "
            "its tensors the same shapes and types. For ragged samples give collate=, a function of a list "
            "of samples: collate=list keeps them as they are."
        )
        raise


def _stack_lists(values: Any, *, collate_fn_map: Any) -> Any:
    """Stack lists: those of numbers as rows, others member by member."""
    first = values[0]
    if _is_number_row(first):
        return _rows_to_tensor(values)
    if any(len(each) != len(first) for each in values):
        raise RuntimeError("each element in list of batch should be of equal size")
    made = copy.copy(first)
    made[:] = [collate(each, collate_fn_map=collate_fn_map) for each in zip(*values, strict=True)]
    return made


_KINDS = {**default_collate_fn_map, list: _stack_lists}


def _is_number_row(value: Any) -> bool:
    """Return whether a value is a list of nothing but numbers, or of such lists."""
    if type(value) is not list or not value:
        return False
    return all(isinstance(each, numbers.Real) for each in value) or all(map(_is_number_row, value))


def _rows_to_tensor(values: Any) -> torch.Tensor:
    try:
        return torch.tensor(values)
    except (TypeError, ValueError) as error:
        lengths = sorted({len(each) for each in values if isinstance(each, list)})
        if len(lengths) < 2:
            raise
        raise DataError(
            f"Samples hold lists of numbers of other lengths, {lengths[0]} to {lengths[-1]}, as in {reprlib.repr(values[0])}: "
            "they make no batch of rows. Give collate=, a function of a list of samples that pads them (with transformers "
            "collate=DataCollatorWithPadding(tokenizer)), or cut and pad them before: tokenizer(..., padding='max_length', "
            "truncation=True)."
        ) from error


def _ambiguous_list_error(sample: Any) -> DataError:
    return DataError(
        f"A sample is the list {reprlib.repr(sample)}, which can be read as one row of numbers or as parts, such as an input "
        "and a label; PyTorch's DataLoader makes columns of it. Give torch.tensor(sample) for a row, tuple(sample) for parts."
    )

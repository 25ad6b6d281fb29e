# SPDX-License-Identifier: Apache-2.0
"""A DataLoader that is there already: its data set and options are taken over, its loading is not."""

import dataclasses
from typing import Any

import numpy as np
from torch.utils import data as loading

from truestep.core.errors import DataError, OptionError
from truestep.engine.data.kinds import is_map_style_data
from truestep.engine.data.options import DataOptions

_OURS = ("batch_size", "shuffle", "drop_last", "weights", "num_samples", "by_length", "collate")


def take_loader_apart(loader: loading.DataLoader[Any], options: DataOptions) -> tuple[Any, DataOptions]:
    """Return the loader's data set and the options that make the same batches."""
    _check_options(options)
    data: Any = loader.dataset
    chosen: dict[str, Any] = {}
    if is_map_style_data(data):
        data, chosen = _order(loader)
    custom = loader.collate_fn not in (loading.default_collate, loading.default_convert)
    if options.num_workers == "auto":
        chosen["num_workers"] = loader.num_workers
    context = loader.multiprocessing_context
    found = {
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "collate": loader.collate_fn if custom else None,
        "prefetch": loader.prefetch_factor or options.prefetch,
        "start_method": context.get_start_method() if context else options.start_method,
        "worker_init": loader.worker_init_fn or options.worker_init,
    }
    return data, dataclasses.replace(options, **{**found, **chosen})


def _check_options(options: DataOptions) -> None:
    default = DataOptions()
    given = [name for name in _OURS if getattr(options, name) is not getattr(default, name)]
    if given:
        raise OptionError(
            f"{', '.join(given)} given beside a DataLoader, which has its own. Give its data set instead: "
            f"run.data(loader.dataset, {given[0]}=...)."
        )


def _order(loader: loading.DataLoader[Any]) -> tuple[Any, dict[str, Any]]:
    """Return the data and the order options that the loader's samplers stand for."""
    batches = loader.batch_sampler
    if batches is None:
        raise _refusal(loader, "batch_size=None: its sampler makes the batches")
    # The exact type, here and below: a subclass may order otherwise.
    if type(batches) is not loading.BatchSampler:
        raise _refusal(loader, f"the batch sampler {type(batches).__name__}")
    data, order = _order_of_samples(loader, batches.sampler)
    return data, {**order, "batch_size": batches.batch_size, "drop_last": batches.drop_last}


def _order_of_samples(loader: loading.DataLoader[Any], sampler: Any) -> tuple[Any, dict[str, Any]]:
    data: Any = loader.dataset
    if type(sampler) is loading.SequentialSampler:
        return data, {"shuffle": False}
    if (
        type(sampler) is loading.RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(data)
    ):
        return data, {"shuffle": True}
    if type(sampler) is loading.SubsetRandomSampler:
        return loading.Subset(data, list(sampler.indices)), {"shuffle": True}
    if type(sampler) is loading.WeightedRandomSampler and sampler.replacement:
        return data, {"weights": np.asarray(sampler.weights), "num_samples": sampler.num_samples}
    raise _refusal(loader, f"the sampler {type(sampler).__name__}")


def _refusal(loader: loading.DataLoader[Any], what: str) -> DataError:
    return DataError(
        f"this DataLoader has {what}, whose order can't be entered in the middle of an epoch, so a resumed "
        f"run would see other samples. Give its {type(loader.dataset).__name__} itself, with shuffle=True, "
        "weights= or by_length=; processes share each batch by themselves, without a DistributedSampler."
    )

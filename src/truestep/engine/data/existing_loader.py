# SPDX-License-Identifier: Apache-2.0
"""A DataLoader that is there already: its data set and options are taken over, its loading is not."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils import data as loading

from truestep.core.errors import DataError, OptionError
from truestep.engine.data.batch_collation import stack_as_torch
from truestep.engine.data.data_kinds import is_map_style_data
from truestep.engine.data.options import DataOptions

_OURS = ("shuffle", "drop_last", "weights", "num_samples", "by_length", "collate")


class LoaderOptions(DataOptions):
    """Those of a DataLoader: what its default collation makes of a list of numbers stays columns, as its loop has them."""

    @property
    def stack(self) -> Callable[[list[Any]], Any]:
        """What makes a batch of a list of samples."""
        return stack_as_torch


def unpack_data_loader(
    loader: loading.DataLoader[Any], options: DataOptions, num_ranks: int
) -> tuple[Any, DataOptions]:
    """Return the loader's data set and the options that make the same batches, or batches of `batch_size` where that is said."""
    _check_loader_options(options)
    data: Any = loader.dataset
    if loader.batch_sampler is None and is_map_style_data(data):
        return _prebatched_reader(loader, options), options
    chosen: dict[str, Any] = {}
    if is_map_style_data(data):
        data, chosen = _loader_order_options(loader)
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
    own = {each.name: getattr(options, each.name) for each in dataclasses.fields(options)}
    made = LoaderOptions(**{**own, **found, **chosen})
    if options.batch_size is None:
        _refuse_ambiguous_batch_size(made.batch_size, num_ranks)
        return data, made
    _refuse_other_batch_size(made.batch_size, options)
    return data, dataclasses.replace(made, batch_size=options.batch_size)


def _check_loader_options(options: DataOptions) -> None:
    default = DataOptions()
    given = [name for name in _OURS if getattr(options, name) is not getattr(default, name)]
    if given:
        values = {name: getattr(options, name) for name in given}
        written = [
            f"{name}={value if isinstance(value, bool | int) else name}" for name, value in values.items()
        ]
        raise OptionError(
            f"{', '.join(given)} given beside a DataLoader, which has its own. Give its data set instead: "
            f"run.data(loader.dataset, {', '.join(written)})."
        )


def _prebatched_reader(loader: loading.DataLoader[Any], options: DataOptions) -> Callable[[], Iterator[Any]]:
    """Return a function that reads the batches which the loader's data set holds, one after another."""
    data: Any = loader.dataset
    if options.batch_size is not None:
        raise OptionError(
            f"batch_size={options.batch_size} beside a DataLoader with batch_size=None, whose items are whole batches. Leave "
            f"it out, or give samples: run.data(loader.dataset, batch_size={options.batch_size})."
        )
    if not _is_exact_type(loader.sampler, loading.SequentialSampler):
        raise _unsupported_loader_error(
            loader, f"batch_size=None and the sampler {type(loader.sampler).__name__}"
        )

    def read_batches() -> Iterator[Any]:
        return (loader.collate_fn(data[number]) for number in range(len(data)))

    return read_batches


def _refuse_ambiguous_batch_size(size: int | None, num_ranks: int) -> None:
    """Have several ranks say what the loader's number is: of each rank, as torch's loaders count, or of all together."""
    if size is not None and num_ranks > 1:
        raise OptionError(
            f"this DataLoader makes batches of {size}, and here are {num_ranks} ranks. In Truestep batch_size is the number of all "
            "ranks together, and with torch's DataLoader it is that of each, so the same line would train otherwise. Write\n"
            f"    run.data(loader, batch_size={num_ranks * size})  # {size} on each of {num_ranks} ranks, as under DDP\n"
            f"or  run.data(loader, batch_size={size})  # {size} of all ranks together, as in one process"
        )


def _refuse_other_batch_size(size: int | None, options: DataOptions) -> None:
    """Refuse a number that is not the loader's, on one rank or several: all of them together have as many batches of it."""
    if size and options.batch_size is not None and options.batch_size % size:
        raise OptionError(
            f"batch_size={options.batch_size} beside a DataLoader that makes batches of {size}: one of them would have no effect. "
            f"Write run.data(loader) for {size}, or run.data(loader.dataset, batch_size={options.batch_size}, shuffle=True)."
        )


def _loader_order_options(loader: loading.DataLoader[Any]) -> tuple[Any, dict[str, Any]]:
    """Return the data and the order options that the loader's samplers stand for."""
    batches: Any = loader.batch_sampler
    # The exact type, here and below: a subclass may order otherwise.
    if not _is_exact_type(batches, loading.BatchSampler):
        raise _unsupported_loader_error(loader, f"the batch sampler {type(batches).__name__}")
    data, order = _sampler_order_options(loader, batches.sampler)
    return data, {**order, "batch_size": batches.batch_size, "drop_last": batches.drop_last}


def _sampler_order_options(loader: loading.DataLoader[Any], sampler: Any) -> tuple[Any, dict[str, Any]]:
    data: Any = loader.dataset
    if _is_exact_type(sampler, loading.SequentialSampler):
        return data, {"shuffle": False}
    if isinstance(data, loading.IterableDataset):  # torch asks it for no numbers; its own loop may shuffle
        return data, {"shuffle": getattr(data, "shuffle", None) is True}
    if (
        _is_exact_type(sampler, loading.RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == len(data)
    ):
        return data, {"shuffle": True}
    if type(sampler) is loading.SubsetRandomSampler:
        return loading.Subset(data, list(sampler.indices)), {"shuffle": True}
    if type(sampler) is loading.WeightedRandomSampler and sampler.replacement:
        return data, {"weights": np.asarray(sampler.weights), "num_samples": sampler.num_samples}
    raise _unsupported_loader_error(loader, f"the sampler {type(sampler).__name__}")


def _is_exact_type(sampler: Any, kind: type) -> bool:
    """Whether it is of this class; torchdata has some of the same names, orders and attributes, which keep a state besides."""
    own = type(sampler)
    is_torchdatas = own.__module__.partition(".")[0] == "torchdata" and own.__name__ == kind.__name__
    return own is kind or (is_torchdatas and isinstance(sampler, loading.Sampler))


def _unsupported_loader_error(loader: loading.DataLoader[Any], what: str) -> DataError:
    return DataError(
        f"this DataLoader has {what}, whose order can't be entered in the middle of an epoch, so a resumed "
        f"run would see other samples. Give its {type(loader.dataset).__name__} itself, with shuffle=True, "
        "weights= or by_length=; processes share each batch by themselves, without a DistributedSampler."
    )

# SPDX-License-Identifier: Apache-2.0
"""What a loader's iterator can be asked for again."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data._utils.collate import default_collate
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter

from truestep.core.random_streams import preserve_host_rng, preserve_torch_rng
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.relations.examples import Examples, find_examples


def is_loaded_by_index(iterator: Any) -> bool:
    """Whether examples are loaded by number out of a data set that says how many it has; each `Dataset` has a `__getitem__`."""
    if iterator._dataset_kind != _DatasetKind.Map or not hasattr(iterator._dataset, "__getitem__"):
        return False
    try:
        return len(iterator._dataset) >= 0
    except (TypeError, NotImplementedError):
        return False


def has_uniform_batches(iterator: Any) -> bool:
    """Whether a loader cuts batches of one size out of such a data set, in an order that can be asked for again."""
    sampler = iterator._index_sampler
    return (
        is_loaded_by_index(iterator)
        and bool(getattr(sampler, "batch_size", None))
        and hasattr(sampler, "sampler")
    )


def load_batches(iterator: Any, cuts: Iterable[list[int]]) -> Iterator[Any]:
    """Load batches of these examples in this process, whatever workers there are."""
    create: Any = _DatasetKind.create_fetcher
    fetcher = create(iterator._dataset_kind, iterator._dataset, True, iterator._collate_fn, False)
    for rows in cuts:
        yield fetcher.fetch(rows)


def can_load_further(iterator: Any) -> bool:
    """Whether a child can have a further batch: workers answer their parent alone, but what they load may be loaded here."""
    return not isinstance(iterator, _MultiProcessingDataLoaderIter) or has_uniform_batches(iterator)


def load_further_batch(iterator: Any, take: Callable[[Any], Any]) -> Any:
    """Return, in a child, a further batch: where workers load, one that this process does, of examples drawn anew."""
    if not isinstance(iterator, _MultiProcessingDataLoaderIter):
        return take(iterator)
    with unseen(), preserve_torch_rng(), preserve_host_rng():
        sampler = iterator._index_sampler
        place = iterator._num_yielded % max(1, len(sampler))
        iterator._num_yielded += 1
        return next(load_batches(iterator, islice(iter(sampler), place, place + 1)))


def examples_handed_over(iterator: Any, batch: Any) -> Examples:
    """Return the examples of a batch that a loader hands over.

    Raises:
        UnclearExamplesError: it can't be told where they lie.
    """
    in_columns = getattr(iterator, "_collate_fn", None) is default_collate
    loaded = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
    return find_examples(batch, in_columns=in_columns, loaded=loaded if isinstance(loaded, int) else None)

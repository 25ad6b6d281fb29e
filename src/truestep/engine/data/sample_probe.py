# SPDX-License-Identifier: Apache-2.0
"""A look at a few samples before training: what they cost, and whether they can be drawn again."""

import hashlib
import time
from typing import Any, NamedTuple

import numpy as np
import torch

from truestep.core import nested_structures
from truestep.engine.data.columns import column_to_bytes
from truestep.engine.data.order import BatchRequest
from truestep.engine.data.permutation import Indices
from truestep.engine.data.sample_loading import SeededSamples

SAMPLES = 2  # drawn twice, after which as many others are timed


class SampleProbe(NamedTuple):
    """What was seen: the cost of a sample, its leaves, a hash (and one of the others), and where a second draw differed.

    `puts_back`: a sample draws from a generator and puts it back itself, so that nobody sees it move.
    """

    sample_seconds: float
    sample: list[str]
    digest: str
    others_digest: str
    differences: list[str]
    generators: list[str]
    puts_back: bool


class SampleProbing(torch.utils.data.Dataset[SampleProbe]):
    """Looks at the samples of a request, in whatever process asks for it; and at `others`, or at the request's last."""

    def __init__(self, samples: SeededSamples, others: Indices | None = None) -> None:
        self._samples, self._others = samples, others

    def __getitem__(self, request: BatchRequest) -> SampleProbe:
        with self._samples.preserve_generators():
            others = request.indices[-SAMPLES:] if self._others is None else self._others
            return _time_samples(self._samples, request, others)


def _time_samples(samples: SeededSamples, request: BatchRequest, indices: Indices) -> SampleProbe:
    few = request._replace(indices=request.indices[:SAMPLES])
    first = samples.load(few)  # with all generators set; also imports and opens what a first sample needs
    others = request._replace(indices=indices)
    begin = time.perf_counter()
    loaded = samples.load(others)
    seconds = (time.perf_counter() - begin) / len(others.indices)
    # with those alone set that were seen to move, and the others elsewhere
    samples.randomness.set_generators(
        samples.randomness.keys("elsewhere", request.epoch, request.position)[0]
    )
    again = samples.load(few)
    differences = _all_differences(few, first, again)
    puts_back = False
    if differences:
        samples.set_all_generators()
        differences = _all_differences(few, first, samples.load(few))
        puts_back = not differences
    return SampleProbe(
        sample_seconds=seconds,
        sample=[_describe_leaf(leaf) for _, leaf in nested_structures.batch_leaves_by_name(first[0])],
        digest=digest_samples(first),
        others_digest=digest_samples(loaded),
        differences=differences,
        generators=samples.generators(),
        puts_back=puts_back,
    )


def _all_differences(request: BatchRequest, first: list[Any], again: list[Any]) -> list[str]:
    names = [f"sample {index}" for index in request.indices.tolist()]
    return [found for drawn in zip(names, first, again, strict=True) for found in _differences(*drawn)]


def _differences(name: str, first: Any, again: Any) -> list[str]:
    """Return the names of the leaves that differ between two draws of one sample."""
    one, other = (
        dict(nested_structures.batch_leaves(first, name)),
        dict(nested_structures.batch_leaves(again, name)),
    )
    if one.keys() != other.keys():
        return [f"{name} (its structure)"]
    return [leaf for leaf in one if _leaf_bytes(one[leaf]) != _leaf_bytes(other[leaf])]


def digest_samples(samples: list[Any]) -> str:
    """Return a hash of what `samples` hold."""
    hashed = hashlib.blake2b(digest_size=16)
    for _, leaf in nested_structures.batch_leaves_by_name(samples):
        hashed.update(_leaf_bytes(leaf))
    return hashed.hexdigest()


def _leaf_bytes(leaf: Any) -> bytes:
    """Return what `leaf` holds; of a type that nobody here knows, only its name."""
    if isinstance(leaf, (torch.Tensor, np.ndarray)):
        return column_to_bytes(leaf)
    if isinstance(leaf, (str, bytes, int, float, complex, type(None), np.generic)):
        return repr(leaf).encode()
    return leaf.tobytes() if hasattr(leaf, "tobytes") else type(leaf).__qualname__.encode()


def _describe_leaf(leaf: Any) -> str:
    if isinstance(leaf, (torch.Tensor, np.ndarray)):
        return f"{leaf.dtype} {tuple(leaf.shape)}"
    return type(leaf).__qualname__

# SPDX-License-Identifier: Apache-2.0
"""A short digest of each batch that a stream gave, so that another stream can be told from the same one."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from truestep.core import nested_structures
from truestep.core.tensor_bytes import bytes_of_contiguous

# What is hashed of a batch costs less than a fiftieth of reading it (docs/log.md), so large rows are hashed in part.
BYTES_OF_BATCH, BYTES_OF_ROW = 2048, 16
MOST_ROWS = 2048
MEMBERS = 16  # of a list of samples, each of which is walked in Python


def digest_batch(batch: Any) -> str:
    """Return a hash of a batch; of a large one, of some elements of every row (of a very large one, of some rows).

    What lies on a device is known by its shape alone: to look at it would wait for the device.
    """
    hashed = hashlib.blake2b(digest_size=8)
    for leaf in _hashable_leaves(batch):
        for piece in _leaf_byte_pieces(leaf):
            hashed.update(piece)
    return hashed.hexdigest()


def chained_digest(before: str, digest: str) -> str:
    """Return the digest of a batch and of all those before it."""
    return hashlib.blake2b((before + digest).encode(), digest_size=8).hexdigest()


def _hashable_leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, list):
        if all(type(member) is str for member in batch):
            yield "\0".join(batch)
            return
        batch = [len(batch), *_evenly_spaced(batch, MEMBERS)]
    parts = nested_structures.batch_children_by_name(batch)
    if parts is None:
        yield batch
        return
    for _, part in parts:
        yield from _hashable_leaves(part)


def _evenly_spaced(values: Sequence[Any], most: int) -> Sequence[Any]:
    """Return at most `most` of the values, first and last among them."""
    if len(values) <= most:
        return values
    return [values[round(number * (len(values) - 1) / (most - 1))] for number in range(most)]


def _leaf_byte_pieces(leaf: Any) -> Iterator[bytes]:
    if isinstance(leaf, PackedSequence):
        leaf = leaf.data
    if isinstance(leaf, torch.Tensor):
        yield repr((leaf.dtype, *leaf.shape)).encode()
        if leaf.layout == torch.strided and leaf.is_cpu and leaf.numel():
            yield _sampled_array_bytes(_tensor_as_array(leaf))
    elif isinstance(leaf, np.ndarray):
        yield repr((leaf.dtype, *leaf.shape)).encode()
        if leaf.size:
            is_plain = leaf.dtype.kind not in "OMmV"
            yield _sampled_array_bytes(leaf) if is_plain else repr(leaf.tolist()).encode()
    elif isinstance(leaf, (str, bytes)):
        text = leaf if len(leaf) <= BYTES_OF_BATCH else leaf[:: len(leaf) // BYTES_OF_BATCH]
        yield b"%d " % len(leaf)
        yield text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    elif isinstance(leaf, (int, float, complex, type(None), np.generic)):
        yield repr(leaf).encode()
    else:
        yield type(leaf).__qualname__.encode()


def _tensor_as_array(leaf: torch.Tensor) -> "np.ndarray[Any, Any]":
    """Return a tensor's memory, its rows along the first dimension and each row in one piece where that takes no copy."""
    if leaf.ndim > 2 and not leaf.is_contiguous():  # channels last
        leaf = leaf.permute(0, *sorted(range(1, leaf.ndim), key=leaf.stride, reverse=True))
    leaf = leaf.detach().resolve_conj().resolve_neg()
    try:
        return leaf.numpy()
    except TypeError:  # numbers that NumPy lacks
        return bytes_of_contiguous(leaf.contiguous()).reshape(len(leaf) if leaf.ndim else 1, -1).numpy()


def _sampled_array_bytes(leaf: "np.ndarray[Any, Any]") -> bytes:
    if leaf.nbytes <= BYTES_OF_BATCH:
        return leaf.tobytes()
    rows = leaf[:: 1 + len(leaf) // MOST_ROWS].reshape(-1, leaf[:1].size)
    return rows[:, :: _element_stride(len(rows), rows.shape[1], leaf.itemsize)].tobytes()


def _element_stride(num_rows: int, num_elements: int, size: int) -> int:
    """Return how far apart the elements of a row lie that are hashed: 1 for all of them."""
    wanted = BYTES_OF_ROW + BYTES_OF_BATCH // max(1, num_rows)
    return max(1, num_elements * size // wanted)


class ReadRecord:
    """A running digest of the batches read, and where it stood after some of them: where another reading differs lies between
    two of these."""

    FIRST, LAST, MOST = 8, 32, 128
    """Kept singly: the first and the last batches; in all at most so many."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        state = state or {"samples": 0, "stride": 1, "at": [0], "digests": [""]}
        self.samples: int = state["samples"]
        self._stride: int = state["stride"]
        self._marks: dict[int, str] = dict(zip(state["at"], state["digests"], strict=True))
        self.batches = max(self._marks)

    @property
    def digest(self) -> str:
        """Of all that was read."""
        return self._marks[self.batches]

    def add(self, digest: str, num_samples: int) -> None:
        """Note one more batch."""
        running = chained_digest(self._marks[self.batches], digest)
        self.batches += 1
        self.samples += num_samples
        self._marks[self.batches] = running
        if not self._is_digest_kept(old := self.batches - self.LAST):
            self._marks.pop(old, None)
        if len(self._marks) > self.MOST:
            self._stride *= 2
            self._marks = {at: digest for at, digest in self._marks.items() if self._is_digest_kept(at)}

    def _is_digest_kept(self, at: int) -> bool:
        return at <= self.FIRST or at > self.batches - self.LAST or at % self._stride == 0

    def agrees_so_far(self, again: "ReadRecord") -> bool:
        """Whether a reading that has come so far is not known to differ at its last batch."""
        return self._marks.get(again.batches) in (None, again._marks[again.batches])

    def differing_batch_range(self, other: "ReadRecord") -> tuple[int, int] | None:
        """Return between which two numbers of batches another reading of as many batches differs, None where it does not.

        The second is the first that is known to differ.
        """
        common = sorted(self._marks.keys() & other._marks.keys())
        wrong = next((at for at in common if self._marks[at] != other._marks[at]), None)
        if wrong is None:
            return None
        return max(at for at in common if at < wrong), wrong

    def state_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON."""
        return {
            "samples": self.samples,
            "stride": self._stride,
            "at": [*self._marks],
            "digests": [*self._marks.values()],
        }

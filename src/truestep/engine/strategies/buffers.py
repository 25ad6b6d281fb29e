# SPDX-License-Identifier: Apache-2.0
"""Buffers that a forward fills, over ranks of which each sees its own examples.

Batch normalisation takes its statistics of all ranks in an update (`synchronized_batch_norm.py`), and a power iteration reads
weights, which are the same. Where a normalisation was called outside of updates, its running statistics are looked at in the next
one. Of any other buffer nobody can see from outside whether a change was a sum, a mean or a ratio: its user says so, or it has to
come out the same on all ranks. Whether it does is seen by one number for each rank, which rides with the gradients.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.buffers import spectral_norm_buffers
from truestep.core.errors import RankError
from truestep.core.text_formatting import first_few, literal_text
from truestep.engine.buffer_rules import BUFFER_RULES, BufferRule
from truestep.engine.processes.world import World
from truestep.engine.strategies.synchronized_batch_norm import has_moved_locally

NUM_BUFFER_NUMBERS = 3
_AT_ONCE = 1 << 20
_SMALL = 64  # numbers of a buffer that is looked at together with others
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MODULUS = (1 << 22) - 3  # a prime; its square, times the number of ranks, is exact in double precision
_NAMED = 4


def has_buffer_comparison(numbers: Sequence[Any]) -> bool:
    """Whether such numbers of a rank tell of buffers that were looked at, so that their sums have to be read."""
    return isinstance(numbers[1], Tensor) or bool(numbers[1])


def _is_full_comparison_due(number: int) -> bool:
    return number & (number - 1) == 0


class _BufferPlace:
    """A buffer by the dict that holds it, and how it was when it was looked at last."""

    __slots__ = ("_buffer", "_digest", "_moves", "_version", "home", "key", "name")

    def __init__(self, home: dict[str, Tensor | None], key: str, name: str) -> None:
        self.home, self.key, self.name = home, key, name
        self._buffer: Tensor | None = None
        self._version, self._moves = -1, False
        self._digest: int | None = None

    @property
    def now(self) -> Tensor | None:
        """What is there."""
        return self.home.get(self.key)

    def has_moved(self) -> bool:
        """Whether it was written to, or may have been, since it was looked at."""
        now = self.now
        return self._moves or now is not self._buffer or (now is not None and now._version != self._version)

    def note(self, now: Tensor, digest: Tensor | int) -> None:
        """Take note of what is there, and of the number of its values."""
        was_written = now is not self._buffer or now._version != self._version
        self._buffer, self._version = now, now._version
        if isinstance(digest, int):  # elsewhere than on a CPU it would have to be waited for
            # as through .data
            self._moves = self._moves or (self._digest not in (None, digest) and not was_written)
            self._digest = digest


class RankBuffers:
    """The buffers of one set of learners."""

    def __init__(self, world: World, what: str, learners: Sequence[Any]) -> None:
        self._world, self._what = world, what
        self._learners = list(learners)
        self._num_looked = 0
        self._alike: list[_BufferPlace] = []
        self._said: dict[BufferRule, list[_BufferPlace]] = {}
        self._norms: list[tuple[nn.Module, _BufferPlace]] = []
        self._rest: list[_BufferPlace] = []
        self._before: list[Tensor] = []
        self._find_buffers()

    def _find_buffers(self) -> None:
        known = {(id(each.home), each.key): each for each in self._alike}
        self._alike, self._rest, self._norms, self._said = [], [], [], {rule: [] for rule in BUFFER_RULES}
        for weights in self._learners:
            spectral = {(id(part), key) for part, key in spectral_norm_buffers(weights.module)}
            for prefix, part in weights.module.named_modules():
                for key in part._buffers:
                    name = f"{prefix}.{key}" if prefix else key
                    place = known.get((id(part._buffers), key)) or _BufferPlace(part._buffers, key, name)
                    if rule := weights.buffer_rules.get(name):
                        self._said[rule].append(place)
                        continue
                    self._rest.append(place)
                    is_norm = isinstance(part, nn.modules.batchnorm._BatchNorm)
                    if is_norm:
                        self._norms.append((part, place))
                    elif (id(part), key) not in spectral:
                        self._alike.append(place)

    def begin(self) -> None:
        """Keep the sums as they are: the loss is about to add to them."""
        self._before = [_current_buffer(each).detach().clone() for each in self._said["sum"]]

    @torch.no_grad()
    def numbers(self, *, is_enough: bool) -> list[Any]:
        """Return what tells all ranks whether theirs are alike; zeros of a rank that had no examples, or fewer calls."""
        # Writes through .data show in no version: all are looked at in the first update, the second, the fourth, and so on.
        self._num_looked += 1
        looks_at_all = _is_full_comparison_due(self._num_looked)
        if looks_at_all:
            self._find_buffers()
        if not is_enough:
            return [0.0] * NUM_BUFFER_NUMBERS
        looked = {
            index: each for index, each in enumerate(self._alike, 1) if looks_at_all or each.has_moved()
        }
        looked |= self._norms_moved_locally(1 + len(self._alike))
        there = [(index, each, now) for index, each in looked.items() if (now := each.now) is not None]
        digests = _tensor_digests([*(now for *_, now in there), *self._before])
        found: Any = 0
        for (index, place, now), digest in zip(there, digests, strict=False):
            place.note(now, digest)
            found = (found + index * digest) % _MODULUS
        for index, digest in enumerate(digests[len(there) :], 1 + len(self._alike) + len(self._norms)):
            found = (found + index * digest) % _MODULUS
        found = torch.as_tensor(found, dtype=torch.float64) if digests else 0.0
        return [1.0, found, found * found]

    def _norms_moved_locally(self, begin: int) -> dict[int, _BufferPlace]:
        """Return the running statistics that each rank moved for itself, by numbers from one on."""
        layers = {id(part): part for part, _ in self._norms}
        called = {each for each, part in layers.items() if has_moved_locally(part)}
        return {index: place for index, (part, place) in enumerate(self._norms, begin) if id(part) in called}

    @torch.no_grad()
    def settle(self, found: Tensor | None, share: float) -> None:
        """Refuse ranks whose buffers differ; then make those one that were said to be a mean or a sum.

        `found` are the sums of all ranks' numbers, None where no rank has looked at any; `share` is this rank's part of all
        examples.
        """
        number, first, squares = found.tolist() if found is not None else (0, 0, 0)
        if number * squares != first * first:
            norms = [place for _, place in self._norms]
            _refuse_norms_moved_locally(self._world, self._what, norms, takes_part=bool(share))
            places = [*self._alike, *self._said["sum"]]
            now = [_current_buffer(each) for each in self._alike] + self._before
            refuse_other_buffers(
                self._world, self._what, [each.name for each in places], now, takes_part=bool(share)
            )
        means, sums = self._said["mean"], self._said["sum"]
        if not means and not sums:
            return
        mine = [_as_real_tensor(_current_buffer(each)) * share for each in means]
        mine += [
            (_as_real_tensor(_current_buffer(each)) - _as_real_tensor(before)) * bool(share)
            for each, before in zip(sums, self._before, strict=True)
        ]
        flat = torch.cat([each.reshape(-1) for each in mine])
        self._world.wait_all([self._world.reduce(flat)], f"{self._what} (buffers)")
        parts = [
            part.view(each.shape)
            for part, each in zip(
                torch.split_with_sizes(flat, [each.numel() for each in mine]), mine, strict=True
            )
        ]
        for place, value in zip(means, parts, strict=False):
            _write_buffer(_current_buffer(place), value)
        for place, value, before in zip(sums, parts[len(means) :], self._before, strict=True):
            _write_buffer(_current_buffer(place), _as_real_tensor(before) + value)

    def broadcast_buffers(self, source: int, *, takes: bool) -> None:
        """Give those of one rank, that nothing else makes the same, to every rank that takes them.

        Raises:
            RankError: a forward made buffers on the rank that gives, and the others called none.
        """
        there = {each.name: now for each in self._rest if (now := each.now) is not None}
        if _is_full_comparison_due(self._num_looked):
            _refuse_missing_buffers(self._world, self._what, there, source)
        buffers = list(there.values())
        self._world.broadcast(buffers, self._what, source=source, takes=takes)

    def kept(self) -> list[tuple[Tensor, Tensor]]:
        """Return those whose values are this rank's own, with a copy of each."""
        said = [each for places in self._said.values() for each in places]
        return [(now, now.detach().clone()) for each in said if (now := each.now) is not None]


def refuse_other_buffers(
    world: World, what: str, names: Sequence[str], now: Sequence[Tensor], *, takes_part: bool = True
) -> None:
    """Raise a RankError that names the buffers which are not the same on all ranks; all ranks come here."""
    found = _differing_tensors(world, what, names, now, takes_part=takes_part)
    if not found:
        return
    listed = first_few([text for _, text in found], _NAMED)
    raise RankError(
        f"In {what}, buffers are not the same on all ranks: {listed}. Each rank's forward has filled them from its own "
        "examples, so the training would depend on the number of ranks. Say what they are of the ranks' values: "
        f'run.learner(..., buffers={{"{found[0][0]}": "mean"}}) for a mean over the examples, "sum" for a sum of what each added, '
        '"own" for what each keeps for itself; or fill them from all examples, ts.gather(values).'
    )


def _differing_tensors(
    world: World, what: str, names: Sequence[str], now: Sequence[Tensor], *, takes_part: bool
) -> list[tuple[str, str]]:
    """Return the names of the tensors that are not the same on all ranks, and what each is there."""
    mine = {
        name: [int(_tensor_digest(each)), f"{float(_as_real_tensor(each).sum()):.6g}"]
        for name, each in zip(names, now, strict=True)
    }
    everybody = [
        json.loads(each) for each in world.share_bytes(json.dumps(takes_part and mine).encode(), what)
    ]
    ranks = [rank for rank, each in enumerate(everybody) if each is not False]
    found = []
    for name in mine:
        values = [everybody[rank].get(name) for rank in ranks]
        other = next((index for index, each in enumerate(values) if each != values[0]), None)
        if other is not None:
            sums = [str(each[1]) if each else "nothing" for each in (values[0], values[other])]
            found.append(
                (name, f"{name} (sums up to {sums[0]} on rank {ranks[0]}, {sums[1]} on rank {ranks[other]})")
            )
    return found


def _refuse_norms_moved_locally(
    world: World, what: str, places: Sequence[_BufferPlace], *, takes_part: bool
) -> None:
    """Raise a RankError where ranks moved the running statistics of a normalisation apart, outside of updates."""
    names, now = [each.name for each in places], [_current_buffer(each) for each in places]
    if found := _differing_tensors(world, what, names, now, takes_part=takes_part) if places else []:
        raise RankError(
            f"In {what}, the statistics of batch normalisation are not the same on all ranks: "
            f"{first_few([text for _, text in found], _NAMED)}. The model was called in training mode outside of an update, where "
            "each rank has its own rows alone, so a gradient through that call would be another one than on one process. Call the "
            "model inside the loss; where no gradient is needed call it in eval(), which moves nothing."
        )


def _refuse_missing_buffers(world: World, what: str, there: dict[str, Tensor], source: int) -> None:
    """Raise a RankError where a rank lacks a buffer of the one that gives: a broadcast of other sizes would end the processes."""
    mine = json.dumps({name: list(now.shape) for name, now in there.items()}).encode()
    numbers = {number for (number,) in world.meet(f"{what} (buffers)", float(zlib.crc32(mine)))}
    if len(numbers) == 1:
        return
    everybody = [json.loads(each) for each in world.share_bytes(mine, what)]
    given = everybody[source]
    for rank, taken in enumerate(everybody):
        names = [name for name in {**given, **taken} if given.get(name) != taken.get(name)]
        if not names:
            continue
        name, shape = names[0], given.get(names[0], taken.get(names[0]))
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        *parts, key = name.split(".")
        raise RankError(
            f"In {what}, buffers are not the same on all ranks: {name}{more} is {_shape_str(given.get(name))} on rank {source} and "
            f"{_shape_str(taken.get(name))} on rank {rank}. A forward has made it, and a rank that had no example yet calls none. "
            f"Make it in the __init__ of {'.'.join(parts) or 'the model'}, the same on all ranks: "
            f"self.register_buffer({literal_text(key)}, torch.zeros({', '.join(map(str, shape or ())) or '()'}))."
        )


def _shape_str(shape: list[int] | None) -> str:
    return "missing" if shape is None else f"of shape {tuple(shape)}"


def _current_buffer(place: _BufferPlace) -> Tensor:
    now = place.now
    return torch.empty(0) if now is None else now


def _as_real_tensor(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).to(torch.float64)


def _write_buffer(buffer: Tensor, value: Tensor) -> None:
    if buffer.is_complex():
        buffer.copy_(torch.view_as_complex(value.contiguous()))
    else:
        buffer.copy_(value if buffer.is_floating_point() else value.round())


def _tensor_digests(tensors: Sequence[Tensor]) -> list[Tensor | int]:
    """Return the digest of each, on a CPU as a number; small ones are computed together: a call costs more than their numbers."""
    found: dict[int, Tensor | int] = {}
    small: dict[torch.dtype, list[int]] = {}
    for place, each in enumerate(tensors):
        if each.is_cpu and type(each) is Tensor and 0 < each.numel() <= _SMALL and not each.is_complex():
            small.setdefault(each.dtype, []).append(place)
        else:
            digest = _tensor_digest(each)
            found[place] = int(digest) if each.is_cpu else digest
    for places in small.values():
        for begin in range(0, len(places), _AT_ONCE // _SMALL):
            part = places[begin : begin + _AT_ONCE // _SMALL]
            found |= zip(part, _small_tensor_digests([tensors[each] for each in part]), strict=True)
    return [found[place] for place in range(len(tensors))]


def _small_tensor_digests(tensors: Sequence[Tensor]) -> list[int]:
    """Return the digest of each of some tensors of one type."""
    flat = torch.cat([each.detach().reshape(-1) for each in tensors])
    sizes = torch.tensor([each.numel() for each in tensors])
    owners = torch.repeat_interleave(sizes)
    places = torch.arange(1, 1 + len(flat)) - (sizes.cumsum(0) - sizes)[owners]
    numbers = flat.view(_WORDS[flat.element_size()]).to(torch.int64) % _MODULUS * places % _MODULUS
    begun = sizes + 7 * torch.tensor([each.ndim for each in tensors])
    return list(((begun * 31).index_add_(0, owners, numbers) % _MODULUS).tolist())


def _tensor_digest(tensor: Tensor) -> Tensor:
    """Return a number below the modulus that two tensors share only by chance, unless they are equal."""
    flat = tensor.detach().reshape(-1)
    flat = (torch.view_as_real(flat) if flat.is_complex() else flat).reshape(-1).contiguous()
    bits = flat.view(_WORDS[flat.element_size()])
    total = torch.full((), flat.numel() + 7 * tensor.ndim, dtype=torch.int64, device=tensor.device)
    for start in range(0, len(bits), _AT_ONCE):
        part = bits[start : start + _AT_ONCE].to(torch.int64) % _MODULUS
        places = torch.arange(1 + start, 1 + start + len(part), device=part.device) % _MODULUS
        total = (total * 31 + (part * places % _MODULUS).sum()) % _MODULUS
    return total

# SPDX-License-Identifier: Apache-2.0
"""Noise made symmetric: random rows are the same for every example, so that altered batches can be compared.

Each random call has one seed whatever its size, and each example gets the same numbers of it. A permutation of the examples is
the identity, dropout is off (also inside of attention and recurrent layers), batch normalisation uses its stored statistics.
Nothing is left behind: every random state is put back, and no tensor of the user's is written to.
"""

import hashlib
import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Self
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from truestep.core.random_streams import (
    KeyedRandom,
    preserve_host_rng,
    preserve_torch_rng,
)

SEED = 7777
_DROPOUT_AT = 10  # the argument of multi_head_attention_forward that is its dropout

_DROPOUTS = frozenset(
    name for name in (*dir(F), *dir(torch)) if "dropout" in name and not name.startswith(("_", "native"))
)
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
# by the shape of a tensor, or with parameters for each number: drawn example by example
_DRAWN_BY_ROW = frozenset(
    {"rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "normal", "poisson", "binomial"}
    | {"_standard_gamma", "_sample_dirichlet"}
)
_DRAWN_BY_SIZE = frozenset({"rand", "randn", "randint", "normal"})
_NUMPY_DRAWS = ("normal", "uniform", "randn", "rand", "random", "standard_normal", "random_sample", "randint")
_MOST_DRAWN = 1000
_RANDOM = torch.Tag.nondeterministic_seeded


class SymmetricNoise:
    """Within it noise is symmetric over the examples of a batch.

    Args:
        count: the number of examples of the batch.
        frozen: tensors whose values stay as they are, whatever writes to them: buffers.
        tensors: tensors whose devices' random states are put back.
        seed: of the noise.

    Attributes:
        coarsest: the distance between 1 and the next number of the coarsest float type that an operation gave.
    """

    def __init__(
        self,
        count: int,
        *,
        frozen: Iterable[Tensor] = (),
        tensors: Iterable[Tensor] = (),
        seed: int = SEED,
    ) -> None:
        self._operations = _SymmetricOperations(count, frozen)
        self._tensors = list(tensors)
        self._entered = ExitStack()
        self._seed = seed
        self._start: list[Any] = []
        self._end: list[Any] = []

    @property
    def coarsest(self) -> float:
        """The distance between 1 and the next number of the coarsest float type that an operation gave."""
        return self._operations.coarsest

    @property
    def has_drawn(self) -> bool:
        """Whether random numbers were drawn within it, so far."""
        return (self._end or _rng_states()) != self._start

    @property
    def drawn(self) -> list[list[list[int]]]:
        """The sizes of what each operation drew, and the axes of it along which examples were taken to lie."""
        return self._operations.drawn

    def state(self) -> str:
        """Return what tells by how many calls numbers were drawn so far, as a digest."""
        return hashlib.sha256(repr(_rng_states()).encode()).hexdigest()

    def __enter__(self) -> Self:
        enter = self._entered.enter_context
        enter(preserve_torch_rng(self._tensors))
        enter(preserve_host_rng())
        torch.default_generator.manual_seed(self._seed)
        random.seed(self._seed)
        np.random.seed(self._seed)  # the global stream is what losses draw from
        self._start = _rng_states()
        count = self._operations.count
        for name in _NUMPY_DRAWS:
            enter(patch.object(np.random, name, _draw_equal_rows(name, count)))
        enter(patch.object(np.random, "permutation", _identity_permutation(count)))
        enter(self._operations)
        enter(_WithoutDropout())
        return self

    def __exit__(self, *error: object) -> None:
        self._end = _rng_states()
        self._entered.close()


class _WithoutDropout(TorchFunctionMode):
    """Calls torch's functions with no dropout, and batch normalisation with its stored statistics."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if name in _RECURRENT:
            args = _without_dropout_rate(args)
        elif name == "scaled_dot_product_attention":
            args, kwargs = _replace_argument(args, kwargs, 4, "dropout_p", 0.0)
        elif name == "multi_head_attention_forward":
            args, kwargs = _replace_argument(args, kwargs, _DROPOUT_AT, "dropout_p", 0.0)
        elif name == "rrelu":
            args, kwargs = _replace_argument(args, kwargs, 3, "training", False)
        elif func is F.batch_norm:
            args, kwargs = _with_stored_statistics(args, kwargs)
        return func(*args, **kwargs)


def _without_dropout_rate(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a recurrent layer's arguments with no dropout: its rate is their only fraction."""
    return tuple(0.0 if type(each) is float else each for each in args)


def _replace_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, value: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with one of them replaced, given by place or by name."""
    if len(args) > place:
        return (*args[:place], value, *args[place + 1 :]), kwargs
    return args, {**kwargs, name: value}


def _with_stored_statistics(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what batch normalisation is given, for its stored statistics; without these it keeps to the batch's."""
    mean = args[1] if len(args) > 1 else kwargs.get("running_mean")
    return (args, kwargs) if mean is None else _replace_argument(args, kwargs, 5, "training", False)


class _SymmetricOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives each example the same numbers of each random operation, and leaves frozen tensors as they are."""

    def __init__(self, count: int, frozen: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = count
        self.coarsest = 0.0
        self.drawn: list[list[list[int]]] = []
        self._frozen = {each.untyped_storage()._cdata for each in frozen}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._frozen and func._schema.is_mutable and self._is_frozen(args):
            return args[0]
        draws = _RANDOM in func.tags and not _has_no_dropout(func, args, kwargs)
        result = self._draw_seeded(func, args, kwargs) if draws else func(*args, **kwargs)
        if isinstance(result, Tensor) and result.is_floating_point():
            self.coarsest = max(self.coarsest, torch.finfo(result.dtype).eps)
        return result

    def _is_frozen(self, args: tuple[Any, ...]) -> bool:
        first = args[0] if args else None
        return (
            isinstance(first, Tensor)
            and first.layout is torch.strided
            and first.untyped_storage()._cdata in self._frozen
        )

    def _draw_seeded(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a random operation, drawn with a seed of its own."""
        # This number is all that a call takes from torch's stream, and what is computed again for a backward takes it again.
        seed = int(torch.empty((), dtype=torch.int64).random_())
        kwargs.pop("generator", None)
        call, name = func.overloadpacket, func.overloadpacket.__name__
        if name == "randperm" and args[0] % self.count == 0:
            options = {key: kwargs[key] for key in ("dtype", "device") if key in kwargs}
            return torch.arange(args[0], **options)
        device = next((each.device for each in args if isinstance(each, Tensor)), kwargs.get("device"))
        streams = KeyedRandom.of(torch.device(device or "cpu"))
        kept = streams.save()
        try:
            return self._draw_by_kind(name, call, args, kwargs, lambda: streams.set(seed))
        finally:
            streams.restore(kept)

    def _draw_by_kind(
        self, name: str, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed: Callable[[], object]
    ) -> Any:
        first = args[0] if args else None
        if name.endswith("_") and isinstance(first, Tensor):
            return self._draw_in_place(call, args, kwargs, seed)
        if name in _DRAWN_BY_ROW and any(isinstance(each, Tensor) for each in args):
            return self._draw_by_row(call, args, kwargs, seed)
        if name in _DRAWN_BY_SIZE:
            return self._draw_by_size(call, args, kwargs, seed)
        seed()
        return call(*args, **kwargs)

    def _draw_by_size(
        self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed: Callable[[], object]
    ) -> Tensor:
        """Draw the numbers of one example, for all; torch draws a tensor's first numbers in a way that depends on its size."""
        place = next(number for number, each in enumerate(args) if isinstance(each, (list, tuple)))
        axes = self._record_axes(args[place])
        sizes = [size // self.count if axis in axes else size for axis, size in enumerate(args[place])]
        seed()
        return self._repeat_for_examples(call(*args[:place], sizes, *args[place + 1 :], **kwargs), axes)

    def _draw_in_place(
        self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed: Callable[[], object]
    ) -> Tensor:
        first: Tensor = args[0]
        if any(isinstance(each, Tensor) for each in args[1:]):
            return first.copy_(self._draw_by_row(call, (first.clone(), *args[1:]), kwargs, seed))
        axes = self._record_axes(first.shape)
        drawn = first.clone()
        for axis in axes:
            drawn = _part_of_example(drawn, axis, 0, self.count)
        seed()
        call(drawn, *args[1:], **kwargs)
        return first.copy_(self._repeat_for_examples(drawn, axes))

    def _repeat_for_examples(self, drawn: Tensor, axes: list[int]) -> Tensor:
        """Return an example's numbers, once for each example."""
        return drawn.repeat([self.count if axis in axes else 1 for axis in range(drawn.ndim)])

    def _draw_by_row(
        self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed: Callable[[], object]
    ) -> Tensor:
        """Draw for the examples one by one, with the same seed."""

        def draw_rows(parts: tuple[Any, ...], axes: list[int]) -> Tensor:
            if not axes:
                seed()
                found: Tensor = call(*parts, **kwargs)
                return found
            axis, *rest = axes
            rows = (
                tuple(_part_of_example(each, axis, row, self.count) for each in parts)
                for row in range(self.count)
            )
            return torch.cat([draw_rows(row, rest) for row in rows], axis)

        shapes = [tuple(each.shape) for each in args if isinstance(each, Tensor)]
        longest: tuple[int, ...] = max(shapes, key=len)
        return draw_rows(args, self._record_axes(longest))

    def _record_axes(self, shape: Iterable[int]) -> list[int]:
        sizes = list(shape)
        axes = self._example_axes(sizes)
        if len(self.drawn) < _MOST_DRAWN:
            self.drawn.append([sizes, axes])
        return axes

    def _example_axes(self, shape: Iterable[int]) -> list[int]:
        """Return the dimensions along which the examples may lie, as far as sizes say it."""
        sizes = list(shape)
        if self.count == 1 or (sizes and sizes[0] == self.count):
            return [0] if sizes else []
        several = [axis for axis, size in enumerate(sizes) if size and size % self.count == 0]
        exactly = [axis for axis in several if sizes[axis] == self.count]
        # rows of a block each, such as (examples · heads, ...), and a dimension that happens to be as large
        found = {*several[:1], *exactly[:1]} if several[:1] == [0] or not exactly else {exactly[0]}
        return sorted(found)


def _has_no_dropout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether an operation draws for its dropout alone, and has none: attention."""
    for place, each in enumerate(func._schema.arguments):
        if each.name == "dropout_p":
            rate = args[place] if place < len(args) else kwargs.get(each.name, each.default_value)
            return not rate
    return False


def _part_of_example(value: Any, axis: int, row: int, count: int) -> Any:
    """Return an example's part of an argument; of one that lacks it, the whole."""
    if not isinstance(value, Tensor) or value.ndim <= axis or value.shape[axis] % count:
        return value
    size = value.shape[axis] // count
    return value.narrow(axis, row * size, size).clone()


def _draw_equal_rows(name: str, count: int) -> Callable[..., Any]:
    def draw_and_repeat(*args: Any, **kwargs: Any) -> Any:
        values = getattr(_numpy_stream(), name)(*args, **kwargs)
        if isinstance(values, np.ndarray) and values.ndim and len(values) % count == 0:
            rows = len(values) // count
            values[:] = np.concatenate([values[:rows]] * count)
        return values

    return draw_and_repeat


def _identity_permutation(count: int) -> Callable[[Any], Any]:
    def permuted(x: Any) -> Any:
        stream, size = _numpy_stream(), x if isinstance(x, int) else len(x)
        if size % count:
            return stream.permutation(x)
        return np.arange(x) if isinstance(x, int) else np.array(x)

    return permuted


def _rng_states() -> list[Any]:
    """Return the states of the streams that losses draw from, so that they can be compared."""
    kind, numbers, *rest = np.random.get_state()
    return [torch.default_generator.get_state().tolist(), random.getstate(), kind, list(numbers), rest]


def _numpy_stream() -> np.random.RandomState:
    """Return a stream of numbers of one call's own: of the global stream it takes one number whatever its size."""
    return np.random.RandomState(int(np.random.bytes(4).hex(), 16))

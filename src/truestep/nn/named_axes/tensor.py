# SPDX-License-Identifier: Apache-2.0
"""Tensors whose axes are found by name."""

import math
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from truestep.core.text_formatting import a_type, plural
from truestep.nn.named_axes.names import (
    POINTWISE,
    Names,
    axes_text,
    check_axes_match,
    find_axes,
    parse_axis_names,
    split_axis_names,
    union_of_axis_names,
)

Number = int | float | complex
Index = int | slice | list[int] | Tensor


def named(tensor: Tensor, names: str | Iterable[str]) -> "Named":
    """Return `tensor` with a name for each axis: `ts.named(images, "N C H W")`. Nothing is copied."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"ts.named takes a tensor, got {type(tensor).__name__}.")
    found = split_axis_names(names)
    if len(found) != tensor.ndim:
        raise ValueError(
            f"The tensor has shape {tuple(tensor.shape)}, "
            f"{plural(tensor.ndim, 'axis', 'axes')}, and got {plural(len(found), 'name')}: {' '.join(found)}. "
            "Give one name for each axis."
        )
    return Named(tensor, found)


def _make_operator(function: Callable[..., Any], *, reverse: bool = False) -> Callable[..., "Named"]:
    def apply_operator(one: "Named", *other: Any) -> "Named":
        if not all(isinstance(each, Named | Tensor | numbers.Number) for each in other):
            return NotImplemented  # type: ignore[no-any-return]  # Python's way to ask the other side
        return _apply_elementwise(function, (*other, one) if reverse else (one, *other), {})

    return apply_operator


def _make_refusing_method(why: str) -> Callable[..., NoReturn]:
    def refuse_operation(self: "Named", *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{axes_text(self.sizes)} {why}")

    return refuse_operation


def _make_reduction(function: Callable[..., Tensor], what: str) -> Callable[..., "Named"]:
    def reduce_axes(self: "Named", names: str | Iterable[str] | None = None, **options: Any) -> "Named":
        places = range(len(self.names)) if names is None else find_axes(names, self.sizes)
        if names is not None and not places:
            raise ValueError(f"Got no name of {axes_text(self.sizes)}. Leave the argument out for all axes.")
        kept = tuple(name for place, name in enumerate(self.names) if place not in places)
        return Named(function(self.tensor, dim=tuple(places), **options), kept)

    reduce_axes.__name__ = function.__name__
    reduce_axes.__doc__ = f'Return {what} over axes (`x.sum("H W")`), or over all.'
    return reduce_axes


def _make_single_axis_reduction(
    function: Callable[..., Tensor], what: str
) -> Callable[["Named", str], "Named"]:
    def reduce_axis(self: "Named", name: str) -> "Named":
        (place,) = find_axes([name], self.sizes)
        return Named(function(self.tensor, place), self.names)

    reduce_axis.__name__, reduce_axis.__doc__ = function.__name__, f"Return {what} along an axis."
    return reduce_axis


class Named:
    """A tensor and the names of its axes, as `ts.named` makes it; everything is found and matched by name.

    Arithmetic and torch's elementwise functions match axes by name, whatever their order, and broadcast over those
    that one side lacks. The result's axes have the order of the operand with most axes, followed by what others add. What has
    no meaning by names is refused: `x.tensor` is the plain tensor, `x.to_tensor("N C H W")` has its axes in a given order.
    """

    __array_ufunc__ = None  # numbers of NumPy leave arithmetic to this class
    __slots__ = ("names", "tensor")

    def __init__(self, tensor: Tensor, names: Names) -> None:
        self.tensor = tensor
        self.names = names

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis, by name and in order."""
        return dict(zip(self.names, self.tensor.shape, strict=True))

    dtype = property(lambda self: self.tensor.dtype, doc="The tensor's type.")
    device = property(lambda self: self.tensor.device, doc="The tensor's device.")

    def to(self, *args: Any, **kwargs: Any) -> "Named":
        """Return this on another device or in another type, as `Tensor.to`."""
        return Named(self.tensor.to(*args, **kwargs), self.names)

    def detach(self) -> "Named":
        """Return this without its history."""
        return Named(self.tensor.detach(), self.names)

    def item(self) -> Number:
        """Return the one value as a number of Python."""
        return self.tensor.item()

    # -- axes

    def align_to(self, *names: Any) -> "Named":
        """Return this with its axes in the order of `names`, all of them; "..." stands for those not mentioned.

        The names are one text, "N H W C", or a list, or given one by one, as torch's own had them: `align_to("N", "H", "W", "C")`.
        """
        written = parse_axis_names(names)
        if written.count("...") > 1:
            raise ValueError(
                f"align_to({' '.join(written)!r}) has '...' more than once; it stands for all that are not named."
            )
        if "..." in written:
            rest = [name for name in self.names if name not in written]
            place = written.index("...")
            written[place : place + 1] = rest
        order = find_axes(written, self.sizes)
        if len(order) != len(self.names):
            left_out = [name for name in self.names if name not in written]
            raise ValueError(
                f"align_to({' '.join(written)!r}) leaves out {', '.join(left_out)} of {axes_text(self.sizes)}. "
                "Name every axis, or write '...' for the rest; to drop an axis select from it or reduce over it."
            )
        return Named(self.tensor.permute(order), tuple(written))

    def to_tensor(self, *names: Any) -> Tensor:
        """Return the plain tensor with its axes in the order of `names`, written as for `align_to`."""
        return self.align_to(*names).tensor

    def rename(self, **names: str) -> "Named":
        """Return this with other names: `x.rename(C="K")`."""
        find_axes(names, self.sizes)
        return named(self.tensor, [names.get(name, name) for name in self.names])

    def flatten(self, names: str | Iterable[str], into: str) -> "Named":
        """Return this with several axes made into one, the last of `names` running fastest, at the place of the first of them."""
        merged = split_axis_names(names)
        find_axes(merged, self.sizes)
        if not merged:
            raise ValueError(f"flatten got no names. Name at least one axis of {axes_text(self.sizes)}.")
        place = min(self.names.index(name) for name in merged)
        rest = [name for name in self.names if name not in merged]
        order = (*rest[:place], *merged, *rest[place:])
        flat = self.to_tensor(order).flatten(place, place + len(merged) - 1)
        return named(flat, (*rest[:place], into, *rest[place:]))

    def split(self, name: str, **parts: int) -> "Named":
        """Return this with one axis made into several, the last running fastest; one size may be -1: `split("C", head=8, F=-1)`."""
        (place,) = find_axes([name], self.sizes)
        sizes = tuple(parts.values())
        if wrong := [size for size in sizes if isinstance(size, bool) or not isinstance(size, int)]:
            raise ValueError(f"split({name!r}): {wrong[0]!r} is no size. Give whole numbers; one may be -1.")
        whole, free = self.sizes[name], sizes.count(-1)
        known = math.prod(size for size in sizes if size != -1)
        divides = known > 0 and whole % known == 0 and (free or whole == known)
        if min(sizes, default=0) < -1 or free > 1 or not divides:
            raise ValueError(
                f"The axis {name} of {axes_text(self.sizes)} can't be split into {axes_text(parts)}: "
                f"their product must be {whole}; one may be -1."
            )
        names = (*self.names[:place], *parts, *self.names[place + 1 :])
        return named(torch.unflatten(self.tensor, place, sizes), names)

    def select(self, name: str, index: int) -> "Named":
        """Return the part at `index` along an axis, without that axis."""
        return self[{name: index}]

    def __getitem__(self, index: Mapping[str, Index]) -> "Named":
        """Return `x[{"N": 0, "W": slice(8)}]`: a number drops its axis; slices, lists, and index or mask tensors keep it."""
        if not isinstance(index, Mapping):
            raise TypeError(
                f"{axes_text(self.sizes)} is indexed by name, got {index!r}. Write x[{{'NAME': {index!r}}}], "
                "or x.tensor[...] by position."
            )
        result = self
        for name, one in index.items():
            result = result._index_axis(name, one)
        return result

    def _index_axis(self, name: str, index: Index) -> "Named":
        (place,) = find_axes([name], self.sizes)
        size = self.sizes[name]
        if isinstance(index, bool) or not isinstance(index, int | slice | list | tuple | Tensor):
            raise TypeError(
                f"The index {index!r} of {name} is {a_type(index)}; give a number, a slice, a list, or a tensor of "
                "indices or truth values."
            )
        if isinstance(index, int) and not -size <= index < size:
            raise IndexError(f"Index {index} is out of range for the axis {name} of {axes_text(self.sizes)}.")
        asked = torch.arange(1) if isinstance(index, slice) else torch.as_tensor(index)
        # Rows of indices, and a single truth value, would make an axis that has no name.
        if asked.ndim > 1 or (asked.ndim == 0 and asked.dtype == torch.bool):
            raise ValueError(f"The index of {name} has {asked.ndim} axes: give a number, slice or one axis.")
        chosen = list(index) if isinstance(index, tuple) else index
        taken = self.tensor[(slice(None),) * place + (chosen,)]
        drops = taken.ndim < self.tensor.ndim
        return Named(taken, self.names[:place] + self.names[place + drops :])

    # -- over some axes, or all

    sum = _make_reduction(torch.sum, "the sum")
    mean = _make_reduction(torch.mean, "the mean")
    max = _make_reduction(torch.amax, "the largest value (gradients are shared among equals)")
    min = _make_reduction(torch.amin, "the smallest value (gradients are shared among equals)")
    logsumexp = _make_reduction(torch.logsumexp, "log Σ exp")
    any = _make_reduction(torch.any, "whether any value is true")
    all = _make_reduction(torch.all, "whether every value is true")
    var = _make_reduction(torch.var, "the variance, divided by the count less `correction`, 1 by default,")
    std = _make_reduction(torch.std, "the standard deviation, with `correction` as for the variance,")

    # -- along one axis

    softmax = _make_single_axis_reduction(torch.softmax, "the softmax")
    log_softmax = _make_single_axis_reduction(torch.log_softmax, "the logarithm of the softmax")
    cumsum = _make_single_axis_reduction(torch.cumsum, "the running sum")

    def argmax(self, name: str) -> "Named":
        """Return the index of the largest value along one axis."""
        (place,) = find_axes([name], self.sizes)
        return Named(self.tensor.argmax(place), self.names[:place] + self.names[place + 1 :])

    # -- two of them

    def dot(self, other: "Named", names: str | Iterable[str]) -> "Named":
        """Return Σ self·other over the axes `names`, which both have; other common axes are matched, not summed."""
        if not isinstance(other, Named):
            raise TypeError(
                f"dot sums over axes by name, and got {a_type(other)}. Name its axes: ts.named(other, 'N C')."
            )
        summed = split_axis_names(names)
        if not summed:
            raise ValueError("dot got no names to sum over. For the product of each pair write a * b.")
        find_axes(summed, self.sizes)
        find_axes(summed, other.sizes)
        check_axes_match([self.sizes, other.sizes])
        every = list(dict.fromkeys(self.names + other.names))
        kept = tuple(name for name in every if name not in summed)
        mine, theirs, left = ([every.index(name) for name in of] for of in (self.names, other.names, kept))
        return Named(torch.einsum(self.tensor, mine, other.tensor, theirs, left), kept)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Match names for torch's elementwise functions; refuse all others."""
        options = kwargs or {}
        values = [*args, *options.values()]
        if function not in POINTWISE or "out" in options:
            _refuse_torch_function(function, values)
        return _apply_elementwise(function, args, options)

    __add__ = _make_operator(operator.add)
    __radd__ = _make_operator(operator.add, reverse=True)
    __sub__ = _make_operator(operator.sub)
    __rsub__ = _make_operator(operator.sub, reverse=True)
    __mul__ = _make_operator(operator.mul)
    __rmul__ = _make_operator(operator.mul, reverse=True)
    __truediv__ = _make_operator(operator.truediv)
    __rtruediv__ = _make_operator(operator.truediv, reverse=True)
    __pow__ = _make_operator(operator.pow)
    __rpow__ = _make_operator(operator.pow, reverse=True)
    __and__ = _make_operator(operator.and_)
    __or__ = _make_operator(operator.or_)
    __eq__ = _make_operator(operator.eq)  # type: ignore[assignment]  # element by element, as tensors compare
    __ne__ = _make_operator(operator.ne)  # type: ignore[assignment]
    __lt__ = _make_operator(operator.lt)
    __le__ = _make_operator(operator.le)
    __gt__ = _make_operator(operator.gt)
    __ge__ = _make_operator(operator.ge)
    __hash__ = object.__hash__
    __neg__ = _make_operator(operator.neg)
    __invert__ = _make_operator(operator.invert)
    __abs__ = _make_operator(operator.abs)

    __matmul__ = _make_refusing_method('has no one axis to sum over. Write a.dot(b, "C") in place of a @ b.')
    __iter__ = _make_refusing_method(
        'can be walked along any axis. Say which: x.select("N", i), or x.tensor.'
    )
    __array__ = _make_refusing_method("is no array, which has no names. Write x.to_tensor('N C').numpy().")
    __len__ = _make_refusing_method(
        'has no one length. Write x.sizes["N"], or len(x.tensor) for the first axis.'
    )

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __getattr__(self, name: str) -> NoReturn:
        there = getattr(torch, name, None)
        write = f"torch.{name}(x)" if callable(there) and there in POINTWISE else f"x.tensor.{name}"
        raise AttributeError(f"A named tensor has no {name!r}: {'x.sizes' if name == 'shape' else write}.")

    def __repr__(self) -> str:
        return f"Named{axes_text(self.sizes)}\n{self.tensor!r}"


def _apply_elementwise(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Named:
    values = [*args, *options.values()]
    if any(isinstance(value, Tensor) and value.ndim for value in values):
        _refuse_torch_function(function, values)
    operands = [value for value in values if isinstance(value, Named)]
    every = [value.sizes for value in operands]
    check_axes_match(every)
    names = union_of_axis_names(every)

    plain = [_align_axes(value, names) if isinstance(value, Named) else value for value in values]
    result = function(*plain[: len(args)], **dict(zip(options, plain[len(args) :], strict=True)))
    sizes = {name: size for one in every for name, size in one.items()}
    if not isinstance(result, Tensor) or tuple(result.shape) != tuple(sizes[name] for name in names):
        _refuse_torch_function(
            function, values
        )  # torch.where(mask) and the like: another function under the same name
    return Named(result, names)


def _align_axes(value: Named, names: Names) -> Tensor:
    """Return the tensor with its axes in the order of `names`, and of size 1 where it lacks them."""
    aligned = value.to_tensor([name for name in names if name in value.names])
    return aligned[tuple(slice(None) if name in value.names else None for name in names)]


def _refuse_torch_function(function: Callable[..., Any], values: list[Any]) -> NoReturn:
    sides = [f"named {axes_text(value.sizes)}" for value in values if isinstance(value, Named)]
    sides += [f"a plain tensor of shape {tuple(each.shape)}" for each in values if isinstance(each, Tensor)]
    name = getattr(function, "__name__", str(function))
    hint = "Give the plain tensor its names with ts.named, or name the result of the function of x.to_tensor(names) again."
    if name[0] != "_" and hasattr(Named, name):
        hint = f"Write x.{name}(names)."
    raise TypeError(
        f"{name} does not know axes by name, and got {', '.join(sides) or 'a list of named tensors'}. By position the result could "
        f"belong to other axes than you mean. {hint}"
    )

# SPDX-License-Identifier: Apache-2.0
"""The modes of the stand-in (`card.py`): what is asked of a tensor in Python, and what torch computes."""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

WAITS = ("_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "unique_dim", "is_nonzero")
TAKES_BOTH = (
    "copy_",
    "_to_copy",
    "index",
    "index_put_",
    "index_put",
    "_index_put_impl_",
    "_pack_padded_sequence",
)
"""Operations that a tensor of the host may be given to beside one of a card."""
PINNED = "page-locked"


def tensors_in(tree):
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from tensors_in(each)
    elif isinstance(tree, dict):
        yield from tensors_in([*tree.values()])


class CardDispatch(TorchDispatchMode):
    """What torch computes: results are where their operands are, and what the host has to wait for is counted."""

    def __init__(self, card):
        super().__init__()
        self._card = card

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else torch imports its compiler, for two seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        card, kwargs = self._card, kwargs or {}
        with torch._C.DisableTorchFunction():
            given = [*tensors_in(args), *tensors_in(kwargs)]
            places = {place for each in given if (place := card.card_of(each)) is not None}
            if not places:
                return func(*args, **kwargs)
            name = func.overloadpacket.__name__
            card.calls.append((name, *_described([args, kwargs])))
            if name.startswith("_foreach_") and len({card.card_of(each) for each in args[0]}) > 1:
                return self._each(func, args, kwargs)  # as torch does: one by one
            self._look(name, args, given, places)
            result = func(*args, **kwargs)
            place = next(iter(places))
            for each in tensors_in(result):
                if card.card_of(each) is None and not any(each is one for one in given):
                    card.mark(each, place)
            return result

    def _each(self, func, args, kwargs):
        results = []
        for index in range(len(args[0])):
            one = [[each[index]] if isinstance(each, list | tuple) else each for each in args]
            results += self.__torch_dispatch__(func, (), one, kwargs) or ()
        return results or None

    def _look(self, name, args, given, places):
        card = self._card
        if name in WAITS:
            card.read(name)
        if name.startswith("index") and any(_chooses(each) for each in tensors_in(args[1:2])):
            card.read("an index of truth values")
        if card.is_quiet:
            return
        # a number of the host may be an operand, and neither what is written into nor what a fused kernel reads
        strict = tensors_in(args if name.startswith("_fused_") else args[:1] if name.endswith("_") else ())
        strict = {id(each) for each in strict}
        host = [each for each in given if card.card_of(each) is None and (each.dim() or id(each) in strict)]
        if name in TAKES_BOTH:
            if host:
                card.read(f"{name} with a tensor of the host")
        elif host or len(places) > 1:
            found = ", ".join(map(str, {*places, *(["cpu"] if host else [])}))
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found {found} ({name}, stand-in)"
            )


def _described(tree):
    """Yield what a captured graph would have for ever: shapes, types and numbers."""
    for each in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(each, Tensor):
            yield tuple(each.shape), each.dtype
        elif isinstance(each, list | tuple | dict):
            yield tuple(_described(each))
        else:
            yield each


def _chooses(index):
    return index.dtype in (torch.bool, torch.uint8)


class CardFunctions(TorchFunctionMode):
    """What is asked of a tensor in Python: where it is, and for another place."""

    def __init__(self, card):
        super().__init__()
        self._card = card

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = ANSWERS.get(func)
        if name is not None:
            return getattr(self, name)(func, *args, **kwargs)
        if kwargs.get("device") is not None or kwargs.get("pin_memory"):
            return self._make(func, args, kwargs)
        return func(*args, **kwargs)

    def _make(self, func, args, kwargs):
        """Make a tensor where it was asked for."""
        card = self._card
        device, pinned = kwargs.get("device"), kwargs.pop("pin_memory", False)
        to = None if device is None else card.device(device)
        if device is not None and (to is not None or torch.device(device).type == "cpu"):
            kwargs = kwargs | {"device": "cpu"}
        result = func(*args, **kwargs)
        if func is torch.tensor and to is not None:
            card.read("torch.tensor on the card")
        if not isinstance(result, Tensor) or (func is torch.as_tensor and to == card.card_of(result)):
            return result
        if func is torch.as_tensor:
            return card.move(result, to)
        return card.mark(result, PINNED if pinned else to)

    def _device(self, func, tensor):
        return self._card.card_of(tensor) or func(tensor)

    def _is_cpu(self, func, tensor):
        return func(tensor) and self._card.card_of(tensor) is None

    def _is_kind(self, func, tensor):
        place = self._card.card_of(tensor)
        return place is not None and func == getattr(Tensor, f"is_{place.type}").__get__

    def _index(self, func, tensor):
        place = self._card.card_of(tensor)
        return -1 if place is None else place.index

    def _new(self, func, tensor, *args, **kwargs):
        return self._card.mark(func(tensor, *args, **kwargs), self._card.card_of(tensor))

    def _is_pinned(self, func, tensor, *_):
        return self._card.place(tensor) == PINNED

    def _pin(self, func, tensor, *_):
        assert self._card.card_of(tensor) is None, "a tensor of a card can't be page-locked"
        return self._card.mark(tensor.clone(), PINNED)

    def _to(self, func, tensor, *args, **kwargs):
        other = args[0] if args else None
        if isinstance(other, Tensor):
            kwargs = {"device": self._card.card_of(other) or "cpu", "dtype": other.dtype} | kwargs
            args = args[1:]
        if isinstance(other, int) and not isinstance(other, bool):
            args = (torch.device(self._card.kind, other), *args[1:])
        copies = kwargs.pop("copy", False)
        device, dtype, non_blocking, layout = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None and device.type == "meta":
            return func(tensor, "meta", dtype=dtype)
        here = self._card.card_of(tensor)
        to = here if device is None else self._card.device(device)
        given = {} if layout is None else {"memory_format": layout}
        result = tensor if dtype is None and not given else func(tensor, dtype=dtype or tensor.dtype, **given)
        if to != here:
            return self._card.move(result, to, non_blocking=non_blocking)
        return result.clone() if copies and result is tensor else result

    def _backward(self, func, tensor, gradient=None, *rest, **kwargs):
        with self:
            torch.autograd.backward(tensor, gradient, *rest, **kwargs)

    def _cpu(self, func, tensor, *_, **__):
        return self._to(Tensor.to, tensor, "cpu")

    def _cuda(self, func, tensor, device=None, non_blocking=False, **_):
        return self._to(Tensor.to, tensor, self._card.device(device), non_blocking=non_blocking)

    def _read(self, func, tensor, *args, **kwargs):
        if self._card.card_of(tensor) is None:
            return func(tensor, *args, **kwargs)
        if func is not Tensor.tolist:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy (stand-in). Use Tensor.cpu() first."
            )
        self._card.read("tolist")
        return self._card.quietly(func, tensor)

    def _copy(self, func, into, source, non_blocking=False):
        return self._card.copy(into, source, non_blocking)

    def _copy_each(self, func, into, sources, non_blocking=False):
        for place, source in zip(into, sources, strict=True):
            self._card.copy(place, source, non_blocking)


ANSWERS = {
    Tensor.device.__get__: "_device",
    Tensor.is_cpu.__get__: "_is_cpu",
    Tensor.is_cuda.__get__: "_is_kind",
    Tensor.is_mps.__get__: "_is_kind",
    Tensor.get_device: "_index",
    Tensor.new: "_new",
    Tensor.is_pinned: "_is_pinned",
    Tensor.pin_memory: "_pin",
    Tensor.to: "_to",
    Tensor.backward: "_backward",
    Tensor.cpu: "_cpu",
    Tensor.cuda: "_cuda",
    Tensor.tolist: "_read",
    Tensor.numpy: "_read",
    Tensor.__array__: "_read",
    Tensor.copy_: "_copy",
    torch._foreach_copy_: "_copy_each",
}

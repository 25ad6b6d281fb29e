# SPDX-License-Identifier: Apache-2.0
"""A second witness beside the stand-in (`card.py`): torch's own fake CUDA tensors, where torch is a build for CUDA.

They have shapes and a device but no values, and go through torch's own dispatch to CUDA: a step's operations are those that it has
there, fused kernels among them. torch itself raises at what asks for a value; copies that wait are refused here. What needs a card
is replaced: events, generators, and the backward, which hands out gradients of the right shapes.
"""

from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from truestep.core import device_specific
from truestep.engine import backward, fused

DEVICE = torch.device("cuda", 0)
WITHOUT_FAKE = ("_fused_sgd_", "_fused_adagrad_")
"""Kernels that change tensors in place, and that torch has no fake of: they are taken as done."""


class WaitError(RuntimeError):
    """The host would wait for the card."""


class FakeCard:
    """Within `with FakeCard() as card:`, tensors on device="cuda:0" can be made and computed with, and none has a value."""

    def __init__(self):
        self.calls = set()
        """The names of what torch computed there."""
        self.refuses_copies = False
        """Whether copies that wait raise: modules and states are made with some."""
        self.num_backwards = 0
        self._parameters = []
        self._closing = ExitStack()

    def __enter__(self):
        for owner, names in self._names().items():
            for name, value in names.items():
                self._closing.enter_context(patch.object(owner, name, value))
        self._closing.enter_context(FakeTensorMode())
        self._closing.enter_context(_Watched(self))
        return self

    def __exit__(self, *_):
        self._closing.close()

    def put(self, make):
        """Return the module that `make` makes, on the card from the beginning; its parameters get gradients."""
        with DEVICE:
            module = make()
        self._parameters += module.parameters()
        return module

    def _backward(self, values, seeds, *_, **__):
        self.num_backwards += 1
        assert all(each.requires_grad and each.device == DEVICE for each in values)
        assert [each.shape for each in seeds] == [each.shape for each in values]
        for parameter in self._parameters:
            gradient = torch.empty_like(parameter)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def _names(self):
        return {
            torch: {"Event": _Event},
            torch.Tensor: {"numpy": _numpy},
            torch.accelerator: {"current_stream": lambda device: ("stream", device)},
            torch.cuda: {
                "init": lambda: None,
                "current_device": lambda: 0,
                "default_generators": (torch.Generator(),),
                "is_bf16_supported": lambda *_: True,
            },
            torch.cuda.amp.common: {"amp_definitely_not_available": lambda: False},
            nn.Module: {"to": _cast},
            device_specific: {"AsyncHostCopy": _Arrived},
            backward: {"_engine": lambda: self._backward},
            fused: {"refuse_unsavable_states": lambda optimizer: None},  # it refuses what is no plain tensor
        }


class _Watched(TorchDispatchMode):
    """Notes what is computed on the card, and refuses copies that wait, which fake tensors let pass."""

    def __init__(self, card):
        super().__init__()
        self._card = card

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        result = None if name in WITHOUT_FAKE else func(*args, **kwargs)
        if name == "_to_copy":
            places, non_blocking = (args[0], result), kwargs.get("non_blocking", False)
        elif name == "copy_":
            places, non_blocking = args[:2], any(args[2:])
        else:
            places = ()
        if (
            self._card.refuses_copies
            and places
            and places[0].is_cuda != places[1].is_cuda
            and not non_blocking
        ):
            raise WaitError(f"{name} between {places[0].device} and {places[1].device}")
        if any(isinstance(each, torch.Tensor) and each.is_cuda for each in _flat(args)):
            self._card.calls.add(name)
        return result


def _flat(args):
    for each in args:
        yield from each if isinstance(each, list | tuple) else (each,)


def _cast(module, device=None, dtype=None, **_):
    """`module.to` for a module that is there already: torch swaps fake parameters for their casts, and can't."""
    dtype = device if isinstance(device, torch.dtype) else dtype
    for each in module.modules() if dtype else ():
        for name, parameter in each._parameters.items():
            each._parameters[name] = parameter and nn.Parameter(parameter.detach().to(dtype))
    return module


def _numpy(tensor):
    assert not tensor.is_cuda, "can't convert a card's tensor to numpy"
    return np.empty(tensor.shape, str(tensor.dtype).removeprefix("torch."))


class _Event:
    def __init__(self, device):
        assert device == DEVICE

    def record(self, stream):
        assert stream == ("stream", DEVICE)  # of the tensor's device, whichever is the current one

    def query(self):
        return True

    def synchronize(self):
        pass


class _Arrived:
    """A report that has arrived: nothing was skipped."""

    def __init__(self, host, event):
        assert not host.is_cuda
        assert event is not None
        self._length = len(host)

    def read(self):
        return self

    def tolist(self):
        return [0.0] * self._length

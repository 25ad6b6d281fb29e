# SPDX-License-Identifier: Apache-2.0
"""A stand-in of an accelerator over the CPU's memory: within `with Card() as card:` device="cuda" can be used.

It stands below `truestep.core.device_specific`, at torch's own names, so that this room is tried, too. What it imitates:

* the tensors of a card know it (their storage is marked): `device`, `is_cpu`; two cards, or a card and the host, do not mix;
* what makes the host wait is counted, with its line: `item`, `bool`, `float`, `tolist`, `numpy`, `nonzero`, `torch.equal`, boolean
  indices, copies to the host, and copies from memory of the host that wait;
* copies that are not waited for hold NaN, or a number far off, until an event behind them is waited for, stream by stream;
* memory runs out at the n-th allocation;
* device="mps" has no float64, and loses what is copied without waiting.

What it does not: kernels take no time and have a CPU's bits; draws come from the host's generator; sparse tensors are the host's.
"""

import sys
from contextlib import ExitStack, nullcontext
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from support.card_modes import PINNED, CardDispatch, CardFunctions
from support.card_streams import CardEvent, CardStream, unseen

ROOT = str(Path(__file__).parents[2])
HERE = str(Path(__file__).parent / "card")
FUSED = {"CUDA": "adam adamw sgd adagrad", "MPS": "adam adamw sgd"}
NO_FLOAT64 = "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
GIB = 1 << 30


GENERATOR = torch.Generator


class _AsGenerator(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, GENERATOR)


class _HostGenerator(metaclass=_AsGenerator):
    """`torch.Generator` of any device, which is the host's."""

    def __new__(cls, device="cpu"):
        return GENERATOR()


class Card:
    """A machine with cards, in this thread, while the `with` block lasts."""

    def __init__(self, kind="cuda", count=1):
        self.kind, self.count, self.index = kind, count, 0
        self.reads = []
        """What made the host wait, with its line."""
        self.allocations, self.fails_at = 0, 0
        """How many tensors were made there, and at which number memory runs out."""
        self.calls = []
        """What torch was asked to compute there: names, shapes, numbers."""
        self.used_by = []
        """Tensors, and the stream that torch's allocator was told of."""
        self.is_quiet = self.raises = False
        self._marks = {}
        self._closing = ExitStack()

    def __enter__(self):
        made = type("Stream", (CardStream,), {"_card": self})
        self.current = [made(torch.device(self.kind, index)) for index in range(self.count)]
        self._default = list(self.current)
        for owner, names in self._names().items():
            for name, value in names.items():
                self._closing.enter_context(patch.object(owner, name, value))
        self._closing.enter_context(CardDispatch(self))
        self._closing.enter_context(CardFunctions(self))
        return self

    def __exit__(self, *_):
        self._closing.close()

    # ------------------------------------------------------------------ where tensors are

    def device(self, which=None):
        """Return a card by its number; None for the host."""
        if isinstance(which, int):
            return torch.device(self.kind, which)
        which = torch.device(self.kind if which is None else which)
        if which.type != self.kind:
            return None
        index = self.index if which.index is None else which.index
        if index >= self.count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return torch.device(self.kind, index)

    def place(self, tensor):
        """Return the card that a tensor is on, PINNED, or None: the host."""
        if tensor.layout != torch.strided or not self._marks:
            return None
        found = self._marks.get(tensor.untyped_storage()._cdata)
        return None if found is None else found[1]

    def card_of(self, tensor):
        place = self.place(tensor)
        return None if place is PINNED else place

    def mark(self, tensor, place):
        """Say where a new tensor is; return it."""
        if tensor.layout != torch.strided or tensor.is_meta:
            return tensor
        storage = tensor.untyped_storage()
        if place is None:
            self._marks.pop(storage._cdata, None)
            return tensor
        if place is not PINNED:
            self._check(tensor, is_new=storage._cdata not in self._marks)
        self._marks[storage._cdata] = StorageWeakRef(storage), place
        if len(self._marks) > 5000:
            self._marks = {key: found for key, found in self._marks.items() if not found[0].expired()}
        return tensor

    def _check(self, tensor, *, is_new):
        if self.kind == "mps" and tensor.dtype in (torch.float64, torch.complex128):
            raise TypeError(NO_FLOAT64)
        if is_new:
            self.allocations += 1
            if self.allocations == self.fails_at:
                raise torch.OutOfMemoryError("CUDA out of memory (stand-in).")

    def read(self, what):
        """Count what makes the host wait, with the innermost line that is ours."""
        if self.is_quiet:
            return
        frame = sys._getframe(1)
        while frame and (
            not frame.f_code.co_filename.startswith(ROOT) or frame.f_code.co_filename.startswith(HERE)
        ):
            frame = frame.f_back
        where = f"{frame.f_code.co_filename.removeprefix(ROOT)}:{frame.f_lineno}" if frame else "?"
        self.reads.append(f"{what} at {where}")
        if self.raises:
            raise RuntimeError(f"called a synchronizing operation ({self.reads[-1]}, stand-in)")

    # ------------------------------------------------------------------ copies

    def move(self, tensor, to, *, non_blocking=False):
        """Return a copy on another card, or the host's (page-locked where nobody waits for it)."""
        here = self.card_of(tensor)
        moved = self.quietly(tensor.clone)
        self.mark(moved, to or (PINNED if non_blocking else None))
        self._copied(moved, tensor, here, to, non_blocking)
        return moved

    def copy(self, into, source, non_blocking=False):
        """Copy values between tensors that are anywhere."""
        here, to = self.card_of(source), self.card_of(into)
        self.quietly(into.copy_, source)
        if here != to:
            self._copied(into, source, here, to, non_blocking and (to or self.place(into) is PINNED))
        return into

    def quietly(self, function, *arguments):
        """Call what is a part of one of the card's own actions: it is not counted."""
        before, self.is_quiet = self.is_quiet, True
        try:
            return function(*arguments)
        finally:
            self.is_quiet = before

    def _copied(self, into, source, here, to, non_blocking):
        if here is not None and to is not None:
            return  # from card to card nobody waits
        if not non_blocking:
            self.read("a copy to the host" if to is None else "a copy from the host that waits")
            return
        stream = self.current[(here or to).index]
        if self.kind == "cuda" and to is not None and stream is self._default[to.index]:
            return  # what comes after in this stream sees it
        with unseen():
            target = into.detach()
            # a copy to the host has the values that the stream had here; one from the host reads when its turn comes
            values = source.detach().clone() if to is None else source.detach()
            target.fill_(float("nan") if target.is_floating_point() else 77)
        if self.kind == "cuda":  # on MPS the source may be gone when it is read
            stream.put(lambda: target.copy_(values))

    # ------------------------------------------------------------------ torch's own names

    def _grouped(self, found):
        """Have an optimizer's tensors on the card that they are on; of several cards one at a time."""
        return {
            (self.card_of(group[0][0][0]) or device, dtype): group for (device, dtype), group in found.items()
        }

    def _names(self):
        generators = tuple(torch.Generator() for _ in range(self.count))
        autocast, by_device = torch.autocast.__init__, torch._C._group_tensors_by_device_and_dtype
        stream_of = lambda device=None: self.current[self.device(device).index]
        return {
            torch: {
                "Event": type("Event", (CardEvent,), {"_card": self}),
                "Stream": type("Stream", (CardStream,), {"_card": self}),
                "Generator": _HostGenerator,
            },
            torch.accelerator: {
                "is_available": lambda: True,
                "current_accelerator": lambda *_, **__: torch.device(self.kind),
                "current_device_index": lambda: self.index,
                "current_stream": stream_of,
                "set_device_index": lambda index: setattr(self, "index", self.device(index).index),
                "get_memory_info": lambda device=None: (GIB, 2 * GIB),
                "max_memory_allocated": lambda device=None: 1000 + self.device(device).index,
                "synchronize": lambda device=None: stream_of(device).synchronize(),
            },
            # so that hooks, and backwards written in Python, see cards
            torch.autograd: {
                "has_torch_function": lambda given: any(
                    type(each) not in (torch.Tensor, torch.nn.Parameter) for each in given
                )
            },
            torch.cuda: {
                "is_available": lambda: self.kind == "cuda",
                "device_count": lambda: self.count,
                "get_device_name": lambda device=None: "stand-in",
                "current_device": lambda: self.index,
                "empty_cache": lambda: None,
                "synchronize": lambda device=None: stream_of(device).synchronize(),
                "init": lambda: None,
                "default_generators": generators,
                "is_current_stream_capturing": lambda: False,
                "set_sync_debug_mode": lambda mode: setattr(self, "raises", mode == "error"),
            },
            # a CUDA build of torch would ask the driver that is not there
            torch.backends.cudnn: {"version": lambda: 90000},
            torch.mps: {
                "get_rng_state": generators[0].get_state,
                "manual_seed": generators[0].manual_seed,
                "set_rng_state": generators[0].set_state,
                "empty_cache": lambda: None,
            },
            torch.Tensor: {"record_stream": lambda tensor, stream: self.used_by.append((tensor, stream))},
            torch._C: {
                "_dispatch_has_kernel_for_dispatch_key": lambda name, key: any(
                    name == f"aten::_fused_{each}_" for each in FUSED.get(key, FUSED["CUDA"]).split()
                ),
                "_group_tensors_by_device_and_dtype": lambda *given: self._grouped(by_device(*given)),
            },
            # the doctor's checks, too, are to see where tensors are
            import_module("truestep.doctor.runtime.dispatcher"): {"DisableTorchFunction": nullcontext},
            torch.autocast: {
                "__init__": lambda own, device_type, *rest, **named: autocast(
                    own, "cpu" if device_type == self.kind else device_type, *rest, **named
                )
            },
        }

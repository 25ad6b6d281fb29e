# SPDX-License-Identifier: Apache-2.0
"""One application of a model within a sealed child, operation by operation; two of them, on other inputs, show where values mix."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from truestep.core.per_example_random import use_global_random_stream
from truestep.doctor.runtime.operations import WatchedOperationMode
from truestep.doctor.runtime.probed_model import ProbedModel
from truestep.doctor.runtime.tensor_queries import is_plain_watched_tensor, watched_tensors
from truestep.doctor.runtime.user_code_line import path_in_finding, watched_user_line

MOST_BYTES = 1 << 28  # of values that are kept; a passage with more tells no places


@dataclass(eq=False)
class ProbedValue:
    """One operation of a passage, its result, and which earlier ones it was given."""

    operation: str
    path: str
    line: int
    layer: str  # its path in the model
    value: Tensor
    before: tuple[ProbedValue, ...]

    @property
    def place(self) -> str:
        """Where it was computed, as evidence has it."""
        return f"{self.path}:{self.line}"

    def told(self, model: str) -> str:
        """Return `softmax at network.py:42 (net.head.act)`; the model by its variable."""
        layer = ".".join(each for each in (model, self.layer) if each)
        return f"{self.operation} at {path_in_finding(self.path)}:{self.line} ({layer})"


class ProbePassage:
    """The operations of one application; each starts from the same random numbers.

    Args:
        trial: the model.
        changed: other tensors for some inputs, by position or name.
        seed: of the random numbers.
    """

    def __init__(
        self,
        trial: ProbedModel,
        changed: Mapping[int | str, Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        self.steps: list[ProbedValue] = []
        self._names = {id(module): name for name, module in trial.module.named_modules()}
        self._layers: list[str] = []
        self._known: dict[int, ProbedValue] = {}
        self._alive: list[Tensor] = []  # so that no identity comes again
        self._bytes = 0
        use_global_random_stream()  # an update's own draws would be other numbers in each passage
        torch.manual_seed(seed)
        random.seed(seed)  # in a sealed child: whether a decoder is taught is often asked of Python's
        np.random.seed(seed)
        mode = WatchedOperationMode(self._note_operation)
        handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module),
        ]
        mode.switch(True)
        try:
            self.outputs = list(watched_tensors(trial.apply(changed)))
        finally:
            mode.switch(False)
            for handle in handles:
                handle.remove()

    def _enter_module(self, module: nn.Module, _args: Any) -> None:
        self._layers.append(self._names.get(id(module), type(module).__name__))

    def _leave_module(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        self._layers.pop()

    def _note_operation(self, name: str, result: Any, given: list[Tensor], *_: Any) -> None:
        path, line = watched_user_line()
        before = tuple(self._known[id(each)] for each in given if id(each) in self._known)
        for each in (result,) if isinstance(result, Tensor) else result:
            if isinstance(each, Tensor) and is_plain_watched_tensor(each) and self._bytes <= MOST_BYTES:
                kept = each.detach().clone() if any(each is one for one in given) else each.detach()
                self._bytes += each.nbytes
                made = ProbedValue(name, path, line, self._layers[-1] if self._layers else "", kept, before)
                self.steps.append(made)
                self._known[id(each)] = made
                self._alive.append(each)

    @property
    def is_whole(self) -> bool:
        """Whether every operation is known."""
        return self._bytes <= MOST_BYTES

    @property
    def output(self) -> Tensor | None:
        """The first tensor of the output."""
        return self.outputs[0] if self.outputs else None

    def values_behind_output(self, output: int = 0) -> list[ProbedValue]:
        """Return what a tensor of the output was made of, in the order of computation."""
        found: set[int] = set()
        last = self._known.get(id(self.outputs[output]))
        waiting = [last] if last is not None else []
        while waiting:
            current = waiting.pop()
            if id(current) not in found:
                found.add(id(current))
                waiting += current.before
        return [each for each in self.steps if id(each) in found]


def probed_values_differ(first: Tensor, second: Tensor) -> Tensor:
    """Return which elements of two values differ by more than rounding."""
    if not first.is_floating_point():
        return first != second
    size = first.detach().abs().nan_to_num().max() if first.numel() else first.new_zeros(())
    return ~torch.isclose(first, second, rtol=1e-4, atol=1e-6 * float(size), equal_nan=True)


def align_passages(passages: list[ProbePassage], output: int = 0) -> list[tuple[ProbedValue, list[Tensor]]]:
    """Return the operations on the way to a tensor of the first one's output, each with its value in every passage.

    Where the passages took different ways, what follows is left out.
    """
    base, *others = passages
    wanted = {id(each) for each in base.values_behind_output(output)}
    found: list[tuple[ProbedValue, list[Tensor]]] = []
    for steps in zip(*(each.steps for each in passages), strict=False):
        if len({(each.operation, each.value.shape) for each in steps}) > 1:
            break
        if id(steps[0]) in wanted:
            found.append((steps[0], [each.value for each in steps]))
    return found if base.is_whole and others else []


def memory_identity(tensor: Tensor) -> int:
    """Return what tells whether two tensors are forms of one."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)

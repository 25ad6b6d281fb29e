# SPDX-License-Identifier: Apache-2.0
"""Follows the results of layers within a forward: those that nothing is computed from, and that are not handed on, are lost."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from truestep.core.state_trees import tree_leaves
from truestep.core.user_frames import is_library_file
from truestep.doctor.experiments.follower_base import StepFollower
from truestep.doctor.relations.trials.cuts import non_leaf_nodes
from truestep.doctor.runtime.user_code_line import watched_user_place

# to a result of which nobody else knows: its entry, and the argument of the call that counts
_OWN_REFERENCES = 2


@dataclass
class LayerResult:
    """What a layer returned to the forward that called it."""

    layer: str
    place: str
    value: Tensor


@dataclass
class _ModuleCall:
    module: nn.Module
    results: list[LayerResult] = field(default_factory=list)


class LayerResultFollower(StepFollower):
    """Within it each result is followed until a backward.

    Args:
        layers: the modules by name.

    It finds:
        lost: the layers whose results are, each with its line.
    """

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__(lost=[])
        self._names = {id(module): name for name, module in layers.items()}
        self._calls: list[_ModuleCall] = []
        self._dropped: list[LayerResult] = []  # by the forward that called for them
        self._used: set[int] = set()

    def __enter__(self) -> Self:
        register_module_forward_pre_hook(self._before_forward)
        register_module_forward_hook(self._after_forward)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    # a backward uses results, too
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in ("__get__", "size", "dim", "__len__"):
            self._used.update(id(each) for _, each in tree_leaves((args, kwargs)) if isinstance(each, Tensor))
        return func(*args, **(kwargs or {}))

    def goes_backward(self, roots: Sequence[Any]) -> None:
        """Note what is lost by now; what a backward computes anew is not followed."""
        super().goes_backward(roots)
        reached = non_leaf_nodes([each for each in roots if isinstance(each, Tensor)])
        waiting, self._dropped = self._dropped, []
        while waiting:
            each = waiting.pop(0)
            told = f"{each.layer} {each.place}"
            is_lost = id(each.value) not in self._used and each.value.grad_fn not in reached
            if is_lost and sys.getrefcount(each.value) <= _OWN_REFERENCES:
                self.note("lost", told)

    def _before_forward(self, module: nn.Module, _args: Any) -> None:
        if not self._rests:
            self._calls.append(_ModuleCall(module))

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> Any:
        if self._rests or not any(each.module is module for each in self._calls):
            return None
        while (call := self._calls.pop()).module is not module:
            pass  # a forward that raised
        returned = [each for _, each in tree_leaves(output) if isinstance(each, Tensor)]
        known = {id(each) for each in returned}
        self._dropped += [each for each in call.results if id(each.value) not in known]
        if len(returned) != 1 or returned[0] is not output or output.grad_fn is None:
            return None  # of several results some are often for nothing
        if not self._calls or _is_library_module(self._calls[-1].module) or getattr(module, "inplace", False):
            return None
        # what a layer at rest hands through is followed as a tensor of its own
        result = output.view_as(output) if any(each is output for each in args) else output
        self._used.discard(id(result))  # of a tensor that was there before
        name = self._names.get(id(module), type(module).__name__)
        self._calls[-1].results.append(LayerResult(name, str(watched_user_place()), result))
        return result


def _is_library_module(module: nn.Module) -> bool:
    code = getattr(type(module).forward, "__code__", None)
    return code is None or is_library_file(code.co_filename)

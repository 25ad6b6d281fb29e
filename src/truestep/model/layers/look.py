# SPDX-License-Identifier: Apache-2.0
"""One look at a model: hooks for the length of an update, and what they found as one tensor."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.device_specific import move_to_one_device
from truestep.core.state_trees import tree_leaves
from truestep.core.uncopied_hooks import HookOfOriginal
from truestep.model.layers.interval import LookCostClock
from truestep.model.layers.measures import (
    NUM_BINS,
    OTHERS,
    STEPS,
    activation_kind_of_module,
    gradient_histogram,
    layer_measures_and_histogram,
    nonzero_root_mean_squares,
    sample_rows_by_unit,
    sample_tensor_values,
)

MAX_LAYERS = 256
CONVOLUTIONS = nn.modules.conv._ConvNd
KEEPING = ("MaxPool", "View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Permute", "Transpose")
SCALING = ("NativeDropout", "MulBackward", "AvgPool", "MeanBackward")  # zeros stay zeros
KEPT = 7  # earlier looks whose silent units count


@dataclass
class LayerMeasurements:
    """A place that is looked at: a module, or what a function gave to one."""

    name: str
    kind: str
    type: str
    silent: list[Tensor] = field(default_factory=list)


def layers_to_watch(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules with matrices of their own, and the activations, by name; of very many the first and the last."""
    found = {
        name or type(module).__name__: module
        for name, module in model.named_modules()
        if (_trainable_matrices(module) or activation_kind_of_module(module) or isinstance(module, OTHERS))
        and not isinstance(module, torch.jit.ScriptModule)
    }
    names = list(found)
    if len(names) > MAX_LAYERS:
        names = [*names[: MAX_LAYERS // 2], *names[-MAX_LAYERS // 2 :]]
    return {name: found[name] for name in names}


def _trainable_matrices(module: nn.Module) -> list[nn.Parameter]:
    return [each for each in module.parameters(recurse=False) if each.dim() >= 2 and each.requires_grad]


class LookHooks:
    """Hooks on the layers from `begin` to `end`."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        layers: dict[str, LayerMeasurements],
        clock: LookCostClock,
        *,
        counts_gradients: bool = False,
    ) -> None:
        self._clock, self._counts_gradients = clock, counts_gradients
        self._modules = modules
        self._names = {module: name for name, module in modules.items()}
        self._matrices = {
            name: found[0] for name, module in modules.items() if (found := _trainable_matrices(module))
        }
        self._layers = layers
        self._handles: list[Any] = []
        self._accumulators: list[Any] = []  # of gradients, held so that a forward uses the same ones
        self._given: dict[str, Tensor] = {}  # by layer, in the order of the forward
        self._back: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}
        self._before: dict[str, Tensor] = {}
        self._outputs: set[int] = set()
        self._functions: set[Any] = set()  # of autograd, that gave the outputs
        self._kept: list[Tensor] = []  # so that their ids are theirs
        self._by_channel = False

    def begin(self) -> None:
        """Attach the hooks, and note some of each weight."""
        for module in self._modules.values():
            self._handles.append(module.register_forward_hook(HookOfOriginal(self._measure_after_forward)))
        for name, matrix in self._matrices.items():
            self._before[name] = sample_tensor_values(matrix)
            self._hook_weight_gradient(name, matrix)

    @torch.enable_grad()
    def _hook_weight_gradient(self, name: str, matrix: nn.Parameter) -> None:
        """Hear of the gradient when it has been accumulated.

        A hook on the parameter would stay, empty, and slow every later backward by a microsecond. What accumulates is torch's own
        object, which is gone with the last graph that uses it, and its hook with it.
        """
        function = matrix.view_as(matrix).grad_fn
        accumulator = function.next_functions[0][0] if function is not None else None
        if accumulator is None:  # it was frozen since
            return
        self._handles.append(accumulator.register_hook(lambda *_: self._record_weight_gradient(name, matrix)))
        self._accumulators.append(accumulator)

    def _record_weight_gradient(self, name: str, matrix: nn.Parameter) -> None:
        with self._clock, torch.no_grad(), suppress(Exception):
            if matrix.grad is not None:
                self._gradients[name] = sample_tensor_values(matrix.grad)

    @torch.no_grad()
    def _measure_tensor(self, name: str, kind: str, type_: str, tensor: Tensor) -> None:
        layer = self._layers.setdefault(name, LayerMeasurements(name, kind, type_))
        axis = 1 if tensor.dim() > 3 or (tensor.dim() == 3 and self._by_channel) else -1
        if name not in self._given:  # of several calls the first
            silent = layer.silent
            if silent and kind == "relu" and silent[0].numel() != tensor.shape[axis]:
                silent.clear()
            self._given[name] = layer_measures_and_histogram(sample_rows_by_unit(tensor, axis), kind, silent)
            del silent[KEPT:]

    def _measure_after_forward(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if _is_plain_training_forward():
            # Here as in each hook: what can't be measured is left out, and the training goes on.
            with self._clock, suppress(Exception):
                self._measure_module_output(module, args, output)

    def _measure_module_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        name = self._names[module]
        given = next((each for each in args if isinstance(each, Tensor)), None)
        if given is not None and id(given) not in self._outputs and name in self._matrices:
            kind = _functional_activation_kind(given, self._functions)
            if kind:  # a function's result, which no module gave
                self._measure_tensor(f"{kind} before {name}", kind, kind, given)
        tensors = (leaf for _, leaf in tree_leaves(output) if isinstance(leaf, Tensor))
        tensor = next((each for each in tensors if each.is_floating_point() and each.numel()), None)
        if tensor is None:
            return
        if name in self._matrices:
            self._by_channel = isinstance(module, CONVOLUTIONS)
        self._outputs.add(id(tensor))
        self._functions.add(tensor.grad_fn)
        self._kept.append(tensor)
        self._measure_tensor(name, activation_kind_of_module(module), type(module).__name__, tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            self._handles.append(tensor.register_hook(partial(self._record_output_gradient, name)))  # type: ignore[no-untyped-call]

    def _record_output_gradient(self, name: str, gradient: Tensor | None) -> None:
        # None is what a backward through a convolution's backward gives, as a gradient penalty makes one.
        if gradient is not None:
            with self._clock, torch.no_grad(), suppress(Exception):
                self._back[name] = sample_tensor_values(gradient)

    def end(self) -> "tuple[list[str], Tensor] | None":
        """Take the hooks away; return the layers' names and a row of numbers for each, still on the device."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._kept, self._accumulators = [], [], []
        self._functions.clear()  # they hold the forward's tensors
        if not self._given:
            return None
        with torch.no_grad():
            rows = [
                torch.cat([flow, given, *self._gradient_histograms(name, flow)])
                for flow, (name, given) in zip(self._layer_sizes_tensors(), self._given.items(), strict=True)
            ]
            return list(self._given), torch.stack(move_to_one_device(rows))

    def _layer_sizes_tensors(self) -> list[Tensor]:
        """Return each layer's sizes: of what came back through it, its gradient, weight and update; -1: there is none."""
        samples: dict[tuple[str, int], Tensor] = {}
        for name in self._given:
            for column, kept in enumerate((self._back, self._gradients)):
                if name in kept:
                    samples[name, column] = kept[name]
            if name in self._before:
                now = sample_tensor_values(self._matrices[name])
                samples[name, 2], samples[name, 3] = now, now - self._before[name]
        sizes = dict(zip(samples, nonzero_root_mean_squares(list(samples.values())), strict=True))
        return [
            torch.stack([sizes.get((name, column), given.new_full((), -1.0)) for column in range(4)])
            for name, given in self._given.items()
        ]

    def _gradient_histograms(self, name: str, flow: Tensor) -> list[Tensor]:
        """Return the histogram of a weight's gradient where it is wanted; all 0 where there is no gradient."""
        if not self._counts_gradients:
            return []
        found = self._gradients.get(name)
        return [flow.new_zeros(NUM_BINS) if found is None else gradient_histogram(found, flow[1])]


def _functional_activation_kind(tensor: Tensor, of_modules: set[Any]) -> str:
    """Return which activation, called as a function, gave a tensor; between them may be pooling, a view, for zeros dropout."""
    function, may_scale = tensor.grad_fn, False
    for _ in range(4):
        if function is None or function in of_modules:
            break
        name = function.name()
        if name in STEPS:
            return "" if may_scale and STEPS[name] != "relu" else STEPS[name]
        if not name.startswith((*KEEPING, *SCALING)):
            break
        may_scale |= name.startswith(SCALING)
        function = function.next_functions[0][0] if function.next_functions else None
    return ""


def _is_plain_training_forward() -> bool:
    """Whether this is a forward of a training: no evaluation, no recomputation within a backward, no transformed function."""
    return (
        torch.is_grad_enabled()
        and torch._C._current_graph_task_id() == -1
        and torch._C._functorch.peek_interpreter_stack() is None
    )

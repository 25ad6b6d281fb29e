# SPDX-License-Identifier: Apache-2.0
"""Recording and editing what flows through named layers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from truestep.core.errors import LossError, OptionError
from truestep.core.module_inspection import as_module
from truestep.nn.derivatives.side_effect_free_call import derivatives_without_compiled_code
from truestep.nn.layer_lookup import match_layer_names

Layers = str | nn.Module | Sequence[str | nn.Module]
Edit = Callable[[str, Any], Any]


@contextmanager
def capture(
    model: object,
    layers: Layers,
    *,
    edit: Edit | None = None,
    edit_gradient: Edit | None = None,
    detach: bool = True,
) -> "Iterator[Captured]":
    """Record the outputs of layers, and the gradients that reach them, until the end of the `with` block.

    `captured["layer4.0"].outputs` and `.gradients` are lists with one entry for each call of the layer, so that a layer
    that is used twice has two. Everything is copied, since the next layer may work in place. The backward has to run inside
    the block. At its end no hook is left, also after an exception. Inside it, modules made by `torch.compile` run as their
    originals, because compiled code skips hooks that come later.

    Args:
        model: a module, or a learner of a run.
        layers: names (`model.named_modules()`), patterns as in a shell (`*` matches dots too), modules of the model, or
            several of these.
        edit: called as `edit(name, output)` after each call of a layer; what it returns takes the place of the output, and
            None leaves it. Recorded is what flows on.
        edit_gradient: the same for each tensor of an output and the gradient of the loss with respect to it; recorded is
            what flows back.
        detach: whether what is recorded is cut from the graph; False to compute a loss from it (perceptual losses).

    Raises:
        OptionError: a layer does not exist (the nearest names are listed), is no part of the model, or is never called itself
            (`nn.ModuleList`).
    """
    for option, function in (("edit", edit), ("edit_gradient", edit_gradient)):
        if function is not None and not callable(function):
            raise OptionError(f"{option}={function!r} is no function: lambda name, value: value * 2 is one.")
    captured = Captured(_named_layers(as_module(model, "ts.capture"), layers))
    with ExitStack() as hooks:
        hooks.enter_context(derivatives_without_compiled_code())
        recorder = _CaptureHooks(hooks, edit, edit_gradient, detach)
        for layer in captured.once():
            hooks.callback(layer.module.register_forward_hook(recorder.forward_hook_for_layer(layer)).remove)
        yield captured


class Captured(Mapping[str, "CapturedLayer"]):
    """What `ts.capture` recorded, by the layer's name (any of its names, where it has several) or by the layer itself."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        by_module: dict[nn.Module, CapturedLayer] = {}
        self._layers = {
            name: by_module.setdefault(module, CapturedLayer(name, module, self))
            for name, module in modules.items()
        }
        self.gradients_arrived = 0

    def once(self) -> "Iterable[CapturedLayer]":
        """Return each layer once, whatever the number of its names."""
        return dict.fromkeys(self._layers.values())

    def __getitem__(self, layer: str | nn.Module) -> "CapturedLayer":
        for name, found in self._layers.items():
            if layer in (name, found.module):
                return found
        raise KeyError(f"{layer!r} was not captured; captured were: {', '.join(self._layers)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"Captured({', '.join(map(str, self.once()))})"


class CapturedLayer:
    """The outputs of one layer, one entry for each call, and the gradients that reached them.

    Attributes:
        name: the first name of the layer in its model; `module` is the layer, `owner` what holds its record.
        outputs: what the layer returned, in the structure in which it did (a tensor, the tuple of an LSTM).
    """

    def __init__(self, name: str, module: nn.Module, owner: Captured) -> None:
        self.name, self.module, self.owner = name, module, owner
        self.outputs: list[Any] = []
        self._calls: list[tuple[list[Tensor | None], pytree.TreeSpec]] = []

    def __repr__(self) -> str:
        return f"{self.name}: {len(self.outputs)} call{'s' * (len(self.outputs) != 1)}"

    @property
    def gradients(self) -> list[Any]:
        """The gradients of the loss in the structure of the outputs, None where none arrived; several backwards add up."""
        if not self.owner.gradients_arrived:
            raise LossError(
                f"No gradient has reached {self.name!r} or another captured layer. Run backward() inside the `with` block of "
                "ts.capture, on a loss that depends on these layers and was not computed under torch.no_grad()."
            )
        return [pytree.tree_unflatten(list(gradients), spec) for gradients, spec in self._calls]

    def add(self, kept: list[Any], spec: pytree.TreeSpec) -> list[Tensor | None]:
        """Note one call; return where its gradients are to be written."""
        self.outputs.append(pytree.tree_unflatten(kept, spec))
        gradients: list[Tensor | None] = [None] * len(kept)
        self._calls.append((gradients, spec))
        return gradients


@dataclass(frozen=True)
class _CaptureHooks:
    """Makes the hooks of one `with` block; those on tensors, whose graph may live on, come off at its end too."""

    hooks: ExitStack
    edit: Edit | None
    edit_gradient: Edit | None
    detach: bool

    def forward_hook_for_layer(self, layer: "CapturedLayer") -> Callable[[nn.Module, Any, Any], Any]:
        """Return the forward hook of one layer."""

        def forward_hook(called: nn.Module, _: Any, output: Any) -> Any:
            if called is not layer.module:  # a copy of the model that was made inside the block
                return None
            edited = None if self.edit is None else self.edit(layer.name, output)
            self._record_layer_output(layer, output if edited is None else edited)
            return edited

        return forward_hook

    def _record_layer_output(self, layer: "CapturedLayer", output: Any) -> None:
        leaves, spec = pytree.tree_flatten(output)
        gradients = layer.add([self._copy_for_capture(leaf) for leaf in leaves], spec)
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                handle = leaf.register_hook(self._gradient_hook(layer, gradients, index))  # type: ignore[no-untyped-call]
                self.hooks.callback(handle.remove)

    def _gradient_hook(
        self, layer: "CapturedLayer", gradients: list[Tensor | None], index: int
    ) -> Callable[[Tensor | None], Tensor | None]:
        def record_gradient(gradient: Tensor | None) -> Tensor | None:
            if gradient is None:  # a backward through a convolution's backward, where nothing comes this way
                return None
            edited: Tensor | None = None
            if self.edit_gradient is not None:
                edited = self.edit_gradient(layer.name, gradient)
            passed = self._copy_for_capture(gradient if edited is None else edited)
            held = gradients[index]
            gradients[index] = passed if held is None else held + passed
            layer.owner.gradients_arrived += 1
            return edited

        return record_gradient

    def _copy_for_capture(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.detach().clone() if self.detach else value.clone()


def _named_layers(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    known = dict(model.named_modules(remove_duplicate=False))
    asked = layers if isinstance(layers, Sequence) and not isinstance(layers, str) else [layers]
    if not asked:
        raise OptionError("ts.capture was given no layers; name at least one.")
    found: dict[str, nn.Module] = {}
    for each in asked:
        if isinstance(each, str):
            names = match_layer_names(each, known, "layer")
        elif not (names := [name for name, module in known.items() if module is each]):
            raise OptionError(
                f"The layer {type(each).__name__} is no part of the model; give one of its modules, or their names."
            )
        found |= {name: known[name] for name in _layers_with_forward(names, known)}
    return found


def _layers_with_forward(names: list[str], known: Mapping[str, nn.Module]) -> list[str]:
    """Leave out containers, which have no forward (`nn.ModuleList`)."""
    if scripted := [name for name in names if isinstance(known[name], torch.jit.ScriptModule)]:
        raise OptionError(f"{scripted[0]!r} is scripted, which takes no hooks. Capture the original module.")
    called = [name for name in names if type(known[name]).forward is not nn.Module.forward]
    if not called:
        kind = type(known[names[0]]).__name__
        raise OptionError(
            f"{names[0]!r} is of type {kind}, which is never called itself. Capture what it holds: {names[0] + '.*'!r}."
        )
    return called

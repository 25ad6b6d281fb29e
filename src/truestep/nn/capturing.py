# SPDX-License-Identifier: Apache-2.0
"""Recording and editing what flows through named layers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from truestep.core.errors import LossError, OptionError
from truestep.nn.derivatives.undisturbed import eager
from truestep.nn.layers import model_of, select

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
    _check_edits(edit=edit, edit_gradient=edit_gradient)
    captured = Captured(_named_layers(model_of(model, "ts.capture"), layers))
    watcher = _Watcher(captured, edit, edit_gradient, detach=detach)
    with ExitStack() as stack:
        stack.callback(watcher.remove_tensor_hooks)
        stack.enter_context(eager())
        for layer, part in captured.parts():
            stack.callback(part.register_forward_hook(watcher.hook_for(layer, part)).remove)
        yield captured


class Captured(Mapping[str, "CapturedLayer"]):
    """What `ts.capture` recorded, by the layer's name (any of its names, where it has several) or by the layer itself."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        by_identity: dict[int, CapturedLayer] = {}
        self._modules = modules
        self._layers: dict[str, CapturedLayer] = {}
        for name, module in modules.items():
            self._layers[name] = by_identity.setdefault(id(module), CapturedLayer(name, self))
        self.gradients_arrived = 0

    def parts(self) -> "Iterator[tuple[CapturedLayer, nn.Module]]":
        """Yield each layer once, with its module."""
        return ((layer, self._modules[name]) for name, layer in self._layers.items() if layer.name == name)

    def __getitem__(self, layer: str | nn.Module) -> "CapturedLayer":
        found = [name for name, module in self._modules.items() if layer in (name, module)]
        if not found:
            raise KeyError(f"{layer!r} was not captured; captured were: {', '.join(self._layers)}")
        return self._layers[found[0]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"Captured({', '.join(str(layer) for layer, _ in self.parts())})"


class CapturedLayer:
    """The outputs of one layer, one entry for each call, and the gradients that reached them.

    Attributes:
        name: the first name of the layer in its model.
        outputs: what the layer returned, in the structure in which it did (a tensor, the tuple of an LSTM).
    """

    def __init__(self, name: str, owner: Captured) -> None:
        self.name = name
        self.outputs: list[Any] = []
        self._calls: list[tuple[list[Tensor | None], pytree.TreeSpec]] = []
        self._owner = owner

    def __repr__(self) -> str:
        return f"{self.name}: {len(self.outputs)} call{'s' * (len(self.outputs) != 1)}"

    @property
    def gradients(self) -> list[Any]:
        """The gradients of the loss in the structure of the outputs, None where none arrived; several backwards add up."""
        if not self._owner.gradients_arrived:
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


class _Watcher:
    """The hooks of one `with` block."""

    def __init__(
        self, captured: Captured, edit: Edit | None, edit_gradient: Edit | None, *, detach: bool
    ) -> None:
        self._captured = captured
        self._edit = edit
        self._edit_gradient = edit_gradient
        self._detach = detach
        self._handles: list[Any] = []

    def hook_for(self, layer: CapturedLayer, part: nn.Module) -> Callable[[nn.Module, Any, Any], Any]:
        """Return the forward hook of one layer."""

        def hook(called: nn.Module, _: Any, output: Any) -> Any:
            if called is not part:  # a copy of the model that was made inside the block
                return None
            edited = None if self._edit is None else self._edit(layer.name, output)
            self._record(layer, output if edited is None else edited)
            return edited

        return hook

    def _record(self, layer: CapturedLayer, output: Any) -> None:
        leaves, spec = pytree.tree_flatten(output)
        gradients = layer.add([self._copy(leaf) for leaf in leaves], spec)
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                hook = self._gradient_hook(layer, gradients, index)
                self._handles.append(leaf.register_hook(hook))  # type: ignore[no-untyped-call]

    def _gradient_hook(
        self, layer: CapturedLayer, gradients: list[Tensor | None], index: int
    ) -> Callable[[Tensor], Tensor | None]:
        def hook(gradient: Tensor) -> Tensor | None:
            edited: Tensor | None = None
            if self._edit_gradient is not None:
                edited = self._edit_gradient(layer.name, gradient)
            passed = self._copy(gradient if edited is None else edited)
            held = gradients[index]
            gradients[index] = passed if held is None else held + passed
            self._captured.gradients_arrived += 1
            return edited

        return hook

    def _copy(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.detach().clone() if self._detach else value.clone()

    def remove_tensor_hooks(self) -> None:
        """Take the hooks off the outputs, whose graph may live on."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _named_layers(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    known = dict(model.named_modules(remove_duplicate=False))
    asked = layers if isinstance(layers, Sequence) and not isinstance(layers, str) else [layers]
    if not asked:
        raise OptionError("ts.capture was given no layers; name at least one.")
    found: dict[str, nn.Module] = {}
    for each in asked:
        names = select(each, known, "layer") if isinstance(each, str) else _names_of(each, known)
        found |= {name: known[name] for name in _that_are_called(names, known)}
    return found


def _names_of(layer: object, known: Mapping[str, nn.Module]) -> list[str]:
    names = [name for name, module in known.items() if module is layer]
    if not names:
        raise OptionError(
            f"The layer {type(layer).__name__} is no part of the model; give one of its modules, or their names."
        )
    return names


def _that_are_called(names: list[str], known: Mapping[str, nn.Module]) -> list[str]:
    """Leave out containers, which have no forward (`nn.ModuleList`)."""
    if scripted := [name for name in names if isinstance(known[name], torch.jit.ScriptModule)]:
        raise OptionError(
            f"{scripted[0]!r} is scripted, and torch takes no hooks there. Capture the original module."
        )
    called = [name for name in names if type(known[name]).forward is not nn.Module.forward]
    if not called:
        kind = type(known[names[0]]).__name__
        raise OptionError(
            f"{names[0]!r} is of type {kind}, which is never called itself. Capture what it holds: {names[0] + '.*'!r}."
        )
    return called


def _check_edits(**edits: object) -> None:
    for name, edit in edits.items():
        if edit is not None and not callable(edit):
            raise OptionError(f"{name}={edit!r} is no function: write {name}=lambda name, value: value * 2.")

# SPDX-License-Identifier: Apache-2.0
"""Taking parameters, and running statistics, out of training and back."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from truestep.core.errors import OptionError
from truestep.core.module_inspection import as_module
from truestep.core.result_display import Result
from truestep.core.text_formatting import a_type, first_few
from truestep.nn.layer_lookup import layer_tensor_name, match_layer_names_with_children, refuse_lazy_layers

SHOWN_NAMES = 6


@dataclass(frozen=True, kw_only=True)
class Freezing(Result):
    """What `ts.freeze` or `ts.unfreeze` changed; `undo()`, or the end of a `with` block, puts it back.

    Attributes:
        trains: whether the parameters train now (False after `ts.freeze`).
        parameters: the names of those that changed; a tied one under all its names.
        num_elements: how many numbers they hold, tied ones counted once.
        unchanged: the names that were asked for and were so already.
        statistics: layers whose running statistics were frozen (or released, by `ts.unfreeze`).
        moving_statistics: layers whose weights are frozen while their running statistics still follow the data.
        with_gradient: frozen parameters that hold a gradient: an optimizer steps them once more, until `zero_grad()`.
    """

    trains: bool
    parameters: tuple[str, ...]
    num_elements: int
    unchanged: tuple[str, ...]
    statistics: tuple[str, ...] = ()
    moving_statistics: tuple[str, ...] = ()
    with_gradient: tuple[str, ...] = ()
    _tensors: tuple[Tensor, ...] = field(repr=False, default=())  # each once
    _layers: tuple[nn.Module, ...] = field(repr=False, default=())

    def undo(self) -> None:
        """Put back what was changed: these parameters train again (or not), these layers have the mode they would have."""
        for tensor in self._tensors:
            tensor.requires_grad_(not self.trains)
        for layer in self._layers:
            _freeze_layer_statistics(layer) if self.trains else _unfreeze_layer_statistics(layer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __rich__(self) -> str:
        what = "training" if self.trains else "frozen"
        lines = [f"parameters that are {what} now: {len(self._tensors)} ({self.num_elements:,} numbers)"]
        for name, meaning in _LINES.items():
            if names := getattr(self, name):
                lines.append(f"{meaning}: {first_few(names, SHOWN_NAMES)}")
        return "\n".join(lines)


_LINES = {
    "parameters": "changed",
    "unchanged": "so already",
    "statistics": "running statistics changed with them",
    "moving_statistics": "running statistics that still follow the data (statistics=True stops them)",
    "with_gradient": "hold a gradient, and are stepped until zero_grad()",
}


def freeze(model: object, *patterns: str, statistics: bool = False) -> Freezing:
    """Stop parameters from training, and say which; undone at the end of a `with` block, or by `.undo()`.

    A frozen parameter gets no gradient, and torch's optimizers leave a parameter without gradient alone: neither weight decay
    nor momentum moves it. So it may stay in an optimizer, or be given to one. Its optimizer state stays as it is, and is used
    again after `ts.unfreeze`. A gradient that is there already still counts: the report lists it, `zero_grad()` removes it.

    Args:
        model: a module, or a learner of a run.
        patterns: names of parameters or of modules (for all inside them), patterns as in a shell; all parameters if none is given.
        statistics: whether the running statistics of the normalisation layers among them stop too. Those layers go to
            evaluation mode, normalise with what they have learnt so far, and stay so: `model.train()` passes them over.

    Raises:
        OptionError: a pattern matches nothing (the nearest names are listed); a lazy layer that has not run; statistics of a
            scripted module.
    """
    return _change_requires_grad(model, patterns, trains=False, statistics=statistics)


def unfreeze(model: object, *patterns: str) -> Freezing:
    """Let parameters train, and say which; the opposite of `ts.freeze`, with the same arguments.

    Running statistics that `ts.freeze` stopped follow the data again, in the mode of the model. An optimizer that was made
    without these parameters does not learn of them: make it from all parameters, or call `add_param_group`.
    """
    return _change_requires_grad(model, patterns, trains=True, statistics=True)


def _change_requires_grad(
    model: object, patterns: tuple[str, ...], *, trains: bool, statistics: bool
) -> Freezing:
    piece = "ts.unfreeze" if trains else "ts.freeze"
    module = as_module(model, piece)
    _check_freezing_arguments(piece, module, patterns, statistics=statistics)
    asked, layers = _matching_parameters_and_layers(module, patterns or ("*",), statistics=statistics)
    changed = {name: tensor for name, tensor in asked.items() if tensor.requires_grad != trains}
    tensors = tuple({id(tensor): tensor for tensor in changed.values()}.values())
    for tensor in tensors:
        tensor.requires_grad_(trains)
    moved = {name: layer for name, layer in layers.items() if statistics and _is_norm_frozen(layer) == trains}
    for layer in moved.values():
        if trains:
            _unfreeze_layer_statistics(layer)
            # In the mode of the model, whatever mode the layer itself had when it was frozen.
            layer.train(module.training)
        else:
            _freeze_layer_statistics(layer)
    following = () if trains else tuple(name for name, layer in layers.items() if not _is_norm_frozen(layer))
    return Freezing(
        trains=trains,
        parameters=tuple(changed),
        num_elements=sum(tensor.numel() for tensor in tensors),
        unchanged=tuple(name for name in asked if name not in changed),
        statistics=tuple(moved),
        moving_statistics=following,
        with_gradient=() if trains else tuple(n for n, t in asked.items() if t.grad is not None),
        _tensors=tensors,
        _layers=tuple(moved.values()),
    )


def _matching_parameters_and_layers(
    module: nn.Module, patterns: tuple[str, ...], *, statistics: bool
) -> tuple[dict[str, Tensor], dict[str, nn.Module]]:
    """Return the parameters that the patterns name, under all their names, and the layers whose statistics they name."""
    parameters: dict[str, Tensor] = {
        name: parameter
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if parameter.is_floating_point() or parameter.is_complex()
    }
    layers = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _NormBase) and layer.running_mean is not None
    }
    owners = {
        layer_tensor_name(name, own): name
        for name, layer in layers.items()
        for own in (*layer._parameters, *(layer._buffers if statistics else ()))
    }
    names = list(dict.fromkeys((*parameters, *owners)))
    chosen = {
        name for pattern in patterns for name in match_layer_names_with_children(pattern, names, "parameter")
    }
    tensors = {id(parameters[name]) for name in chosen if name in parameters}
    asked = {name: parameter for name, parameter in parameters.items() if id(parameter) in tensors}
    touched = {owners[name] for name in chosen if name in owners}
    return asked, {name: layer for name, layer in layers.items() if name in touched}


def layers_with_frozen_statistics(module: nn.Module) -> list[str]:
    """Return the paths of the layers whose running statistics `ts.freeze` has stopped."""
    return [path for path, layer in module.named_modules() if _is_norm_frozen(layer)]


def freeze_only_these_statistics(module: nn.Module, paths: set[str]) -> None:
    """Stop the running statistics of these layers, and let all others follow the data."""
    for path, layer in module.named_modules():
        if path in paths:
            _freeze_layer_statistics(layer)
        else:
            _unfreeze_layer_statistics(layer)


@dataclass
class _InEvaluation:
    """Stand in for `layer.train` while the layer's statistics are frozen, and remember what was asked for."""

    layer: nn.Module
    asked: bool

    def __call__(self, mode: bool = True) -> nn.Module:
        self.asked = mode
        return type(self.layer).train(self.layer, False)


def _is_norm_frozen(layer: nn.Module) -> bool:
    return isinstance(layer.__dict__.get("train"), _InEvaluation)


def _freeze_layer_statistics(layer: nn.Module) -> None:
    """Keep the layer in evaluation mode; what does it is of this module, so that it can be copied and pickled."""
    if not _is_norm_frozen(layer):
        held = _InEvaluation(layer, layer.training)
        layer.eval()
        layer.__dict__["train"] = held


def _unfreeze_layer_statistics(layer: nn.Module) -> None:
    """Give the layer the mode that was asked for last."""
    if _is_norm_frozen(layer):
        held: _InEvaluation = layer.__dict__.pop("train")
        layer.train(held.asked)


def _check_freezing_arguments(
    piece: str, module: nn.Module, patterns: tuple[object, ...], *, statistics: bool
) -> None:
    if strange := [each for each in patterns if not isinstance(each, str)]:
        raise OptionError(
            f"{piece} takes names of parameters or modules, and got {a_type(strange[0])}. Write each as a text: "
            f'{piece}(net, "body", "head.*").'
        )
    refuse_lazy_layers(module)
    scripted = any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
    if scripted and statistics and piece == "ts.freeze":
        raise OptionError("The statistics of a scripted module can't be frozen. Freeze the original.")

# SPDX-License-Identifier: Apache-2.0
"""Taking parameters, and running statistics, out of training and back."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from html import escape
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from truestep.nn.naming import model_of, select_within

SHOWN_NAMES = 6


@dataclass(frozen=True, kw_only=True)
class Freezing:
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
    _tensors: tuple[Tensor, ...] = field(repr=False, default=())
    _modes: tuple[tuple[nn.Module, bool, bool], ...] = field(repr=False, default=())

    def undo(self) -> None:
        """Put back what was changed: these parameters train again (or not), these layers have the mode they had."""
        for tensor in self._tensors:
            tensor.requires_grad_(not self.trains)
        for layer, was_held, mode in self._modes:
            _hold(layer) if was_held else _release(layer)
            layer.training = mode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name[0] != "_"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def __str__(self) -> str:
        what = "training" if self.trains else "frozen"
        lines = [f"{len(self._tensors)} parameters ({self.num_elements:,} numbers) are {what} now"]
        for name, meaning in _LINES.items():
            if names := getattr(self, name):
                more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
                lines.append(f"{meaning}: {', '.join(names[:SHOWN_NAMES])}{more}")
        return "\n".join(lines)

    def __rich__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


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
        OptionError: a pattern matches nothing; the nearest names are listed.
    """
    return _change(model, patterns, trains=False, statistics=statistics)


def unfreeze(model: object, *patterns: str) -> Freezing:
    """Let parameters train, and say which; the opposite of `ts.freeze`, with the same arguments.

    Running statistics that `ts.freeze` stopped follow the data again, in the mode of the model. An optimizer that was made
    without these parameters does not learn of them: make it from all parameters, or call `add_param_group`.
    """
    return _change(model, patterns, trains=True, statistics=True)


def _change(model: object, patterns: tuple[str, ...], *, trains: bool, statistics: bool) -> Freezing:
    module = model_of(model, "ts.unfreeze" if trains else "ts.freeze")
    asked, layers = _asked_for(module, patterns or ("*",))
    changed = {name: tensor for name, tensor in asked.items() if tensor.requires_grad != trains}
    tensors = tuple({id(tensor): tensor for tensor in changed.values()}.values())
    for tensor in tensors:
        tensor.requires_grad_(trains)
    modes = tuple((layer, _is_held(layer), layer.training) for layer in layers.values() if statistics)
    moved = tuple(name for name, layer in layers.items() if statistics and _is_held(layer) == trains)
    for layer, _, _ in modes:
        _let_follow(layer, module) if trains else _hold(layer)
    following = () if trains else tuple(name for name, layer in layers.items() if not _is_held(layer))
    return Freezing(
        trains=trains,
        parameters=tuple(changed),
        num_elements=sum(tensor.numel() for tensor in tensors),
        unchanged=tuple(name for name in asked if name not in changed),
        statistics=moved,
        moving_statistics=following,
        with_gradient=() if trains else tuple(n for n, t in asked.items() if t.grad is not None),
        _tensors=tensors,
        _modes=modes,
    )


def _asked_for(module: nn.Module, patterns: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, nn.Module]]:
    """Return the parameters that the patterns name, under all their names, and the layers whose statistics they name."""
    parameters: dict[str, Tensor] = {
        name: parameter
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if parameter.is_floating_point() or parameter.is_complex()
    }
    layers = _layers_with_statistics(module)
    owners = {
        f"{name}.{own}".removeprefix("."): name
        for name, layer in layers.items()
        for own in (*layer._parameters, *layer._buffers)
    }
    names = list(dict.fromkeys((*parameters, *owners)))
    chosen = {name for pattern in patterns for name in select_within(pattern, names, "parameter")}
    tensors = {id(parameters[name]) for name in chosen if name in parameters}
    asked = {name: parameter for name, parameter in parameters.items() if id(parameter) in tensors}
    touched = {owners[name] for name in chosen if name in owners}
    return asked, {name: layer for name, layer in layers.items() if name in touched}


def _layers_with_statistics(module: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that follow the data by running statistics."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _NormBase) and layer.running_mean is not None
    }


def _stay_in_evaluation(layer: nn.Module, mode: bool = True) -> nn.Module:
    """Stand in for `layer.train(mode)` while the layer's statistics are frozen."""
    del mode
    return type(layer).train(layer, False)


def _is_held(layer: nn.Module) -> bool:
    return "train" in layer.__dict__


def _hold(layer: nn.Module) -> None:
    """Keep the layer in evaluation mode; a partial of a function of this module, so that it can be copied and pickled."""
    layer.eval()
    layer.__dict__["train"] = partial(_stay_in_evaluation, layer)


def _release(layer: nn.Module) -> None:
    layer.__dict__.pop("train", None)


def _let_follow(layer: nn.Module, model: nn.Module) -> None:
    """Bring a layer that was held to the mode of its model."""
    if _is_held(layer):
        _release(layer)
        layer.train(model.training)

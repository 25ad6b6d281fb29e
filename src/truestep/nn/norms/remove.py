# SPDX-License-Identifier: Apache-2.0
"""Plain weights again where weight norm or spectral norm was, with the values that the norm gave them."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils import remove_spectral_norm as remove_old_spectral
from torch.nn.utils import remove_weight_norm as remove_old_weight

from truestep.core.errors import OptionError
from truestep.nn.layer_lookup import Layers, layer_matches, layer_selectors, refuse_non_module
from truestep.nn.norms.norm_targets import KINDS, OLD_HOOKS, NormChange, NormedTensor

_REMOVE_OLD = {"weight norm": remove_old_weight, "spectral norm": remove_old_spectral}


def remove_weight_norm(model: nn.Module, layers: Layers | None = None) -> NormChange:
    """Make the weights of all weight-normalised layers plain again, in place, bit for bit as the norm gave them.

    torch's old hook is taken off too. Frozen weights stay frozen parameters, and parameters keep their order, which
    torch's `remove_parametrizations` does for neither.

    Args:
        model: its layers are changed in place.
        layers: kinds or patterns of names; all layers that have the norm by default.

    Raises:
        OptionError: no chosen layer has the norm.
    """
    return _remove_norm("weight norm", model, layers)


def remove_spectral_norm(model: nn.Module, layers: Layers | None = None) -> NormChange:
    """Make the weights of all spectrally normalised layers plain again, in place, as they are in evaluation mode.

    No power iteration is made on the way, in either mode. Arguments and errors are those of `remove_weight_norm`.
    """
    return _remove_norm("spectral norm", model, layers)


def _remove_norm(norm: str, model: nn.Module, layers: Layers | None) -> NormChange:
    refuse_non_module(model)
    chosen = (nn.Module,) if layers is None else layer_selectors(layers, model)
    tensors = [
        normed
        for normed in _tensors_with_norm(norm, model)
        if any(layer_matches(each, normed.layer, normed.module) for each in chosen)
    ]
    if not tensors:
        there = ", ".join(
            sorted({normed.name for kind in KINDS for normed in _tensors_with_norm(kind, model)})
        )
        raise OptionError(f"No chosen layer has {norm}; normalised weights: {there or 'none'}.")
    _refuse_partly_shared_norms(model, tensors)
    replaced: dict[nn.Parameter, tuple[nn.Parameter, ...]] = {}
    made: dict[parametrize.ParametrizationList, nn.Parameter] = {}
    for normed in tensors:
        old, new = (
            _remove_norm_hook(norm, normed)
            if normed.old_hook(norm)
            else _remove_parametrization(normed, made)
        )
        replaced |= {parameter: (new,) for parameter in old if parameter is not new}
        _register_at_first_position(normed, new)
    changed = tuple(normed.name for normed in tensors)
    return NormChange(norm=norm, action="removed", changed=changed, replaced=replaced)


def _tensors_with_norm(norm: str, model: nn.Module) -> list[NormedTensor]:
    found = []
    for name, module in model.named_modules():
        held: Iterable[str] = module.parametrizations.keys() if parametrize.is_parametrized(module) else ()
        found += [normed for tensor in held if (normed := NormedTensor(name, module, tensor)).carries(norm)]
        hooks = [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, OLD_HOOKS[norm])]
        found += [NormedTensor(name, module, hook.name) for hook in hooks]  # type: ignore[attr-defined]
    return found


def _refuse_partly_shared_norms(model: nn.Module, tensors: list[NormedTensor]) -> None:
    chosen = {normed.name for normed in tensors}
    held = {id(t.parametrization) for t in tensors if t.is_parametrized}
    for norm in KINDS:
        for normed in _tensors_with_norm(norm, model):
            shared = not normed.old_hook(norm) and id(normed.parametrization) in held
            if shared and normed.name not in chosen:
                raise OptionError(
                    f"{normed.name} shares its weight with a layer that was chosen; with the norm off one of them alone "
                    "they would be two weights. Choose all layers that share it, or none, with layers=."
                )


def _remove_norm_hook(norm: str, normed: NormedTensor) -> tuple[list[nn.Parameter], nn.Parameter]:
    own = {f"{normed.tensor}_{end}" for end in ("g", "v", "orig")}
    old = [held for name, held in normed.module._parameters.items() if name in own and held is not None]
    _REMOVE_OLD[norm](normed.module, normed.tensor)
    new = normed.weight
    assert isinstance(new, nn.Parameter)
    new.requires_grad = any(parameter.requires_grad for parameter in old)
    return old, new


def _remove_parametrization(
    normed: NormedTensor, made: dict[parametrize.ParametrizationList, nn.Parameter]
) -> tuple[list[nn.Parameter], nn.Parameter]:
    """Take the parametrization off; `made` holds what one that several layers share has become already."""
    held = normed.parametrization
    old = list(held.parameters())
    if held not in made:
        made[held] = _plain_parameter(held)
    with torch.enable_grad():  # without it torch registers the result as a buffer
        parametrize.remove_parametrizations(normed.module, normed.tensor, not held.is_tensor)
    hooks = normed.module._load_state_dict_pre_hooks
    for key, hook in list(hooks.items()):
        # weight norm's, of the old keys; a module that keeps it can't be pickled
        if getattr(getattr(hook, "hook", hook), "__name__", "") == "_weight_norm_compat_hook":
            del hooks[key]
    return old, made[held]


@torch.no_grad()
def _plain_parameter(held: parametrize.ParametrizationList) -> nn.Parameter:
    held.eval()  # in training mode a spectral norm would make one more power iteration
    value = held().detach().clone()
    if held.is_tensor:
        assert isinstance(held.original, nn.Parameter)
        held.original.copy_(value)
        return held.original
    return nn.Parameter(value, requires_grad=any(each.requires_grad for each in held.parameters()))


def _register_at_first_position(normed: NormedTensor, weight: nn.Parameter) -> None:
    """Register the weight where the layer had it at first, so that an optimizer's state keeps its order."""
    module, tensor = normed.module, normed.tensor
    if hasattr(module, tensor):  # a frozen weight came back as a buffer
        delattr(module, tensor)
    module.register_parameter(tensor, weight)
    order = module._flat_weights_names if isinstance(module, nn.RNNBase) else [tensor]
    first = {name: module._parameters.pop(name) for name in order if name in module._parameters}
    later = dict(module._parameters)
    module._parameters.clear()
    module._parameters.update({**first, **later})

# SPDX-License-Identifier: Apache-2.0
"""Weight norm and spectral norm on the layers of a model."""

import math
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from truestep.core.errors import OptionError, check_number
from truestep.core.random_streams import preserve_torch_rng
from truestep.nn.layer_lookup import Layers, layer_tensor_name
from truestep.nn.norms.norm_targets import (
    KINDS,
    NormChange,
    NormedTensor,
    find_normed_tensors,
    weight_output_axis,
)

SPECTRAL_SEED = 0  # of the start vectors, which the first power iterations turn to the singular ones


def add_weight_norm(model: nn.Module, layers: Layers | None = None, *, dim: int | None = None) -> NormChange:
    """Split the weights of a model's layers into length and direction (Salimans and Kingma 2016), in place.

    The weights keep their values up to rounding. Each becomes two parameters, so make the optimizer afterwards; see
    `NormChange.replaced`. What has the norm already is skipped and named in the result.

    Args:
        model: its layers are changed in place.
        layers: kinds or patterns of names (`nn.Conv1d`, `"decoder.*"`), or several; linear, convolutional and
            transposed convolutional layers by default. All weights of recurrent layers, if they are chosen.
        dim: the dimension whose entries each have a length of their own. By default that of the outputs: 0, and 1 for
            transposed convolutions. torch's own default is 0 for these too: say `dim=0` to load such a checkpoint. −1 is
            one length for the whole weight, torch's `dim=None`.

    Raises:
        OptionError: before anything is changed, for lazy layers, other parametrizations, rows of zeros (their
            direction is NaN), or a weight shared with a layer that was not chosen.
    """

    def register_weight_norm(normed: NormedTensor) -> None:
        parametrizations.weight_norm(normed.module, normed.tensor, dim=_weight_norm_dimension(normed, dim))

    def has_direction(normed: NormedTensor) -> bool:
        weight = normed.weight.detach()
        if weight.is_meta or not weight.numel():
            return weight.numel() > 0
        return bool(torch.norm_except_dim(weight, 2, _weight_norm_dimension(normed, dim)).all())

    return _register_norms("weight norm", model, layers, register_weight_norm, has_direction)


def add_spectral_norm(
    model: nn.Module, layers: Layers | None = None, *, num_power_iterations: int = 1, eps: float = 1e-12
) -> NormChange:
    """Divide the weights of a model's layers by their largest singular value (Miyato et al. 2018), in place.

    The parameters stay the same objects under another name, so an optimizer may be made before or after. torch's
    random state is not touched: the start vectors come from a stream of their own.

    Args:
        model: its layers are changed in place.
        layers: as in `add_weight_norm`.
        num_power_iterations: per access of the weight, in training mode.
        eps: added where vectors are normalised.

    Raises:
        OptionError: as in `add_weight_norm`; for a weight that is zero everywhere its singular value is 0.
    """
    owner = "ts.nn.add_spectral_norm"
    check_number(owner, "num_power_iterations", num_power_iterations, example=1, least=1)
    check_number(owner, "eps", eps, example=1e-12)
    if not 0 < eps < math.inf:
        raise OptionError(f"eps={eps}: it keeps a divisor from zero, so it is positive and small.")

    def register_spectral_norm(normed: NormedTensor) -> None:
        with preserve_torch_rng([normed.weight]):
            torch.manual_seed(SPECTRAL_SEED)
            parametrizations.spectral_norm(normed.module, normed.tensor, num_power_iterations, eps)

    def has_nonzero_weight(normed: NormedTensor) -> bool:
        return normed.weight.is_meta or bool(normed.weight.detach().any())

    return _register_norms("spectral norm", model, layers, register_spectral_norm, has_nonzero_weight)


def _weight_norm_dimension(normed: NormedTensor, dim: object) -> int:
    if dim is None:
        return weight_output_axis(normed.module)
    if isinstance(dim, bool) or not isinstance(dim, int) or not -1 <= dim < normed.weight.ndim:
        raise OptionError(
            f"dim={dim!r}: {normed.name} has {normed.weight.ndim} dimensions. Write one of 0 to {normed.weight.ndim - 1}, -1 for "
            "one length of the whole weight, or None for the dimension of the outputs."
        )
    return dim


def _register_norms(
    norm: str,
    model: nn.Module,
    layers: Layers | None,
    register: Callable[[NormedTensor], None],
    is_sound: Callable[[NormedTensor], bool],
) -> NormChange:
    """Put a norm on the chosen tensors by `register`; `is_sound` says whether one can have it without becoming NaN."""
    tensors = find_normed_tensors(model, layers)
    already = [normed for normed in tensors if normed.carries(norm)]
    fresh = [normed for normed in tensors if normed not in already]
    _refuse_other_norms(norm, fresh)
    left = _tensors_tied_to_other_layers(model, fresh)
    if left and layers is not None:
        raise OptionError(
            f"{'; '.join(f'{name} is {reason}' for name, reason in left.items())}. With {norm} on one of them alone they would be "
            "two weights. Choose all layers that share it, or none, with layers=."
        )
    fresh = [normed for normed in fresh if normed.name not in left]
    if zeros := [normed.name for normed in fresh if not is_sound(normed)]:
        raise OptionError(
            f"{', '.join(zeros)}: zeros where {norm} divides by a length, so that the weight would be NaN. Initialise these layers "
            "otherwise, or leave them out with layers=."
        )
    return NormChange(
        norm=norm,
        action="added",
        changed=tuple(normed.name for normed in fresh),
        already=tuple(normed.name for normed in already),
        left=left,
        replaced=_register_parametrizations(fresh, register),
    )


def _refuse_other_norms(norm: str, tensors: list[NormedTensor]) -> None:
    if hooked := [normed.name for normed in tensors for kind in KINDS if normed.old_hook(kind)]:
        raise OptionError(
            f"{', '.join(hooked)} has a norm in torch's old form, a hook before the forward. Take it off first: "
            "ts.nn.remove_weight_norm(model) and ts.nn.remove_spectral_norm(model) know it too."
        )
    others = [
        f"{normed.name} ({', '.join(type(each).__name__.strip('_') for each in normed.parametrization)})"
        for normed in tensors
        if normed.is_parametrized
    ]
    if others:
        raise OptionError(
            f"{', '.join(others)}: parametrized already, and {norm} on top of that would normalise a weight that is computed. "
            "Remove the other one first, or leave these layers out with layers=."
        )


def _tensors_tied_to_other_layers(model: nn.Module, tensors: list[NormedTensor]) -> dict[str, str]:
    """Return the tensors whose parameter is also held by a place that is none of them, with that place."""
    chosen = {normed.name for normed in tensors}
    holders: dict[int, list[str]] = {}
    for layer, module in model.named_modules():
        for tensor, parameter in module._parameters.items():
            if parameter is not None:
                holders.setdefault(id(parameter), []).append(layer_tensor_name(layer, tensor))
    outside = {}
    for normed in tensors:
        others = [name for name in holders[id(normed.weight)] if name not in chosen]
        if others:
            outside[normed.name] = f"shared with {', '.join(others)}"
    return outside


def _register_parametrizations(
    tensors: list[NormedTensor], register: Callable[[NormedTensor], None]
) -> dict[nn.Parameter, tuple[nn.Parameter, ...]]:
    """Register on each; those that shared a parameter share its parametrization. Return what was replaced."""
    first: dict[Tensor, NormedTensor] = {}
    replaced: dict[nn.Parameter, tuple[nn.Parameter, ...]] = {}
    for normed in tensors:
        old = normed.weight
        assert isinstance(old, nn.Parameter)
        register(normed)
        if isinstance(normed.module, nn.RNNBase):
            type(normed.module).__deepcopy__ = _copy_recurrent  # type: ignore[attr-defined]  # a class of this layer alone
        if old in first:
            normed.module.parametrizations[normed.tensor] = first[old].parametrization  # type: ignore[index,operator,assignment]
            continue
        first[old] = normed
        # What torch registers is in training mode, whatever mode the layer is in.
        normed.module.parametrizations.train(normed.module.training)  # type: ignore[union-attr]
        new = tuple(normed.parametrization.parameters())
        if all(parameter is not old for parameter in new):
            replaced[old] = new
    return replaced


def _copy_recurrent(layer: nn.RNNBase, memo: dict[int, Any]) -> nn.RNNBase:
    """Copy a recurrent layer, whose list of the weights that it has computed last torch can't copy with their graph."""
    copied = layer.__class__.__new__(layer.__class__)
    memo[id(layer)] = copied
    computed: list[Any] = layer._flat_weights
    without_graph = [w if isinstance(w, nn.Parameter) else w.detach() for w in computed]
    copied.__dict__ = deepcopy(layer.__dict__ | {"_flat_weights": without_graph}, memo)
    copied_weights: list[Any] = copied._flat_weights
    copied._flat_weight_refs = [weakref.ref(weight) for weight in copied_weights]
    return copied

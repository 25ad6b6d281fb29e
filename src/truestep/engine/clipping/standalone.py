# SPDX-License-Identifier: Apache-2.0
"""The engine's kinds of clipping for a loop written by hand."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler, OptState
from torch.optim import Optimizer

from truestep.core.errors import LossError, NonFiniteError, OptionError
from truestep.engine.clipping import Clip, clip_from_option
from truestep.engine.clipping.base import Gradients, dense_gradient, total_gradient_norm
from truestep.engine.optimizers import optimizer_parameters

Parameters = nn.Module | Tensor | Mapping[str, Tensor] | Iterable[Tensor] | Iterable[tuple[str, Tensor]]


@torch.no_grad()
def clip_gradients(
    parameters: Parameters,
    clip: Clip | Any,
    *,
    scaler: GradScaler | None = None,
    optimizer: Optimizer | None = None,
    nonfinite: Literal["keep", "raise"] = "keep",
) -> Tensor:
    """Clip the gradients of `parameters` in place and return their norm before, a 0-d tensor on their device.

    Call it between `backward()` and `step()`; a learner of a run does it itself (`run.learner(..., clip=...)`). With
    `ts.ClipNorm` the gradients end bit for bit where `torch.nn.utils.clip_grad_norm_` takes them (the norm of half-precision
    gradients is taken in float32). Parameters without a gradient are passed over, a parameter that is given twice counts once.

    Args:
        parameters: a module, named parameters (a dict or `net.named_parameters()`), or plain ones. `ts.ClipAdaptive(skip=...)`
            and functions see the names; plain parameters are called "0", "1", ...
        clip: `ts.ClipNorm`, `ts.ClipValue`, `ts.ClipAdaptive`, or a function of {name: gradient}. Where the gradients are on
            several devices it is applied to each device's by itself, with the norm of all.
        scaler: the loss scale's `torch.amp.GradScaler`; the gradients are unscaled first, unless they are already.
        optimizer: the optimizer that steps these parameters; needed with `scaler`, which keeps its account by it.
        nonfinite: "keep" hides nothing: NaN stays, and the norm shows it. "raise" raises, which waits for the device.

    Raises:
        OptionError: there are no parameters (a used-up generator), `clip` is of no kind, `scaler` can't unscale these gradients.
        LossError: no parameter has a gradient, or (NonFiniteError) one is NaN or infinite and `nonfinite` is "raise".
    """
    kind = _clip_from_argument(clip, nonfinite, scaler)
    gradients = _collect_gradients(_unique_parameters(parameters))
    if scaler is not None or optimizer is not None:
        _unscale_gradients(scaler, optimizer, gradients)
    norm, parts = _total_norm(gradients.tensors, kind.norm_type), _split_by_device(gradients)
    if nonfinite == "raise" and not torch.isfinite(norm):
        raise _nonfinite_error(gradients, norm)
    for part in parts:
        kind.apply(part, norm.to(part.tensors[0].device))
    return norm


def _clip_from_argument(clip: object, nonfinite: str, scaler: object) -> Clip:
    kind = clip_from_option(clip)
    if kind is None:
        raise OptionError(
            "clip=None clips nothing. Give ts.ClipNorm(1.0) or another kind; to measure only, use torch.nn.utils.get_total_norm."
        )
    if nonfinite not in ("keep", "raise"):
        raise OptionError(f'nonfinite={nonfinite!r}: write "keep", or "raise" to stop at NaN and infinity.')
    if nonfinite == "raise" and scaler is not None:
        raise OptionError(
            'nonfinite="raise" can\'t be used with a scaler: overflows are how a loss scale is found, and scaler.step() leaves '
            'out the steps that have one. Use nonfinite="keep".'
        )
    return kind


def _unique_parameters(parameters: Any) -> dict[str, Tensor]:
    """Return the parameters by name, each once."""
    named: dict[str, Tensor] = {}
    seen: set[int] = set()
    for number, item in enumerate(_named_or_plain_parameters(parameters)):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (str(number), item)
        _check_parameter(name, tensor)
        if id(tensor) in seen:
            continue
        if name in named:
            raise OptionError(
                f"Two parameters are called {name!r}; a clip tells them apart by name. Give one module that holds both, such as "
                "nn.ModuleList([a, b]), or parameters without names."
            )
        seen.add(id(tensor))
        named[name] = tensor
    return named


def _check_parameter(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise OptionError(
            f"The parameters hold something of type {type(tensor).__name__}; give a module, parameters, or (name, parameter) pairs."
        )
    if not tensor.is_leaf and not tensor.retains_grad:
        raise OptionError(
            f"The tensor {name!r} of shape {tuple(tensor.shape)} was computed, so torch keeps no gradient of it. Clip the "
            "parameters that it was computed from, or call retain_grad() on it before the backward."
        )


def _named_or_plain_parameters(parameters: Any) -> Iterable[Any]:
    from truestep.engine.learner import Learner

    if isinstance(parameters, Learner):
        raise OptionError(
            f"{parameters.name!r} is a learner, whose update clips before it steps; here it would be too late. Say "
            "run.learner(..., clip=ts.ClipNorm(1.0))."
        )
    if isinstance(parameters, nn.Module):
        return parameters.named_parameters()
    if isinstance(parameters, Mapping):
        return parameters.items()
    if isinstance(parameters, Tensor):
        return [parameters]
    if not isinstance(parameters, Iterable):
        raise OptionError(
            f"Something of type {type(parameters).__name__} holds no parameters; give a module, or its parameters."
        )
    return parameters


def _collect_gradients(named: dict[str, Tensor]) -> Gradients:
    if not named:
        raise OptionError(
            "There are no parameters to clip. A generator such as net.parameters() can be read once: an optimizer that was made "
            "from it has used it up. Give the module, or call net.parameters() again."
        )
    found = {name: gradient for name, each in named.items() if (gradient := dense_gradient(each)) is not None}
    if not found:
        raise LossError(
            f"None of {len(named)} parameters has a gradient, so there is nothing to clip. Clip after loss.backward(), and before "
            "optimizer.step() and optimizer.zero_grad()."
        )
    return Gradients(list(found), [named[name] for name in found], list(found.values()))


def _unscale_gradients(scaler: GradScaler | None, optimizer: Optimizer | None, gradients: Gradients) -> None:
    """Divide the loss scale out of the optimizer's gradients, unless that was done since the last step."""
    if scaler is None or optimizer is None:
        given, missing = ("optimizer", "scaler") if scaler is None else ("scaler", "optimizer")
        raise OptionError(
            f"clip_gradients was given {given}= without {missing}=. A scaler keeps its account by optimizer: give both, or neither."
        )
    if not scaler.is_enabled():
        return
    owned = set(map(id, optimizer_parameters(optimizer)))
    named = zip(gradients.names, gradients.parameters, strict=True)
    strangers = [name for name, parameter in named if id(parameter) not in owned]
    if strangers:
        raise OptionError(
            f"The optimizer does not hold {', '.join(strangers[:6])}, so their gradients would stay scaled beside unscaled ones. "
            "Clip the parameters of one optimizer at a time."
        )
    # torch has no public way to ask; a second unscale_ raises, and gradients that were never unscaled would be clipped too hard.
    stage = scaler._per_optimizer_states[id(optimizer)]["stage"]
    if stage is OptState.STEPPED:
        raise OptionError(
            "scaler.step(optimizer) was called already: clipping now changes nothing. Clip before it."
        )
    if scaler._scale is None:
        raise OptionError(
            "The scaler has scaled no loss yet. Write scaler.scale(loss).backward(), or leave scaler= out."
        )
    if stage is OptState.READY:
        scaler.unscale_(optimizer)


def _split_by_device(gradients: Gradients) -> list[Gradients]:
    devices = [tensor.device for tensor in gradients.tensors]
    if len(set(devices)) == 1:
        return [gradients]
    triples = list(zip(devices, gradients.names, gradients.parameters, gradients.tensors, strict=True))
    return [
        Gradients(*map(list, zip(*(triple[1:] for triple in triples if triple[0] == device), strict=True)))
        for device in dict.fromkeys(devices)
    ]


def _total_norm(tensors: list[Tensor], norm_type: float) -> Tensor:
    """Return the norm of gradients, of several types or devices as the norm of their norms, on the first one's device."""
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    norms = [total_gradient_norm(each, norm_type) for each in alike.values()]
    if len(norms) == 1:
        return norms[0]
    dtype = torch.float64 if any(norm.dtype == torch.float64 for norm in norms) else torch.float32
    stacked = torch.stack([norm.to(norms[0].device, dtype) for norm in norms])
    norm: Tensor = torch.linalg.vector_norm(stacked, norm_type)
    return norm


def _nonfinite_error(gradients: Gradients, norm: Tensor) -> NonFiniteError:
    named = zip(gradients.names, gradients.tensors, strict=True)
    bad = [name for name, tensor in named if not torch.isfinite(tensor).all()]
    where = f"in {', '.join(bad[:6])}" if bad else "though each entry is finite: their squares overflow"
    return NonFiniteError(
        f"The norm of the gradients is {float(norm)}, {where}. A step would spoil the parameters; nothing was clipped. Usual "
        "causes: log or division of 0, sqrt at 0, an overflow of float16, a learning rate that is too high, NaN in the data."
    )

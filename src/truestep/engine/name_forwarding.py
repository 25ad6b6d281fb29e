# SPDX-License-Identifier: Apache-2.0
"""A learner's names beside its module's: which are whose, and what is said where neither has one."""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from truestep.checkpoints.foreign_file_loading import has_partial_weights, partial_weights_message
from truestep.checkpoints.weights import has_all_weights_of
from truestep.core.errors import CheckpointError, OptionError, did_you_mean
from truestep.core.guidance import as_sentence, guidance
from truestep.core.text_formatting import variable_text
from truestep.core.user_frames import is_library_file, warn_user

if TYPE_CHECKING:
    from truestep.engine.learner import Learner

_TYPES = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32, "double": torch.float64}
_RETURN_THEMSELVES = ("train", "eval", "requires_grad_")
_DEVICES = ("cuda", "cpu", "xpu")


def unknown_attribute(learner: "Learner", name: str) -> str:
    """Return the message for an attribute that neither the learner nor its module has, with the nearest that one has."""
    module = learner.module
    message = f"Neither the learner {learner.name!r} nor its module ({type(module).__name__}) has the attribute {name!r}."
    if instead := guidance("net.NAME", name):
        return f"{message} {as_sentence(instead)}"
    names = [each for each in {*dir(learner), *dir(module)} if not each.startswith("_")]
    return f"{message} {did_you_mean(name, names)}".rstrip()


def get_module_attribute(learner: "Learner", name: str) -> Any:
    """Return an attribute of the learner's module; torch's own that would give it another device or type are looked after."""
    module = learner.module
    if (name == "to" or name in _TYPES or name in _DEVICES) and _is_torch_method(module, name):
        return partial(_check_no_conversion, learner, name)
    if name == "compile" and _is_torch_method(module, name):
        return partial(_compile_module, module)
    if name == "load_state_dict":
        return partial(_load_state_dict, learner)
    if name in _RETURN_THEMSELVES:
        return partial(_call_returning_learner, learner, getattr(module, name))
    return getattr(module, name)


def _call_returning_learner(
    learner: "Learner", method: Callable[..., Any], /, *arguments: Any, **keywords: Any
) -> Any:
    """Return the learner where its module returns itself: `net = net.eval()` is still a learner."""
    result = method(*arguments, **keywords)
    return learner if result is learner.module else result


def _compile_module(module: nn.Module, /, *arguments: Any, **keywords: Any) -> None:
    """Compile the module as torch does; Keras' method of this name has other options."""
    if keywords.keys() & {"optimizer", "loss", "metrics"}:
        raise OptionError(
            "net.compile compiles the module's forward, as torch has it. What Keras' compile is told goes to the learner and into "
            "the loop: net = run.learner(module, lambda p: torch.optim.AdamW(p, lr=1e-3)), and net.update(loss, batch)."
        )
    module.compile(*arguments, **keywords)


def _load_state_dict(learner: "Learner", state_dict: Any, *arguments: Any, **keywords: Any) -> Any:
    """Load as the module does; what another program's names hide from it is said, and that nothing was loaded at all."""
    module = learner.module
    try:
        result = module.load_state_dict(state_dict, *arguments, **keywords)
    except (RuntimeError, TypeError) as error:
        if has_partial_weights(state_dict):
            raise CheckpointError(partial_weights_message("What net.load_state_dict was given")) from error
        if isinstance(state_dict, str | os.PathLike) or has_all_weights_of(module, state_dict):
            raise CheckpointError(f"{error}\n{_FITS.format(name=learner.name)}") from error
        raise
    if module.state_dict().keys() <= {*getattr(result, "missing_keys", ())}:
        warn_user(
            f"net.load_state_dict(..., strict=False) has loaded nothing into {learner.name!r}: of its names none is in the file. "
            f"{_FITS.format(name=learner.name)}"
        )
    return result


_FITS = (
    "Write ts.load_weights(net.module, weights) with the file, or with what it holds: it finds the weights of {name!r} in a "
    "checkpoint with other things beside them, and under names with a prefix (module. of DataParallel, _orig_mod. of "
    "torch.compile)."
)


def _is_torch_method(module: nn.Module, name: str) -> bool:
    return getattr(type(module), name, None) is getattr(nn.Module, name)


def _check_no_conversion(learner: "Learner", name: str, /, *arguments: Any, **keywords: Any) -> "Learner":
    """Return the learner where it is what it would become; else raise an OptionError: its optimizer was made for what it is."""
    device: torch.device | None = torch.device(name) if name in _DEVICES else None
    dtype = _TYPES.get(name)
    if name == "to":
        device, dtype, *_ = torch._C._nn._parse_to(*arguments, **keywords)
    tensors = [*learner.module.parameters(), *learner.module.buffers()]
    if not all(_has_device_and_dtype(each, device, dtype) for each in tensors):
        written = ", ".join([*map(repr, arguments), *(f"{key}={value!r}" for key, value in keywords.items())])
        raise OptionError(
            f"net.{name}({written}) would change the learner {learner.name!r} under its optimizer. The run decides where a learner "
            'is, and in which type, before its optimizer is made: ts.Run(directory, device="cuda", precision="bf16-mixed"). For a '
            f"copy of the model write copy.deepcopy(net.module).{name}({written})."
        )
    getattr(learner.module, name)(*arguments, **keywords)  # it may ask for a memory format, too
    return learner


def _has_device_and_dtype(
    tensor: torch.Tensor, device: torch.device | None, dtype: torch.dtype | None
) -> bool:
    own = tensor.device
    here = device is None or (device.type == own.type and device.index in (None, own.index))
    return here and (dtype is None or not tensor.is_floating_point() or dtype == tensor.dtype)


def set_module_attribute(learner: "Learner", name: str, value: Any) -> None:
    """Set an attribute of the learner's module; an AttributeError says so where it has none of this name."""
    if hasattr(type(learner), name):
        groups = f"for group in {variable_text(learner.name, 'net')}.optimizers[0].param_groups"
        instead = {
            "learning_rate": f' Set it in the optimizer: {groups}: group["lr"] = {value!r}',
            "optimizers": " The learner's is made by the function that run.learner(module, optimizer) is given.",
        }
        said = f"{name!r} of the learner {learner.name!r} can be read, not set."
        raise AttributeError(said + instead.get(name, ""))
    if not hasattr(learner.module, name):
        raise AttributeError(
            f"{unknown_attribute(learner, name)} A name that nobody reads would be set without effect; to add one to the module "
            f"write net.module.{name} = ..."
        )
    setattr(learner.module, name, value)


def warn_of_hidden_attributes(learner: "Learner") -> None:
    """Warn of attributes of the module that the learner's own names hide: reading or setting them reaches the learner."""
    module = learner.module
    hidden = sorted(
        name
        for name in _author_chosen_names(module)
        if not name.startswith("_") and hasattr(type(learner), name)
    )
    if hidden:
        warn_user(
            f"{', '.join(hidden[:6])} of {type(module).__name__} and of the learner {learner.name!r} have the same name"
            f"{'s' if len(hidden) > 1 else ''}: net.{hidden[0]} is the learner's. For the module's write net.module.{hidden[0]}."
        )


def _is_library_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__.startswith(("torch.", "builtins")) or is_library_file(file)


def _author_chosen_names(module: nn.Module) -> set[str]:
    """Return the names that the module's author chose: not those that torch, or another library, gives to every module."""
    given = {*vars(module), *module._parameters, *module._buffers}
    if not isinstance(module, nn.ModuleDict | nn.ModuleList):  # whose members are found by their key
        given |= set(module._modules)
    classes = [kind for kind in type(module).__mro__ if not _is_library_class(kind)]
    given.update(name for kind in classes for name in vars(kind))
    return given - vars(nn.Module()).keys()

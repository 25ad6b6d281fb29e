# SPDX-License-Identifier: Apache-2.0
"""Everything that a call of a loss may change of modules and parameters, kept and put back bit for bit."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from truestep.core.tensor_bytes import tensor_version


class _KeptTensor(NamedTuple):
    tensor: Tensor
    values: Tensor
    version: int
    needs_gradient: bool
    gradient: Tensor | None
    gradient_values: Tensor | None


class KeptState:
    """Modules and parameters as they were when they were first seen, or are marked later."""

    def __init__(self, parameters: Iterable[Tensor], modules: Iterable[nn.Module]) -> None:
        self._tensors: dict[int, _KeptTensor] = {}
        self._modules: dict[int, tuple[nn.Module, Any]] = {}
        for parameter in parameters:
            self._keep_tensor(parameter)
        for module in modules:
            self.keep(module)

    @property
    def buffers(self) -> list[Tensor]:
        """The buffers of all modules that are kept."""
        found = [each for module, _ in self._modules.values() for each in module._buffers.values()]
        return [each for each in found if each is not None]

    @property
    def modules(self) -> list[nn.Module]:
        """The modules that are kept, in the order in which they were seen."""
        return [module for module, _ in self._modules.values()]

    def keep(self, module: nn.Module) -> None:
        """Keep a module and its parts, those that are not kept yet."""
        for part in module.modules():
            if id(part) not in self._modules and not isinstance(part, torch.jit.ScriptModule):
                self._modules[id(part)] = part, _module_attributes(part)
                for each in (*part._parameters.values(), *part._buffers.values()):
                    if each is not None:
                        self._keep_tensor(each)

    def current_state(self) -> "KeptState":
        """Return what the same modules and parameters are now."""
        return KeptState([each.tensor for each in self._tensors.values()], self.modules)

    def put_back(self) -> None:
        """Put everything back."""
        for module, attributes in self._modules.values():
            _set_attributes(module, attributes)
        for kept in self._tensors.values():
            _put_back_tensor(kept)

    def put_back_buffers_of(self, module: nn.Module) -> None:
        """Put back which tensors a module's buffers are, where others were assigned."""
        kept = self._modules.get(id(module))
        if kept is not None:
            buffers, members = kept[1]["_buffers"]
            _set_members(buffers, members)

    def _keep_tensor(self, tensor: Tensor) -> None:
        if id(tensor) not in self._tensors:
            gradient = tensor.grad if tensor.is_leaf else None
            self._tensors[id(tensor)] = _KeptTensor(
                tensor,
                tensor.detach().clone(),
                tensor_version(tensor),
                tensor.requires_grad,
                gradient,
                None if gradient is None else gradient.detach().clone(),
            )


def _module_attributes(module: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return a module's attributes, with the members of its dicts: parameters, buffers, parts, hooks."""
    return {name: (value, _copy_of_container(value)) for name, value in vars(module).items()}


def _copy_of_container(value: Any) -> Any:
    return value.copy() if isinstance(value, (dict, set, list)) else None


def _set_attributes(module: nn.Module, attributes: dict[str, tuple[Any, Any]]) -> None:
    own = vars(module)  # not setattr: classes override it
    for name in own.keys() - attributes.keys():
        del own[name]
    for name, (value, members) in attributes.items():
        if own.get(name) is not value or name not in own:
            own[name] = value
        if members is not None:
            _set_members(value, members)


def _set_members(value: Any, members: Any) -> None:
    same = len(value) == len(members) and all(
        first is second for first, second in zip(_flat_members(value), _flat_members(members), strict=True)
    )
    if not same:
        value.clear()
        fill: Callable[[Any], object] = value.extend if isinstance(value, list) else value.update
        fill(members)


def _flat_members(value: Any) -> list[Any]:
    return [each for pair in value.items() for each in pair] if isinstance(value, dict) else list(value)


def _put_back_tensor(kept: _KeptTensor) -> None:
    tensor = kept.tensor
    if tensor.is_leaf and tensor.requires_grad is not kept.needs_gradient:
        tensor.requires_grad_(kept.needs_gradient)
    if kept.version >= 0:
        with torch.no_grad():
            tensor.copy_(kept.values)
        # past the version: a graph of the user's that saved the tensor finds what it saved
        torch._C._autograd._unsafe_set_version_counter((tensor,), (kept.version,))
    if kept.gradient is not None and kept.gradient_values is not None:
        with torch.no_grad(), _unsafe_preserve_version_counter(kept.gradient):
            kept.gradient.copy_(kept.gradient_values)
    if tensor.is_leaf and tensor.grad is not kept.gradient:
        tensor.grad = kept.gradient

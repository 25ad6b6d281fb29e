# SPDX-License-Identifier: Apache-2.0
"""Whether a module of a learner has got another parameter, another part, or a buffer by a new name.

torch calls a hook where one is registered, so that no update walks through its modules to see it. What goes past
`nn.Module` (writing to `module._parameters`) is found at the beginning of the next pass, see `unstepped_parameters.py`.
"""

from weakref import WeakValueDictionary

from torch import nn
from torch.nn.modules import module as torch_modules


class LearnerModuleChanges:
    """How many there have been, in all modules that are watched."""

    def __init__(self) -> None:
        self.number = 0
        # by their ids, since a module's class may compare its objects, and weak: a new module may get the id of one that is gone
        self._watched: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
        self._listens = False

    def watch(self, module: nn.Module) -> None:
        """Count what is registered in `module` and its parts from now on."""
        if not self._listens:
            self._listens = True
            # Once in a process, for all modules: torch has no such hook for a single one.
            torch_modules.register_module_parameter_registration_hook(self._count_parameter_change)
            torch_modules.register_module_module_registration_hook(self._count_submodule_change)
            torch_modules.register_module_buffer_registration_hook(self._count_new_buffer)
        for part in module.modules():
            self._watched[id(part)] = part

    def _is_watched(self, module: nn.Module) -> bool:
        return self._watched.get(id(module)) is module

    def _count_parameter_change(self, module: nn.Module, name: str, value: nn.Parameter) -> None:
        if self._is_watched(module) and module._parameters.get(name) is not value:
            self.number += 1

    def _count_submodule_change(self, module: nn.Module, name: str, value: nn.Module) -> None:
        if self._is_watched(module) and module._modules.get(name) is not value:
            self.number += 1

    def _count_new_buffer(self, module: nn.Module, name: str, value: object) -> None:
        # One assigned anew in each forward is looked up where it stands; only the place of a new one is not known.
        if self._is_watched(module) and name not in module._buffers:
            self.number += 1


changes = LearnerModuleChanges()

# SPDX-License-Identifier: Apache-2.0
"""Modules of this package that people call, as `ts.run(...)`: their names are those of functions or classes nearby."""

from types import ModuleType
from typing import Any, NoReturn

from truestep.core.errors import OptionError
from truestep.core.guidance import guidance


class UncallableModule(ModuleType):
    """A module that says what to write where it is called."""

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Say what to write."""
        name = self.__name__.rpartition(".")[2]
        instead = guidance("ts.NAME()", name)
        raise OptionError(f"ts.{name} is a module and can't be called.{f' {instead}.' if instead else ''}")


def refuse_calls_of_modules(package: ModuleType) -> None:
    """Have the modules of a package that are imported by now say what to write where one is called."""
    for module in list(vars(package).values()):
        if type(module) is ModuleType and module.__name__.startswith(f"{package.__name__}."):
            module.__class__ = UncallableModule

# SPDX-License-Identifier: Apache-2.0
"""`trainer.save(path, trainer)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function


class ObjectGivenToItsMethod(SourceCheck):
    """A method is given its own object where it takes a number or a flag.

    Why: any object is true: the flag is set, or the number is no number.

    Bad:
        class Keeper:
            def save(self, path, save_optimizer=True):
                print(path, save_optimizer)

        keeper = Keeper()
        keeper.save("best.pt", keeper)  # here

    Good:
        class Keeper:
            def save(self, path, save_optimizer=True):
                print(path, save_optimizer)

        keeper = Keeper()
        keeper.save("best.pt", save_optimizer=False)

    Fix: give the flag by its name.
    """

    code = "VALUE011"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a call where every method of that name in the program has a number or flag there."""
        for call in module.all(ast.Call) if "torch" in module.text else ():
            if not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)):
                continue
            for at, given in enumerate(call.args):
                if at and isinstance(given, ast.Name) and given.id == call.func.value.id:
                    taking = _methods(module, call.func.attr)
                    if taking and all(_takes_number(each, at) for each in taking):
                        text = f"{given.id!r} itself is given, where {call.func.attr}() takes a number or a flag."
                        yield At(call, text, RISK)


def _methods(module: SourceModule, name: str) -> list[Function]:
    """Return the methods of a name whose second argument a call could fill, in the whole program."""
    found = [each for file in module.linked for each in file.functions if each.name == name]
    return [each for each in found if each.args.args and each.args.args[0].arg == "self"]


def _takes_number(function: Function, position: int) -> bool:
    names = function.args.args[1:]
    defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    default = defaults.get(names[position]) if position < len(names) else None
    return isinstance(default, ast.Constant) and isinstance(default.value, bool | int | float)

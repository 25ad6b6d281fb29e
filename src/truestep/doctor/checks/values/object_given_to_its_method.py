# SPDX-License-Identifier: Apache-2.0
"""`trainer.save(path, trainer)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.signatures import positional


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
                    taking = _methods(module, call, at)
                    if taking and all(_takes_constant(each, at) for each in taking):
                        text = f"{given.id!r} itself is given, where {call.func.attr}() takes a number or a flag."
                        yield At(call, text, RISK)


def _methods(module: SourceModule, call: ast.Call, position: int) -> list[Function]:
    """Return what a call may run that takes so many arguments: its method, or all of its name in the program."""
    assert isinstance(call.func, ast.Attribute)
    known = module.target(call)
    name = call.func.attr
    found = [each for file in module.linked for each in file.functions if each.name == name]
    return [each for each in ([known] if known else found) if position < len(positional(each))]


def _takes_constant(function: Function, position: int) -> bool:
    """Tell whether a parameter stands for a number, a flag, or nothing where none is given."""
    names = function.args.args[1:]
    defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    default = defaults.get(names[position]) if position < len(names) else None
    return isinstance(default, ast.Constant) and not isinstance(default.value, str)

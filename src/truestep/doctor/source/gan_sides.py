# SPDX-License-Identifier: Apache-2.0
"""Which side of a GAN a name stands for."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import argument

_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_WORDS = {
    "discriminator": {"d", "od", "optd", "netd", "disc", "dis", "discriminator", "discriminators", "critic"},
    "generator": {"g", "og", "optg", "netg", "gen", "generator", "generators"},
}


def gan_role_in_source(name: str) -> str | None:
    """Return the one side that the words of a name tell: `netD`, `g_opt`, `opts["G"]`; what a call is given is no part of it."""
    words = {each.lower() for each in _WORD.findall(re.split("[(@]", name)[0].removeprefix("self."))}
    found = [side for side, known in _WORDS.items() if words & known]
    return found[0] if len(found) == 1 else None


def crossed_optimizers(module: SourceModule) -> Iterator[tuple[ast.Call, str, str]]:
    """Yield optimizers that are named after one side and hold the other side's weights alone, with both names."""
    for _, call in module.calls_matching("torch.optim."):
        given, name = argument(call, 0, "params"), _name_assigned_to_call(module, call)
        if given is None or name is None:
            continue
        held = [
            ast.unparse(each.func.value)
            for each in ast.walk(given)
            if isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in ("parameters", "named_parameters")
        ]
        sides = {gan_role_in_source(each) for each in held}
        if None not in sides and len(sides) == 1 and gan_role_in_source(name) not in {None, *sides}:
            yield call, name, held[0]


def _name_assigned_to_call(module: SourceModule, call: ast.Call) -> str | None:
    """Return what a value is assigned to, alone or in a tuple, or its key in a dictionary."""
    above = module.parents[call]
    match above:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() | ast.Subscript() as target]):
            return ast.unparse(target)
        case ast.Dict(keys=keys, values=values) if (key := keys[values.index(call)]) is not None:
            return ast.unparse(key)
        case ast.Tuple(elts=parts):
            match module.parents[above]:
                case ast.Assign(targets=[ast.Tuple(elts=names)]) if len(names) == len(parts):
                    return ast.unparse(names[parts.index(call)])
    return None

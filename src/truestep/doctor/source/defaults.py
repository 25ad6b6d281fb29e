# SPDX-License-Identifier: Apache-2.0
"""What a setting is where nobody says otherwise: the default of a dataclass' field, or of an option of a command."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class
from truestep.doctor.source.values import argument, constant, forwards_all, literal


def usual_value(module: SourceModule, node: ast.expr | None) -> tuple[object, bool]:
    """Return the constant that a setting usually is, or None, and whether it is that for certain."""
    value = literal(module, node)
    if value is not None or not isinstance(node, ast.Attribute):
        return value, value is not None
    owner = module.classes.of(node.value)
    if owner is not None:
        return _of_field(module, owner, node.attr)
    defaults = module.program.answer(_defaults_of_commands)
    return defaults.get(node.attr), False


def _of_field(module: SourceModule, owner: Class, name: str) -> tuple[object, bool]:
    fields = module.resolver.attribute_bindings(owner, name)
    found = {constant(each.value) for each in fields}
    if len(found) != 1 or not all(module.resolver.index.is_option(each) for each in fields):
        return None, False
    made = [
        call for call in module.index.calls.get(owner.name, []) if module.classes.named(call.func) is owner
    ]
    if any(call.args or forwards_all(call) or argument(call, None, name) is not None for call in made):
        return None, False
    return found.pop(), bool(made)


def _defaults_of_commands(files: list[SourceModule]) -> dict[str, object]:
    """Return the defaults of `parser.add_argument("--num-workers", default=4)` by the attribute they become."""
    found: dict[str, object] = {}
    for module in files:
        for call in module.method_calls("add_argument"):
            texts = [constant(each) for each in call.args]
            names = [each for each in texts if isinstance(each, str) and each.startswith("--")]
            told = constant(argument(call, None, "dest")) or (
                names[0].lstrip("-").replace("-", "_") if names else None
            )
            default = constant(argument(call, None, "default"))
            if isinstance(told, str) and default is not None:
                found[told] = default
    return found

# SPDX-License-Identifier: Apache-2.0
"""A trained tensor that is no Parameter."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, name_of, without_keyword, wrapped
from truestep.doctor.source.values import argument, literal

_SHOWS = ("print", "logging.info", "logging.debug", "logger.info", "logger.debug")


class ParameterTensorNotRegistered(SourceCheck):
    """A module makes a tensor with requires_grad=True that is no nn.Parameter.

    Why: it gets gradients, but parameters() does not know it: no optimizer trains it, nothing saves it.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.zeros(3, requires_grad=True)  # here

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(3))

    Fix: nn.Parameter(tensor).

    Evidence: 186 repositories, bed E: 1 true, 3 debatable, 6 false.
    """

    code = "PARAM003"
    words = ("requires_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an attribute of a module that asks for gradients."""
        for owner in module.kinds.classes_of("module"):
            for name, bindings in module.classes.attributes(owner).items():
                value = bindings[0].value
                asks = (
                    isinstance(value, ast.Call)
                    and literal(module, argument(value, None, "requires_grad")) is True
                )
                if (
                    asks
                    and isinstance(value, ast.Call)
                    and (module.qualify(value.func) or "").startswith("torch.")
                    and not (module.qualify(value.func) or "").startswith("torch.nn.")
                    and not module.program.answer(_asked_for_gradients) & {name}
                ):
                    yield At(bindings[0].node, f"self.{name} asks for gradients, but is no nn.Parameter.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Make it a Parameter."""
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            raise SourceRewriteError
        bare = without_keyword(module, node.value, "requires_grad")
        return [bare, *wrapped(module, node.value, name_of(module, "torch.nn.Parameter"))]


def _asked_for_gradients(files: list[SourceModule]) -> frozenset[str]:
    """Return the attributes whose gradients the program reads itself, be it by another name: inputs that it changes."""
    found = [each for file in files for each in file.read_under("grad") if isinstance(each, ast.Attribute)]
    read = [each.value for each in found if not _is_looked_at(files[0], each)]
    calls = [call for file in files for call in file.calls("torch.autograd.grad")]
    given = [argument(call, 1, "inputs") for call in calls]
    read += [part for each in given if each is not None for part in _parts_of(each)]
    behind = [value for each in read for value in (each, *files[0].definitions(each))]
    return frozenset(each.attr for each in behind if isinstance(each, ast.Attribute))


def _is_looked_at(module: SourceModule, gradient: ast.Attribute) -> bool:
    """Tell a gradient that is printed, or asked whether there is one: that changes nothing."""
    above = list(module.ancestors(gradient))
    is_shown = any(isinstance(each, ast.Call) and dotted(each.func) in _SHOWS for each in above)
    return is_shown or isinstance(above[0], ast.Compare)


def _parts_of(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]

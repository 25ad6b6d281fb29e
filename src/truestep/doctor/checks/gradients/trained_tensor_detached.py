# SPDX-License-Identifier: Apache-2.0
"""A tensor that is optimized and used only as a number."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.uses import reads_followed
from truestep.doctor.source.values import argument, constant, is_call_of, literal

_CUTS = operations(numbers="kept itself", graph="cut left")
_SHOWS = ("print", "len", "float", "str", "format", "repr")


class TrainedTensorDetached(SourceCheck):
    """A tensor with requires_grad=True that an optimizer holds is only ever used detached.

    Why: what is computed from the detached value has no way back to the tensor: it never gets a gradient,
    and the optimizer never changes it.

    Bad:
        scale = torch.tensor(10.0, requires_grad=True)
        opt = torch.optim.SGD([scale], lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x * scale.item()), y).backward()  # here
            opt.step()

    Good:
        scale = torch.tensor(10.0, requires_grad=True)
        opt = torch.optim.SGD([scale], lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x * scale), y).backward()
            opt.step()

    Fix: compute with the tensor itself; .detach() and .item() are for what is shown.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/075/main.py:16;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/075/original_code_snippet.py:11; bed E: 0 true, 4 false.
    """

    code = "GRAD041"
    words = ("requires_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the last such use, where all uses but those that show it are detached."""
        for assignment in module.all(ast.Assign):
            target, value = assignment.targets[0], assignment.value
            if isinstance(target, ast.Name) and is_call_of(
                module, value, "torch.tensor", "torch.nn.Parameter"
            ):
                assert isinstance(value, ast.Call)
                if literal(module, argument(value, None, "requires_grad")) is not True:
                    continue
                every = [use for each in module.reads(target.id) for use in reads_followed(module, each)]
                reads = [node for node in every if not _shown(module, node)]
                held = [node for node in reads if self._optimized(module, node)]
                rest = [node for node in reads if node not in held]
                is_by_hand = any(_is_given_a_gradient(module, node) for node in every)
                is_trained = bool(held) and not is_by_hand and _goes_backward(module, target)
                if is_trained and rest and all(_is_detached(module, node) for node in rest):
                    yield At(
                        rest[-1], f"{target.id!r} is trained, but used only detached: no gradient for it."
                    )

    def _optimized(self, module: SourceModule, node: ast.expr) -> bool:
        """Tell whether it stands in a list that an optimizer gets, there or under a name."""
        home = module.parents.get(node)
        if not isinstance(home, (ast.List, ast.Tuple)):
            return False
        above = module.parents.get(home)
        if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
            uses = module.reads(above.targets[0].id)
            return any(self._goes_to_optimizer(module, module.parents.get(each)) for each in uses)
        return self._goes_to_optimizer(module, above)

    def _goes_to_optimizer(self, module: SourceModule, node: ast.AST | None) -> bool:
        return isinstance(node, ast.Call) and module.kind(node) == "optimizer"


def _goes_backward(module: SourceModule, target: ast.Name) -> bool:
    """Tell whether anything goes backward where the tensor lives: else an optimizer is tried alone, or restored."""
    return any(each.attr == "backward" for each in module.inside(module.scope(target), ast.Attribute))


def _is_detached(module: SourceModule, node: ast.expr) -> bool:
    above = module.parents.get(node)
    return isinstance(above, ast.Attribute) and above.attr in _CUTS


def _is_given_a_gradient(module: SourceModule, node: ast.expr) -> bool:
    """Tell `w.grad = ...`, `w.grad.copy_(...)` and `setattr(w, "grad", ...)`: the step moves it by that."""
    above = module.parents.get(node)
    if isinstance(above, ast.Call):
        return dotted(above.func) == "setattr" and any(constant(each) == "grad" for each in above.args[1:2])
    if not isinstance(above, ast.Attribute) or above.attr != "grad":
        return False
    method = module.parents.get(above)
    in_place = isinstance(method, ast.Attribute) and method.attr.endswith("_") and method.attr != "zero_"
    return isinstance(above.ctx, ast.Store) or in_place


def _shown(module: SourceModule, node: ast.expr) -> bool:
    """It is printed or formatted, or its gradient or shape is looked at."""
    above = module.parents.get(node)
    if isinstance(above, ast.Attribute) and above.attr in ("grad", "shape", "requires_grad", "dtype"):
        return True
    calls = [each for each in module.ancestors(node) if isinstance(each, ast.Call)]
    return any(ast.unparse(each.func).rsplit(".", 1)[-1] in _SHOWS for each in calls) or any(
        isinstance(each, ast.FormattedValue) for each in module.ancestors(node)
    )

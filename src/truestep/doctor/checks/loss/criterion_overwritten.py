# SPDX-License-Identifier: Apache-2.0
"""`loss = loss(...)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule


class CriterionOverwritten(SourceCheck):
    """The name of a loss function is given to its result, inside a loop.

    Why: in the next iteration it is a tensor, which can't be called: TypeError.

    Bad:
        loss = nn.CrossEntropyLoss()
        for x, y in loader:
            loss = loss(net(x), y)  # here

    Good:
        criterion = nn.CrossEntropyLoss()
        for x, y in loader:
            loss = criterion(net(x), y)

    Fix: two names.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/086/main.py:40;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/086/original_code_snippet.py:7; 186 repositories, bed W:
    2 true, 0 false.
    """

    code = "LOSS014"
    words = ("Loss", "backward")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `x = x(...)` in a loop, where x is made by a loss outside of it."""
        for assignment in module.all(ast.Assign):
            target, value = assignment.targets[0], assignment.value
            if not (
                isinstance(target, ast.Name)
                and isinstance(value, ast.Call)
                and isinstance(value.func, ast.Name)
            ):
                continue
            loops = [each for each in module.ancestors(assignment) if isinstance(each, (ast.For, ast.While))]
            if (
                value.func.id == target.id
                and loops
                and self._is_loss_made_outside_loop(module, value.func, loops[0])
            ):
                yield At(
                    assignment,
                    f"{target.id!r} is the loss function in the first iteration and a tensor in the second.",
                )

    def _is_loss_made_outside_loop(self, module: SourceModule, name: ast.Name, loop: ast.AST) -> bool:
        bindings = module.names.bindings(name)
        if any(each.how == "parameter" for each in bindings):
            given = [each for each in module.definitions(name) if each is not None]
            return any(module.kind(each) == "loss" for each in given if loop not in module.ancestors(each))
        values = [each for each in bindings if each.value is not None]
        made = [each for each in values if each.value is not None and module.kind(each.value) == "loss"]
        if len(values) == 1 and not made:  # made elsewhere, as in a cell: what is done with the result tells
            return any(
                isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == name.id
                for call in module.method_calls("backward")
                if loop in module.ancestors(call)
            )
        same_scope = made and module.scope(made[0].node) is module.scope(name)
        return bool(same_scope) and all(loop not in module.ancestors(each.node) for each in made)

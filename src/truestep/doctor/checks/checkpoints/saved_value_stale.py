# SPDX-License-Identifier: Apache-2.0
"""A best score that what is saved does not know."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


class SavedValueStale(SourceCheck):
    """A score is read from an object into a variable, the variable is kept up to date, and the object is saved.

    Why: the object holds the old score: a resumed run overwrites its best model with a worse one.

    Bad:
        def fit(trainer, epochs):
            best_score = trainer.best_score
            for epoch in range(epochs):
                score = trainer.evaluate(net)
                if score > best_score:
                    best_score = score  # here
                    trainer.save("best.pt")

    Good:
        def fit(trainer, epochs):
            for epoch in range(epochs):
                score = trainer.evaluate(net)
                if score > trainer.best_score:
                    trainer.best_score = score
                    trainer.save("best.pt")

    Fix: write it to the object.
    """

    code = "SAVE012"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a variable of an attribute's name that a loop changes, where the object is saved and never told."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.Assign):
            target, value = node.targets[0], node.value
            same = (
                isinstance(target, ast.Name) and isinstance(value, ast.Attribute) and target.id == value.attr
            )
            if not same or not isinstance(target, ast.Name) or not isinstance(value, ast.Attribute):
                continue
            changed = _changed_in_loop(module, node, target.id)
            owner = dotted(value.value)
            if (
                changed is not None
                and owner
                and _is_saved(module, changed, owner)
                and not _is_told(module, node)
            ):
                yield At(changed, f"{owner!r} is saved, and its {value.attr!r} stays the old one.", RISK)


def _changed_in_loop(module: SourceModule, node: ast.Assign, name: str) -> ast.Assign | None:
    """Return the assignment of a variable in a loop that its first value stands before."""
    for each in module.all(ast.Assign):
        stores = isinstance(each.targets[0], ast.Name) and each.targets[0].id == name
        if (
            stores
            and each is not node
            and module.scope(each) is module.scope(node)
            and each.lineno > node.lineno
        ):
            loop = module.loop(each)
            if loop is not None and loop is not module.loop(node):
                return each
    return None


def _is_saved(module: SourceModule, changed: ast.Assign, owner: str) -> bool:
    """Tell `trainer.save(path)` in the function of the change, which is not given the new value."""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr.startswith("save")
        and dotted(call.func.value) == owner
        and module.scope(call) is module.scope(changed)
        and not any(
            dotted(each) == dotted(changed.targets[0]) for each in call.args
        )  # it is told what is new
        for call in module.all(ast.Call)
    )


def _is_told(module: SourceModule, node: ast.Assign) -> bool:
    """Tell whether the function writes the attribute."""
    place = dotted(node.value)
    return any(
        dotted(target) == place
        for each in module.stores
        if module.scope(each) is module.scope(node)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    )

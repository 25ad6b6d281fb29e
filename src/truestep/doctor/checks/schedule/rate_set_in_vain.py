# SPDX-License-Identifier: Apache-2.0
"""A learning rate written where nobody reads it."""

import ast
import difflib
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.rewriting import (
    Edits,
    SourceRewriteError,
    after,
    node_text,
    remove_statement,
    rename_attribute,
    replace_node,
)
from truestep.doctor.source.value_origins import constant

NAMES = ("lr", "learning_rate", "weight_decay", "momentum")
_ALIKE = 0.8  # of two names of attributes


class RateSetInVain(SourceCheck):
    """A learning rate is assigned to `optimizer.lr` or `optimizer.defaults`, which no step reads.

    Why: step() reads optimizer.param_groups; Python accepts the new attribute, and the rate stays.

    Bad:
        for epoch in range(10):
            if epoch == 5:
                opt.defaults["lr"] = 0.001  # here
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        for epoch in range(10):
            if epoch == 5:
                for group in opt.param_groups:
                    group["lr"] = 0.001
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: `for group in opt.param_groups: group["lr"] = ...`, or a schedule.

    Evidence: the plain form of row 14 of docs/mistakes.md; 186 repositories, beds E, F, N, P, U: 8 true, 11
    false.
    """

    code = "SCHED008"
    words = (
        ".lr",
        "params_group",
        "param_group",
        "groups",
        ".learning_rate",
        ".defaults",
        ".weight_decay",
        ".momentum",
        "param_groups",
    )

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an assignment to such an attribute, or item of `defaults`, of an optimizer."""
        yield from _find_writes_to_state_copy(module)
        yield from _find_misspelt_param_groups(module)
        statements: list[ast.Assign | ast.AugAssign] = [*module.all(ast.Assign), *module.all(ast.AugAssign)]
        for statement in statements:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                optimizer = _optimizer_of_target(target)
                if optimizer is not None and module.kind(optimizer) == "optimizer":
                    beside = _are_groups_set_too(module, statement, target, optimizer)
                    if (
                        module.classes.of(optimizer) is None and not beside
                    ):  # an optimizer of this file may read it
                        yield At(
                            statement, f"No step reads {ast.unparse(target)}: the value stays what it was."
                        )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Write to the groups that step() reads."""
        if isinstance(node, ast.Subscript) and isinstance(groups := _groups_expression(node), ast.Attribute):
            return [rename_attribute(module, groups, "param_groups")]
        if isinstance(node, ast.Subscript):
            assert isinstance(node.value, ast.Call)
            assert isinstance(node.value.func, ast.Attribute)
            return [replace_node(module, node, f"{node_text(module, node.value.func.value)}.param_groups")]
        if not isinstance(node, ast.Assign):
            raise SourceRewriteError
        target, value = node.targets[0], node_text(module, node.value)
        optimizer = _optimizer_of_target(target)
        assert optimizer is not None
        name = constant(target.slice) if isinstance(target, ast.Subscript) else getattr(target, "attr", "lr")
        name = "lr" if name == "learning_rate" else name
        head = remove_statement(module, node)
        loop = (
            f"for group in {node_text(module, optimizer)}.param_groups:",
            f'    group["{name}"] = {value}',
        )
        if head.text == "pass":
            indent = " " * (node.col_offset + 4)
            return [replace_node(module, node, f"{loop[0]}\n{indent}{loop[1].strip()}")]
        return [head, after(module, node, *loop)]


def _find_misspelt_param_groups(module: SourceModule) -> Iterator[At]:
    """Report settings that are written to groups of an optimizer, or to its parts, under a name that it does not have."""
    for target in module.all(ast.Subscript):
        groups, setting = _groups_expression(target), constant(target.slice)
        if not isinstance(groups, ast.Attribute) or groups.attr == "param_groups" or setting not in NAMES:
            continue
        named = difflib.get_close_matches(groups.attr, ["param_groups"], n=1, cutoff=_ALIKE)
        if named and isinstance(target.ctx, ast.Store):
            text = f"An optimizer has no {groups.attr!r}: this line raises AttributeError. Is param_groups meant?"
            yield At(target, text, BUG)


def _groups_expression(target: ast.Subscript) -> ast.expr:
    return target.value.value if isinstance(target.value, ast.Subscript) else target.value


def _are_groups_set_too(
    module: SourceModule, statement: ast.stmt, target: ast.expr, optimizer: ast.expr
) -> bool:
    """Tell whether the function goes to the groups of the optimizer too, or adds one behind, which reads `defaults`."""
    name, scope = dotted_name(optimizer), module.scope(statement)
    readers = module.reads(f"{name}.param_groups")
    if isinstance(target, ast.Subscript):
        added = module.reads(f"{name}.add_param_group")
        readers = [*readers, *(each for each in added if each.lineno > statement.lineno)]
    return any(module.scope(each) is scope for each in readers)


def _find_writes_to_state_copy(module: SourceModule) -> Iterator[At]:
    """Report a loop that writes into `optimizer.state_dict()["param_groups"]`, whose groups are copies."""
    for loop in module.all(ast.For):
        over = loop.iter
        named = isinstance(over, ast.Subscript) and constant(over.slice) == "param_groups"
        call = over.value if isinstance(over, ast.Subscript) and named else None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)) or call.args:
            continue
        stores = [each for part in loop.body for each in walk(part) if isinstance(each, ast.Subscript)]
        written = [
            each for each in stores if isinstance(each.ctx, ast.Store) and constant(each.slice) in NAMES
        ]
        if call.func.attr == "state_dict" and any(
            isinstance(loop.target, ast.Name) and dotted_name(each.value) == loop.target.id
            for each in written
        ):
            yield At(over, "state_dict() gives copies of the groups: no step reads what is written there.")


def _optimizer_of_target(target: ast.expr) -> ast.expr | None:
    if isinstance(target, ast.Attribute) and target.attr in NAMES:
        return target.value
    if (
        isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "defaults"
        and constant(target.slice) in NAMES
    ):
        return target.value.value
    return None

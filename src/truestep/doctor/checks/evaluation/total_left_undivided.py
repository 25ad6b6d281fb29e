# SPDX-License-Identifier: Apache-2.0
"""One of several totals that is not divided."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, last_part, walk
from truestep.doctor.source.uses import names_read

_WORD = re.compile(r"\w+")
_MATRIX = re.compile(r"confusion|(^|_)hist", re.IGNORECASE)


class TotalLeftUndivided(SourceCheck):
    """Totals are summed in one loop and divided by its length, and one of them is not.

    Why: it is reported as a sum beside means, or outweighs them where they are added.

    Bad:
        def evaluate(batches):
            box_loss, class_loss, mask_loss = 0.0, 0.0, 0.0
            for boxes, classes, masks in batches:
                box_loss += boxes.item()
                class_loss += classes.item()
                mask_loss += masks.item()
            box_loss /= len(batches)
            class_loss /= len(batches)  # here
            return box_loss + class_loss + mask_loss

    Good:
        def evaluate(batches):
            box_loss, class_loss, mask_loss = 0.0, 0.0, 0.0
            for boxes, classes, masks in batches:
                box_loss += boxes.item()
                class_loss += classes.item()
                mask_loss += masks.item()
            box_loss /= len(batches)
            class_loss /= len(batches)
            mask_loss /= len(batches)
            return box_loss + class_loss + mask_loss

    Fix: divide it too.

    Evidence: 186 repositories, beds C, L: 1 true, 4 false.
    """

    code = "EVAL032"
    words = ("/=", " / ")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the last division beside which a total of the same block is used as it is."""
        for function in module.named_functions if "torch" in module.text else ():
            totals = _totals(module, function)
            divisors = {
                word for _, divisor in _divisions(module, function) for word in _WORD.findall(divisor)
            }
            for (_, divisor), divided in _divisions(module, function).items() if totals else ():
                blocks = {module.parents[totals[name]] for name in divided if name in totals}
                if len(divided) < 2 or len(blocks) != 1:
                    continue
                last = max(divided.values(), key=lambda each: each.lineno)
                for name, added in totals.items():
                    beside = module.parents[added] in blocks and not isinstance(added.value, ast.Constant)
                    if (
                        beside
                        and name not in divided
                        and name not in divisor
                        and name not in divisors
                        and not _is_count(module, added)
                        and _used_whole(function, name, last)
                    ):
                        yield At(last, f"{name!r} is summed beside these, and never divided.", RISK)


def _totals(module: SourceModule, function: Function) -> dict[str, ast.AugAssign]:
    """Return what is added to once, in a loop."""
    found: dict[str, list[ast.AugAssign]] = {}
    for node in module.inside(function, ast.AugAssign):
        if isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(node)
    return {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1 and module.loop(nodes[0])}


def _divisions(module: SourceModule, function: Function) -> dict[tuple[ast.AST, str], dict[str, ast.stmt]]:
    """Return what is divided in place, by block and divisor."""
    found: dict[tuple[ast.AST, str], dict[str, ast.stmt]] = {}
    for node in module.inside(function, ast.AugAssign, ast.Assign):
        name: ast.expr | None = None
        divisor: ast.expr | None = None
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            name, divisor = node.target, node.value
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.BinOp)
            and isinstance(node.value.op, ast.Div)
        ):
            name, divisor = node.value.left, node.value.right
        if isinstance(node, ast.stmt) and isinstance(name, ast.Name) and divisor is not None:
            found.setdefault((module.parents[node], ast.unparse(divisor)), {})[name.id] = node
    return found


def _used_whole(function: Function, name: str, last: ast.stmt) -> bool:
    """Tell whether a name is read behind the divisions, and divided nowhere."""
    if name in _divided_in_place(function) or "time" in name.split("_"):
        return False
    divided = [
        each for each in walk(function) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div)
    ]
    reads = [each for each in walk(function) if isinstance(each, ast.Name) and each.id == name]
    later = any(isinstance(each.ctx, ast.Load) and each.lineno > last.lineno for each in reads)
    return later and not any(name in names_read(each) for each in divided)


def _is_count(module: SourceModule, added: ast.AugAssign) -> bool:
    """Tell a number of samples, and a confusion matrix: the ratios that they are for need no division."""
    values = [added.value, *(each for each in module.definitions(added.value) if each is not None)]
    asked = [last_part(each.func) for each in values if isinstance(each, ast.Call)]
    asked += [last_part(each.value) for each in values if isinstance(each, ast.Subscript)]
    makers = [module.home(each).scope(each) for each in values]
    functions = [each for each in makers if isinstance(each, ast.FunctionDef)]
    asked += [each.name for each in functions if each is not module.scope(added)]
    return any(each in ("size", "len", "numel", "shape") or _MATRIX.search(each) for each in asked)


def _divided_in_place(function: Function) -> set[str]:
    found = [each for each in walk(function) if isinstance(each, ast.AugAssign)]
    found = [each for each in found if isinstance(each.op, ast.Div)]
    return {each.target.id for each in found if isinstance(each.target, ast.Name)}

# SPDX-License-Identifier: Apache-2.0
"""Whether something happens on one rank of a job alone, by the tests and the early returns around it."""

import ast
import re

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted, names_in, walk
from truestep.doctor.source.uses import arms, in_same_block

# what a program may call the question for the rank, or for what only one rank has
_ASKS = re.compile(
    r"rank|master|main_proc|is_main|primary|is_chief|is_root|leader|coordinator|process_index|process_id"
    r"|device_id|^gpu$|gpu_id|local_(id|main|proc)|node_|should_|can_save|writer|logger|saver",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"distributed|ddp|world_size|num_(gpus|proc)|multi|parallel|is_initialized", re.IGNORECASE
)
_OWN = re.compile(r"rank|gpu|process|pid$|uuid|host|worker|mkdtemp|tempfile", re.IGNORECASE)
_LEAVES = (ast.Return, ast.Continue, ast.Raise)
_STEPS = 3  # names that a test is followed through


def is_of_one_rank(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a test around a node, or a return before it in its function, may ask for the rank."""
    child: ast.AST = node
    for above in module.ancestors(node):
        tests = [item.context_expr for item in getattr(above, "items", ())]
        if isinstance(above, ast.If | ast.IfExp | ast.While) and child is not above.test:
            tests = [above.test]
        if any(asks_for_rank(module, each) for each in tests):
            return True
        if isinstance(above, ast.If) and _is_alone(above, child):
            return True
        if any(_leaves_others(module, each) for each in in_same_block(module, child)[0]):
            return True
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return not isinstance(above, ast.Lambda) and bool(_foreign_decorators(above))
        child = above
    return False


def _is_alone(choice: ast.If, child: ast.AST) -> bool:
    """Tell the arm of `if distributed:` in which there is one process."""
    test, _, without = arms(choice)
    names = [*names_in(test), *(each.attr for each in walk(test) if isinstance(each, ast.Attribute))]
    several = any(_SEVERAL.search(each) for each in names)
    return several and (child in without or isinstance(test, ast.Compare))


def asks_for_rank(module: SourceModule, test: ast.expr) -> bool:
    """Tell a test by its names, and by those of what they stand for."""
    waiting, seen = [test], set[ast.expr]()
    for _ in range(_STEPS):
        behind: list[ast.expr] = []
        for current in waiting:
            seen.add(current)
            if any(_ASKS.search(name) for name in _names(current)):
                return True
            for each in walk(current):
                is_base = isinstance(
                    module.parents.get(each), ast.Attribute
                )  # the object: not what is asked of it
                if isinstance(each, ast.Name | ast.Attribute) and not is_base:
                    behind += [
                        made for made in module.definitions(each) if made is not None and made not in seen
                    ]
        waiting = behind
    return False


def _names(node: ast.expr) -> list[str]:
    attributes = [each.attr for each in walk(node) if isinstance(each, ast.Attribute)]
    texts = [
        each.value for each in walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    return [*names_in(node), *attributes, *texts]


def _leaves_others(module: SourceModule, statement: ast.stmt) -> bool:
    """Tell `if rank != 0: return`."""
    if not isinstance(statement, ast.If) or not any(isinstance(each, _LEAVES) for each in statement.body):
        return False
    return asks_for_rank(module, statement.test)


def _foreign_decorators(function: Function) -> list[ast.expr]:
    """Return the decorators that may keep a function from running."""
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    return [each for each in decorators if dotted(each) not in ("staticmethod", "classmethod", "property")]


def differs_between_ranks(module: SourceModule, path: ast.expr, depth: int = 0) -> bool:
    """Tell whether a path is made of something that each rank has its own of; what an object was made by does not count."""
    for each in walk(path):
        name = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        if _OWN.search(name):
            return True
        if (
            isinstance(each, ast.Name)
            and depth < _STEPS
            and not isinstance(module.parents[each], ast.Attribute)
        ):
            found = [made for made in module.definitions(each) if made is not None]
            if any(differs_between_ranks(module, made, depth + 1) for made in found):
                return True
    return False

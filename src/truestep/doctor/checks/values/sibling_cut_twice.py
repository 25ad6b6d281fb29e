# SPDX-License-Identifier: Apache-2.0
"""Two names for what is cut out of one value, where the second is named after another value."""

import ast
from collections.abc import Iterator, Sequence

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.arguments import parameter_names
from truestep.doctor.source.cached_questions import mentions_torch
from truestep.doctor.source.live_variables import are_in_other_arms
from truestep.doctor.source.module import SourceModule

_ASKED = ("shape", "size", "device", "dtype", "ndim", "columns", "index")


class SiblingCutTwice(SourceCheck):
    """The same value is written twice, and the second time it is named after another value that stands beside it.

    Why: `y_train, y_test = split(x)` below `x_train, x_test = split(x)` is a copied line in which one name was left, so
    the labels are the inputs.

    Bad:
        def split(x, y, rows):
            x_train, x_test = np.split(x, [rows])
            y_train, y_test = np.split(x, [rows])  # here
            return x_train, y_train, x_test, y_test

    Good:
        def split(x, y, rows):
            x_train, x_test = np.split(x, [rows])
            y_train, y_test = np.split(y, [rows])
            return x_train, y_train, x_test, y_test

    Fix: write the other value.

    Evidence: JorisRoels/neuralnets 0cdfb2b4 neuralnets/util/tools.py:427; beds T, V: 2 true, 0 false.
    """

    code = "VALUE044"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the second of two such assignments, where its names are the first one's with a value in sight for the other."""
        if "numpy" not in module.text and not module.program.answer(mentions_torch):
            return  # what evaluates or loads beside a script often knows arrays alone
        for scope in (module.tree, *module.named_functions):
            written: dict[str, list[ast.Assign]] = {}
            for node in module.directly_in(scope, ast.Assign):
                if not isinstance(node.value, ast.Call | ast.Subscript) or len(node.targets) != 1:
                    continue
                same = written.setdefault(ast.dump(node.value), [])
                other = next((each for each in same if _is_in_same_block(module, each, node)), None)
                same.append(node)
                if other is None:
                    continue
                found = _replaced_word_pair(_target_names(other), _target_names(node))
                if (
                    found is not None
                    and found[0] in _names_used_for_value(node.value)
                    and _is_defined_before(scope, found[1], node)
                ):
                    text = (
                        f"{ast.unparse(node.targets[0])} is made of {found[0]!r}, as {ast.unparse(other.targets[0])} is: "
                        f"was {found[1]!r} meant?"
                    )
                    yield At(node, text, RISK)


def _is_in_same_block(module: SourceModule, one: ast.Assign, other: ast.Assign) -> bool:
    return module.parents[one] is module.parents[other] and not are_in_other_arms(module, one, other)


def _target_names(node: ast.Assign) -> list[str]:
    target = node.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return [each.id for each in parts if isinstance(each, ast.Name)]


def _replaced_word_pair(first: Sequence[str], second: Sequence[str]) -> tuple[str, str] | None:
    """Return the word in whose place another stands in all names: `x_train, x_test` and `y_train, y_test` give x and y."""
    pairs = set[tuple[str, str]]()
    for one, other in zip(first, second, strict=False):
        words = [(a, b) for a, b in zip(one.split("_"), other.split("_"), strict=False) if a != b]
        if len(words) != 1 or one.count("_") != other.count("_"):
            return None
        pairs.update(words)
    return pairs.pop() if len(pairs) == 1 and len(first) == len(second) else None


def _names_used_for_value(value: ast.expr) -> set[str]:
    """Return the names that a value is made of, without those that are asked for a size or a type alone."""
    asked = {
        each.value for each in ast.walk(value) if isinstance(each, ast.Attribute) and each.attr in _ASKED
    }
    asked |= {each.args[0] for each in ast.walk(value) if isinstance(each, ast.Call) and _is_len_call(each)}
    return {each.id for each in ast.walk(value) if isinstance(each, ast.Name) and each not in asked}


def _is_len_call(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "len" and bool(call.args)


def _is_defined_before(scope: ast.AST, name: str, node: ast.Assign | ast.expr) -> bool:
    """Tell a parameter, or a name that was given a value above."""
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) and name in parameter_names(scope):
        return True
    stored = (each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == name)
    return any(isinstance(each.ctx, ast.Store) and each.lineno < node.lineno for each in stored)

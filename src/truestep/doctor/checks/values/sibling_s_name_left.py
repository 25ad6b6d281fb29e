# SPDX-License-Identifier: Apache-2.0
"""A copy of a line or a function in which one name was not changed."""

import ast
import re
from collections.abc import Iterator, Sequence

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.uses import in_other_arms

_WORD = re.compile(r"[A-Z]+\d+[a-z]*|[A-Z]+(?=[A-Z][a-z])|[A-Za-z][a-z]*\d*[a-z]*|\d+[a-z]*")
_FEWEST = 3  # siblings that show a pattern
_SHORTEST = 3  # letters of a word that tells siblings apart


class SiblingSNameLeft(SourceCheck):
    """Several lines, or functions, differ in one name, and one of them has another's name in one place.

    Why: it was copied and not changed there: one thing is stored, loaded or computed twice, another never.

    Bad:
        for index in range(2):
            scaler_key = f"scaler{index}"
            optimizer_key = f"scaler{index}"  # here
            scheduler_key = f"scheduler{index}"
            print(scaler_key, optimizer_key, scheduler_key)

    Good:
        for index in range(2):
            scaler_key = f"scaler{index}"
            optimizer_key = f"optimizer{index}"
            scheduler_key = f"scheduler{index}"
            print(scaler_key, optimizer_key, scheduler_key)

    Fix: write the name that the line is about.
    """

    code = "VALUE010"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sibling's value under a name of its own, and a sibling's name within a copied function."""
        if "torch" not in module.text:
            return
        bodies = [getattr(each, "body", None) for each in module.all(ast.Module, ast.ClassDef, *_BLOCKS)]
        for body in bodies:
            if isinstance(body, list) and len(body) >= _FEWEST:
                for first, second in _lines(body):
                    if not _is_so_in_other_arms(module, first, second):
                        text = f"{_target(second)!r} is given the value of {_target(first)!r}, unlike the lines beside it."
                        yield At(second, text, RISK)
                yield from _functions([each for each in body if isinstance(each, ast.FunctionDef)])


_BLOCKS = (ast.FunctionDef, ast.For, ast.If, ast.With)


def _is_so_in_other_arms(module: SourceModule, first: ast.Assign, second: ast.Assign) -> bool:
    """Tell whether the two names are given one value in another arm of an `if` too: then they are meant to be the same."""
    values: dict[int, list[str]] = {}
    for each in module.inside(module.scope(first), ast.Assign):
        if _target(each) in (_target(first), _target(second)) and in_other_arms(module, each, first):
            values.setdefault(id(module.parents[each]), []).append(ast.dump(each.value))
    return any(len(each) > 1 and len(set(each)) == 1 for each in values.values())


def _lines(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.Assign, ast.Assign]]:
    """Yield (a line, and one behind it that has its value under another name)."""
    for run in _runs(body):
        names, values = [_target(each) for each in run], [_texts(each.value) for each in run]
        own_words = _own_words(names)
        fits = [bool(own & value) for own, value in zip(own_words, values, strict=True)]
        if any(max(map(len, own), default=0) < _SHORTEST for own in own_words):
            continue  # a letter stands in many a value
        if sum(fits) != len(run) - 1:
            continue  # all but one have the words of their names in their values
        at = fits.index(False)
        same = [i for i in range(at) if ast.dump(run[i].value) == ast.dump(run[at].value)]
        if same and _is_named(run[at].value):
            yield run[same[0]], run[at]


def _is_named(value: ast.expr) -> bool:
    """Tell whether a value is made with a text, as a key or the name of a file; a bare text may be shared."""
    texts = [each for each in walk(value) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return bool(texts) and not isinstance(value, ast.Constant)


def _runs(body: Sequence[ast.stmt]) -> Iterator[list[ast.Assign]]:
    """Yield the neighbours that are assignments of one form to one name each."""
    run: list[ast.Assign] = []
    for node in [*body, None]:
        if isinstance(node, ast.Assign) and _target(node) and (not run or _form(node) == _form(run[0])):
            run.append(node)
            continue
        if len(run) >= _FEWEST:
            yield run
        run = [node] if isinstance(node, ast.Assign) and _target(node) else []


def _functions(found: list[ast.FunctionDef]) -> Iterator[At]:
    alike: dict[tuple[str, ...], list[ast.FunctionDef]] = {}
    for each in found if len(found) >= _FEWEST else ():
        alike.setdefault(_form(each), []).append(each)
    for group in alike.values():
        if len(group) < _FEWEST:
            continue
        own = _own_words([each.name for each in group])
        handed = {
            each for function in group for each in _arguments(function)
        }  # by one name: it is the same for all
        names = [_names_in(each) for each in group]
        columns = list(zip(*names, strict=True)) if len({len(each) for each in names}) == 1 else []
        changed = [column for column in columns if _own_words([text for text, _ in column]) == own]
        apart = sum(len(each) for each in own) == len(frozenset[str]().union(*own))
        if len(changed) < 2 or not all(own) or not apart:
            continue
        for column in columns:
            if len({text for text, _ in column}) > 1 or column[0][0] in handed:
                continue
            of = [i for i in range(len(group)) if own[i] <= _words(column[0][0])]
            if len(of) == 1:
                for i, (text, node) in enumerate(column):
                    if i != of[0]:
                        yield At(node, f"{text!r} in {group[i].name}() is {group[of[0]].name}()'s.", RISK)


def _arguments(function: ast.FunctionDef) -> set[str]:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return {each.arg for each in every}


def _own_words(texts: Sequence[str]) -> list[frozenset[str]]:
    words = [_words(each) for each in texts]
    common = frozenset.intersection(*words)
    return [each - common for each in words]


def _names_in(node: ast.FunctionDef) -> list[tuple[str, ast.AST]]:
    """Return every name and text of a function, in order."""
    found: list[tuple[str, ast.AST]] = [(node.name, node)]
    for each in walk(node):
        text = getattr(each, "id", None) or getattr(each, "attr", None) or getattr(each, "arg", None)
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            text = each.value
        if isinstance(text, str):
            found.append((text, each))
    return found


def _form(node: ast.AST) -> tuple[str, ...]:
    return tuple(type(each).__name__ for each in walk(node))


def _target(node: ast.Assign) -> str:
    target = node.targets[0]
    return str(getattr(target, "id", None) or getattr(target, "attr", "")) if len(node.targets) == 1 else ""


def _texts(node: ast.AST) -> frozenset[str]:
    """Return the words of all names and texts of an expression."""
    found: set[str] = set()
    for each in walk(node):
        value = each.value if isinstance(each, ast.Constant) else None
        text = getattr(each, "id", None) or getattr(each, "attr", None) or value
        found |= _words(text) if isinstance(text, str) else frozenset()
    return frozenset(found)


def _words(text: str) -> frozenset[str]:
    return frozenset(each.lower() for each in _WORD.findall(text))

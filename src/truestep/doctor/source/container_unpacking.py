# SPDX-License-Identifier: Apache-2.0
"""Takes apart what only holds variables: a dict or an object of which every use names one item, and pairs of values.

The object of a method is called `self` here, as whoever reads the tree expects.

`kept = {}; kept["opt"] = SGD(...)` is a variable `kept.opt`, and `a, b = f(), g()` is two assignments. So whoever
follows a variable need not know of holders.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from truestep.doctor.replacement import parse_source
from truestep.doctor.source.names import children_of, is_read, walk

_MADE = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(\{\}|[\w.]+\(\))[ \t]*(?:#.*)?$", re.MULTILINE)
_BARE = re.compile(r"^class[ \t]+(\w+)(?:\(\))?:\s*(?:pass|\"\"\")", re.MULTILINE)
_MAY_PAIR = re.compile(r"^[ \t]*[\w.\[\]'\"]+[ \t]*,[^=(\n]*=[^=\n]+,", re.MULTILINE)
_OTHER_SELF = re.compile(r"^[ \t]+def[ \t]+\w+\([ \t]*(?!self\b|cls\b)\w+[ \t]*[,)]", re.MULTILINE)
_EMPTY = ("SimpleNamespace", "Namespace", "types.SimpleNamespace", "argparse.Namespace")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def parse_and_split(text: str, path: str) -> ast.Module:
    """Parse a file, and take its holders and pairs apart; every node keeps its place in the text."""
    tree = parse_source(text, path)
    for change in _needed_tree_changes(text):
        change(tree)
    return tree


def parse_as_written(text: str, path: str, apart: ast.Module) -> ast.Module:
    """Return the tree of a file as it stands there: the one that was taken apart, where nothing in it was."""
    return parse_source(text, path) if any(_needed_tree_changes(text)) else apart


@lru_cache(4)
def _needed_tree_changes(text: str) -> tuple[Callable[[ast.Module], None], ...]:
    """Return what may have to be changed in the tree of a text."""
    return (
        *((_replace_holder_items,) if _can_have_holders(text) else ()),
        *((_rename_self_parameters,) if _OTHER_SELF.search(text) else ()),
        *((_split_tuple_assignments,) if _MAY_PAIR.search(text) else ()),
    )


# ── objects by another name ───────────────────────────────────────────────────────────────────


def _rename_self_parameters(tree: ast.Module) -> None:
    """Call the object of a method `self`, whatever its first parameter is called; decorated ones may have none."""
    for owner in walk(tree):
        for method in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and not method.decorator_list and method.args.args:
                _rename_self_parameter(method)


def _rename_self_parameter(method: ast.FunctionDef) -> None:
    first = method.args.args[0]
    if first.arg in ("self", "cls") or method.name == "__new__":
        return
    found = walk(method)
    known = {each.id for each in found if isinstance(each, ast.Name)}
    bound = [each for each in found if isinstance(each, ast.arg) and each.arg in (first.arg, "self")]
    names = [each for each in found if isinstance(each, ast.Name) and each.id == first.arg]
    is_given = any(not isinstance(each.ctx, ast.Load) for each in names)
    if "self" in known or len(bound) > 1 or is_given:
        return
    first.arg = "self"
    for each in names:
        each.id = "self"


# ── holders ───────────────────────────────────────────────────────────────────────────────────


def _can_have_holders(text: str) -> bool:
    """Tell by the text whether all uses of something that was made empty may be items: few files have any."""
    bare = _BARE.findall(text) if "class " in text else []
    if not bare and "= {}" not in text and "Namespace()" not in text:
        return False
    makers = {*_EMPTY, *bare}
    return any(
        _is_always_indexed(text, name, r"[ \t]*\[" if made == "{}" else r"[ \t]*\.")
        for name, made in _MADE.findall(text)
        if made == "{}" or made[:-2] in makers
    )


def _is_always_indexed(text: str, name: str, item: str) -> bool:
    """Tell whether a name stands without an item only where it is made."""
    # The name comes first, as Python's search is fast for a pattern that begins with plain text.
    places = re.finditer(rf"{name}(?<![\w.]{name})\b(?!{item})", text)
    return len(list(islice(places, 2))) == 1


@dataclass
class _NameUses:
    """Where one name stands."""

    made: list[tuple[ast.Assign, ast.AST]] = field(default_factory=list)  # with the scope
    items: list[tuple[ast.Subscript | ast.Attribute, ast.AST, ast.AST]] = field(default_factory=list)
    is_whole: bool = False  # it is also used as a whole: who has it may do anything


def _replace_holder_items(tree: ast.Module) -> None:
    """Put a name in the place of each item of a holder."""
    uses: dict[str, _NameUses] = {}
    bare = {each.name for each in tree.body if isinstance(each, ast.ClassDef) and _is_empty_class(each)}
    try:
        _note_name_uses(tree, tree, bare, uses)
    except RecursionError:  # it is read as it stands
        return
    for each in uses.values():
        if each.is_whole or len(each.made) != 1:
            continue
        (made, home), stores = each.made[0], [use for use in each.items if not is_read(use[0])]
        kinds = {type(item) for item, _, _ in each.items}
        wanted = ast.Subscript if isinstance(made.value, ast.Dict) else ast.Attribute
        if stores and kinds == {wanted} and all(scope is home for _, scope, _ in stores):
            for item, _, above in each.items:
                _replace_child_node(
                    above, item, ast.copy_location(ast.Name(_name_of_item(item), item.ctx), item)
                )


def _name_of_item(item: ast.Subscript | ast.Attribute) -> str:
    """Return `kept.opt`, also for `kept["opt"]`: whoever looks at the last part of a name finds it there."""
    key = item.attr if isinstance(item, ast.Attribute) else getattr(item.slice, "value", "")
    return f"{getattr(item.value, 'id', '')}.{key}"


def _is_empty_class(owner: ast.ClassDef) -> bool:
    plain = all(isinstance(each, ast.Pass) or is_bare_constant(each) for each in owner.body)
    return plain and not owner.bases and not owner.decorator_list and not owner.keywords


def is_bare_constant(node: ast.stmt) -> bool:
    """Tell a docstring, `...` and other constants that stand alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _note_name_uses(node: ast.AST, scope: ast.AST, bare: set[str], uses: dict[str, _NameUses]) -> None:
    """Note every use of a name from a node on down."""
    inner = node if isinstance(node, _SCOPES) else scope
    if isinstance(node, ast.Assign) and not isinstance(scope, ast.ClassDef) and _makes_holder(node, bare):
        name = node.targets[0]
        assert isinstance(name, ast.Name)
        uses.setdefault(name.id, _NameUses()).made.append((node, scope))
        return
    for each in _names_bound(node):
        uses.setdefault(each, _NameUses()).is_whole = True
    for child in children_of(node):
        if isinstance(child, (ast.Subscript, ast.Attribute)) and isinstance(child.value, ast.Name):
            found = uses.setdefault(child.value.id, _NameUses())
            if _is_item(child):
                found.items.append((child, inner, node))
                continue
            found.is_whole = True
        if isinstance(child, ast.Name):
            uses.setdefault(child.id, _NameUses()).is_whole = True
        else:
            _note_name_uses(child, inner, bare, uses)


def _is_item(node: ast.Subscript | ast.Attribute) -> bool:
    """Tell `kept["opt"]` and `kept.opt`, read or written, not deleted."""
    if isinstance(node.ctx, ast.Del):
        return False
    key = node.slice if isinstance(node, ast.Subscript) else None
    return key is None or (
        isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()
    )


def _names_bound(node: ast.AST) -> Iterator[str]:
    """Yield what else than a `Name` binds or declares."""
    match node:
        case ast.arg():
            yield node.arg
        case ast.Global() | ast.Nonlocal():
            yield from node.names
        case ast.Import() | ast.ImportFrom():
            yield from ((each.asname or each.name).partition(".")[0] for each in node.names)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.ExceptHandler(name=str(name)):
            yield name


def _makes_holder(node: ast.Assign, bare: set[str]) -> bool:
    """Tell `kept = {}`, and the same of an object without a method or a field."""
    if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return False
    value = node.value
    if isinstance(value, ast.Call) and not value.args and not value.keywords:
        return ast.unparse(value.func) in (*_EMPTY, *bare)
    return isinstance(value, ast.Dict) and not value.keys


def _replace_child_node(above: ast.AST, old: ast.expr, new: ast.expr) -> None:
    for name, value in ast.iter_fields(above):
        if value is old:
            setattr(above, name, new)
        elif isinstance(value, list) and any(each is old for each in value):
            value[:] = [new if each is old else each for each in value]


# ── pairs ─────────────────────────────────────────────────────────────────────────────────────


def _split_tuple_assignments(tree: ast.Module) -> None:
    """Make several assignments of one, where no value reads what was assigned before it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                waiting += block
                if any(_is_tuple_assignment(each) for each in block):
                    block[:] = [part for each in block for part in _split_assignment(each)]


def _is_tuple_assignment(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return False
    plain = len(target.elts) == len(value.elts) and not any(
        isinstance(each, ast.Starred) for each in (*target.elts, *value.elts)
    )
    return (
        plain
        and all(isinstance(each, ast.Name) for each in target.elts)
        and not _is_swap_assignment(target, value)
    )


def _is_swap_assignment(target: ast.Tuple, value: ast.Tuple) -> bool:
    """Tell `a, b = b, a`: what is read must be there still."""
    given: set[str] = set()
    for name, part in zip(target.elts, value.elts, strict=True):
        if any(isinstance(each, ast.Name) and each.id in given for each in ast.walk(part)):
            return True
        given.add(name.id if isinstance(name, ast.Name) else "")
    return False


def _split_assignment(node: ast.stmt) -> list[ast.stmt]:
    if not isinstance(node, ast.Assign) or not _is_tuple_assignment(node):
        return [node]
    target, value = node.targets[0], node.value
    assert isinstance(target, ast.Tuple)
    assert isinstance(value, ast.Tuple)
    found: list[ast.stmt] = []
    for name, part in zip(target.elts, value.elts, strict=True):
        one = ast.copy_location(ast.Assign([name], part), node)
        one.is_part = True  # type: ignore[attr-defined]
        found.append(one)
    return found

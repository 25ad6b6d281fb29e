# SPDX-License-Identifier: Apache-2.0
"""Definitions and uses within one function: which values that it gives to its names are ever read.

The statements are walked from the last to the first with the names that will still be read. A loop is walked until
nothing is added, and what may raise is taken to reach each handler; so what is called unread is read on no way.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from truestep.doctor.source.arguments import parameters_given
from truestep.doctor.source.decorators import has_transparent_decorators
from truestep.doctor.source.memoized_walk import answered_once, asked_once, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import EXITS, Function, dotted_name, is_read, names_in, walk

Names = frozenset[str]
_NONE: Names = frozenset()
_INNER = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
_OF_OTHERS = frozenset((ast.Global, ast.Nonlocal))
_ENDS_PROGRAM = ("exit", "quit", "sys.exit", "os._exit")
_SEES_ALL = ("locals", "vars", "eval", "exec", "globals")  # what calls these may read any name


@dataclass(frozen=True)
class _NamesReadAtExits:
    """The names that are read behind the ways out of a block."""

    broken: Names = _NONE  # behind the loop
    continued: Names = _NONE  # in its next iteration
    raised: Names = _NONE  # by handlers, and by what is done at last


class ValueUses:
    """What becomes of the values that a function gives to its names."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.function = function
        self.read_later: dict[tuple[ast.stmt, str], bool] = {}  # each store: may its value be read?
        self._always = _names_read_by_inner(function)
        # the names whose values from outside, as arguments, may be read
        self.read_at_start = self._live_before_block(function.body, _NONE, _NamesReadAtExits()) | self._always

    def unread_assignments(self) -> list[ast.Assign]:
        """Return the assignments to one name whose value is read on no way, in order."""
        found = [
            node
            for (node, name), is_read in self.read_later.items()
            if not is_read and isinstance(node, ast.Assign) and _only_target_name(node) == name
        ]
        return sorted(found, key=lambda node: node.lineno)

    def _live_before_block(self, body: Iterable[ast.stmt], later: Names, exits: _NamesReadAtExits) -> Names:
        for statement in reversed(list(body)):
            later = self._live_before_statement(statement, later | exits.raised, exits)
        return later

    def _live_before_statement(self, node: ast.stmt, later: Names, exits: _NamesReadAtExits) -> Names:
        match node:
            case ast.If():
                arms = self._live_before_block(node.body, later, exits) | self._live_before_block(
                    node.orelse, later, exits
                )
                return arms | names_read(node.test)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._live_before_loop(node, later, exits)
            case ast.Try():
                return self._live_before_try(node, later, exits)
            case ast.With() | ast.AsyncWith():
                inner = self._live_before_block(node.body, later, exits)
                targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
                given = [item.context_expr for item in node.items]
                return self._note_stores(node, targets, inner) | _names_read_in_all(given)
            case ast.Match():
                arms = later.union(*(self._live_before_block(case.body, later, exits) for case in node.cases))
                return arms | names_read(node.subject)
            case ast.Return() | ast.Raise():
                return names_read(node) | exits.raised
            case ast.Break():
                return exits.broken | exits.raised
            case ast.Continue():
                return exits.continued | exits.raised
            case _:
                return self._live_before_simple(node, later)

    def _live_before_simple(self, node: ast.stmt, later: Names) -> Names:
        match node:
            case ast.Assign():
                return self._note_stores(node, node.targets, later) | names_read(node.value)
            case ast.AnnAssign():
                later = self._note_stores(node, [node.target], later) if node.value is not None else later
                return later | names_read(node)
            case ast.AugAssign():
                self._note_stores(node, [node.target], later)
                stored = {node.target.id} if isinstance(node.target, ast.Name) else set()
                return later | names_read(node) | stored
        return later | names_read(node)

    def _note_stores(self, node: ast.stmt, targets: list[ast.expr], later: Names) -> Names:
        """Note whether what is stored is read later; what is read before is given back."""
        names = _NONE.union(*map(names_stored, targets))
        for name in names:
            is_read = name in later or name in self._always
            self.read_later[node, name] = self.read_later.get((node, name), False) or is_read
        return (later - names) | _names_read_in_all(targets)

    def _live_before_loop(
        self, node: ast.For | ast.AsyncFor | ast.While, later: Names, exits: _NamesReadAtExits
    ) -> Names:
        ended = self._live_before_block(node.orelse, later, exits)
        tested = names_read(node.test) if isinstance(node, ast.While) else _NONE
        targets = [] if isinstance(node, ast.While) else [node.target]
        again = ended | tested
        while True:
            inner = self._live_before_block(node.body, again, _NamesReadAtExits(later, again, exits.raised))
            before = again | self._note_stores(node, targets, inner)
            if before == again:
                return again if isinstance(node, ast.While) else again | names_read(node.iter)
            again = before

    def _live_before_try(self, node: ast.Try, later: Names, exits: _NamesReadAtExits) -> Names:
        last = self._live_before_block(node.finalbody, later, exits)
        at_last = last if node.finalbody else _NONE
        outer = _NamesReadAtExits(exits.broken | at_last, exits.continued | at_last, (exits.raised | at_last))
        handled = _NONE.union(*(self._live_before_block(each.body, last, outer) for each in node.handlers))
        handled |= _NONE.union(*(names_read(each.type) for each in node.handlers if each.type is not None))
        inside = _NamesReadAtExits(outer.broken, outer.continued, outer.raised | handled)
        return (
            self._live_before_block(node.body, self._live_before_block(node.orelse, last, outer), inside)
            | handled
        )


@answered_once
def value_uses(module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef) -> ValueUses:  # noqa: ARG001 - asked so
    """Return the definitions and uses of a function."""
    return ValueUses(function)


def is_unread(module: SourceModule, value: ast.expr) -> bool:
    """Tell a value that is dropped where it is computed, or kept under a name of its function that is read on no way."""
    statement, function = module.statement(value), module.scope(value)
    if isinstance(statement, ast.Expr):
        return statement.value is value
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return statement in value_uses(module, function).unread_assignments()


def names_read(node: ast.AST) -> Names:
    """Return the names that are read somewhere in a node; found once, since loops ask again and again."""
    found: Names | None = node.__dict__.get("names_read")
    if found is None:
        found = frozenset(
            each.id for each in walk(node) if type(each) is ast.Name and type(each.ctx) is not ast.Store
        )
        node.names_read = found  # type: ignore[attr-defined]
    return found


def _names_read_in_all(nodes: Iterable[ast.AST]) -> Names:
    return _NONE.union(*(names_read(each) for each in nodes))


def _names_read_by_inner(function: ast.AST) -> Names:
    """Return the names that inner functions and classes read, at whatever time, and those that belong elsewhere."""
    found: set[str] = set()
    for node in walk(function):
        kind = type(node)
        if kind in _INNER:
            found |= names_read(node) if node is not function else _NONE
        elif kind in _OF_OTHERS:
            found.update(node.names)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SEES_ALL:
            found.update(names_in(function))
    return frozenset(found)


def _only_target_name(node: ast.Assign) -> str | None:
    if getattr(node, "is_part", False):  # `x, y = f(a), f(b)`: who needs one of them is given the other
        return None
    return node.targets[0].id if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else None


def if_arms(node: ast.If) -> tuple[ast.expr, list[ast.stmt], list[ast.stmt]]:
    """Return the test of an `if` without `not`, what is done where it holds, and what where it does not."""
    test, body, orelse = node.test, node.body, node.orelse
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, body, orelse = test.operand, orelse, body
    return test, _without_pass(body), _without_pass(orelse)


def are_in_other_arms(module: SourceModule, first: ast.AST, second: ast.AST) -> bool:
    """Tell whether two nodes stand in different arms of one `if`: whoever does the one does not do the other."""
    above_first, above_second = ({node, *module.ancestors(node)} for node in (first, second))
    shared = [each for each in above_first & above_second if isinstance(each, ast.If)]
    for each in shared:
        first_arm, second_arm = (
            [part in above for arm in (each.body, each.orelse) for part in arm]
            for above in (above_first, above_second)
        )
        num_body = len(each.body)
        if any(first_arm) and any(second_arm) and any(first_arm[:num_body]) != any(second_arm[:num_body]):
            return True
    return False


def _without_pass(body: list[ast.stmt]) -> list[ast.stmt]:
    return [each for each in body if not isinstance(each, ast.Pass)]


def is_behind_exit(module: SourceModule, node: ast.AST) -> bool:
    """Tell what stands behind a break, a continue, a return, a raise or an `exit()` of its block, and never runs."""
    below = node
    for above in module.ancestors(node):
        if below in _statements_behind_exits(module, above):
            return True
        below = above
    return False


@answered_once
def _statements_behind_exits(module: SourceModule, owner: ast.AST) -> frozenset[ast.AST]:  # noqa: ARG001 - asked so
    """Return the statements of a node's blocks that stand behind an exit."""
    blocks = [getattr(owner, name, None) for name in ("body", "orelse", "finalbody")]
    behind: list[ast.AST] = []
    for block in (each for each in blocks if isinstance(each, list)):
        first = next((i for i, each in enumerate(block) if _is_block_exit(each)), len(block))
        behind += block[first + 1 :]
    return frozenset(behind)


def _is_block_exit(statement: ast.AST) -> bool:
    """Tell what leaves a block in whatever case: `return`, and `exit()`, which ends the program."""
    match statement:
        case ast.If(body=[*_, last], orelse=[*_, other]):
            return _is_block_exit(last) and _is_block_exit(other)
        case ast.Try(body=[*_, last], handlers=handlers, orelse=[]):
            return _is_block_exit(last) and all(_is_block_exit(each.body[-1]) for each in handlers)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, EXITS) or (
        isinstance(call, ast.Call) and dotted_name(call.func) in _ENDS_PROGRAM
    )


def is_in_comment(text: str, place: str) -> bool:
    """Tell whether Python that is commented out uses a name or an attribute: `# x = self.norm(x)`."""
    comments = [line.partition("#")[2].strip() for line in text.splitlines() if "#" in line]
    return any(_is_read_of_place(each, place) for each in comments if place in each)


def _is_read_of_place(comment: str, place: str) -> bool:
    """Tell a statement that reads a place from prose, which may parse where it is one word."""
    try:
        tree = ast.parse(comment.removesuffix(":"))
    except (SyntaxError, ValueError):
        return False
    if len(tree.body) != 1 or (
        isinstance(tree.body[0], ast.Expr) and dotted_name(tree.body[0].value) is not None
    ):
        return False
    return bool(places_read(tree, place))


def names_stored(node: ast.AST) -> Names:
    """Return the names that are given a value somewhere in a node."""
    return frozenset(
        each.id for each in walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )


def reads_followed(module: SourceModule, read: ast.expr) -> list[ast.expr]:
    """Return where a value is used: where it is read, or in the function or the object that is given it there."""
    inner = {
        each: _reads_inside(module, each)
        for each in walk_each_once([read], lambda each: _reads_inside(module, each) or ())
    }
    return [each for each, further in inner.items() if further is None]


def is_handed_on(module: SourceModule, function: Function) -> bool:
    """Tell a function that others call as often as they like: it is given away, registered by a decorator, or a lambda calls it."""
    if isinstance(function, ast.Lambda) or not has_transparent_decorators(module.resolver, function):
        return True
    reads = [each for file in module.program.linked for each in file.read_under(function.name)]
    away = [each for each in reads if not module.resolver.index.is_called(each)]
    scopes = [module.home(call).scope(call) for call in module.functions.callers(function)]
    return any(isinstance(each, ast.Lambda) for each in scopes) or any(
        isinstance(each, ast.Attribute) or module.functions.named(each) is function for each in away
    )


def _reads_inside(module: SourceModule, read: ast.expr) -> list[ast.expr] | None:
    """Return where what is given a value at a read uses it; None where that is the use itself."""
    above = module.parents[read]
    call = module.parents[above] if isinstance(above, ast.keyword) else above
    if isinstance(call, ast.Call) and call.func is not read:
        return _reads_of_parameter(module, call, read)
    if isinstance(above, ast.Assign) and above.value is read:
        return _reads_of_attribute(module, above.targets)
    return None


def _reads_of_parameter(module: SourceModule, call: ast.Call, given: ast.expr) -> list[ast.expr] | None:
    """Return where the function that a call runs reads the parameter that an argument is given for."""
    function = module.functions.called(call)
    if function is None or isinstance(function, ast.Lambda):
        return None
    named = parameters_given(function, call, given)
    names = [each for each in module.inside(function, ast.Name) if module.scope(each) is function]
    return [each for each in names if each.id in named and isinstance(each.ctx, ast.Load)] if named else None


def _reads_of_attribute(module: SourceModule, targets: list[ast.expr]) -> list[ast.expr] | None:
    """Return where the methods of a class read `self.NAME`, if that is all that a value is assigned to."""
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, ast.Attribute) or dotted_name(target.value) != "self":
        return None
    owner = module.enclosing(target, ast.ClassDef)
    reads = module.program.attributes_read.get(target.attr, [])
    same = all(
        dotted_name(each.value) == "self" and module.enclosing(each, ast.ClassDef) is owner for each in reads
    )
    return list(reads) if reads and same else None


def places_read(node: ast.AST, place: str) -> list[ast.expr]:
    """Return where a name or a chain of attributes is read in a node."""
    return [
        each
        for each in walk(node)
        if isinstance(each, (ast.Name, ast.Attribute)) and is_read(each) and dotted_name(each) == place
    ]


_MAKES_A_LOADER = "torch.utils.data.DataLoader"


@asked_once(False)
def is_unused_data(module: SourceModule, value: ast.expr, depth: int = 0) -> bool:
    """Tell data that nothing goes through: their name is unread, or every caller that unpacks them leaves them unread."""
    home = module.home(value)
    statement = home.parents.get(value)
    if isinstance(statement, ast.Return):
        return _is_unread_by_callers(module, statement, None, depth)
    if isinstance(statement, ast.Tuple) and isinstance(above := home.parents[statement], ast.Return):
        return _is_unread_by_callers(module, above, statement.elts.index(value), depth)
    if isinstance(statement, ast.keyword):
        statement = home.parents[statement]
    if isinstance(statement, ast.Call) and home.qualify(statement.func) == _MAKES_A_LOADER:
        return is_unused_data(module, statement, depth + 1)
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1 or value is not statement.value:
        return False
    return _is_name_unread(module, statement.targets[0], depth)


def _is_name_unread(module: SourceModule, target: ast.expr, depth: int) -> bool:
    """Tell a variable of a function, or of a file that no other imports, each of whose reads leads to nothing."""
    home = module.home(target)
    scope = home.scope(target)
    if not isinstance(target, ast.Name) or home.names.owner(target.id, scope) is not scope:
        return False
    if not isinstance(scope, Function) and (depth == 0 or home.program.is_imported()):
        return False  # a part of a manual has no loop
    return all(is_unused_data(module, each, depth + 1) for each in _reads_of_variable(home, target.id, scope))


def _reads_of_variable(home: SourceModule, name: str, scope: ast.AST) -> list[ast.expr]:
    """Return the reads of a function's variable, in the functions inside of it, too."""
    return [each for each in home.reads(name) if scope in (home.scope(each), *home.ancestors(each))]


def _is_unread_by_callers(module: SourceModule, given: ast.Return, index: int | None, depth: int) -> bool:
    """Tell a result, or one of several, that each caller of the function in sight leaves unread."""
    function = module.home(given).scope(given)
    calls = module.functions.callers(function) if isinstance(function, Function) else []
    targets = [_name_given_by_caller(module, each, index) for each in calls]
    return bool(targets) and all(
        each is not None and _is_name_unread(module, each, depth + 1) for each in targets
    )


def _name_given_by_caller(module: SourceModule, call: ast.Call, index: int | None) -> ast.expr | None:
    """Return the name that a caller gives a result, or the one of several at a place."""
    above = module.home(call).parents.get(call)
    target = above.targets[0] if isinstance(above, ast.Assign) and above.value is call else None
    if index is None or target is None:
        return target
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    plain = not any(isinstance(each, ast.Starred) for each in parts)
    return parts[index] if plain and index < len(parts) else None

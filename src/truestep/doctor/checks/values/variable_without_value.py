# SPDX-License-Identifier: Apache-2.0
"""A name that has no value yet, or never."""

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from truestep.doctor.check import ADVICE, BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.source.container_unpacking import parse_as_written
from truestep.doctor.source.exercise_blanks import has_blanks
from truestep.doctor.source.live_variables import is_behind_exit
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Binding, Function, Scope, dotted_name, walk
from truestep.doctor.source.unreached_code import scopes_of_trainings
from truestep.doctor.source.value_origins import constant, literal

_MAKES_NAMES = {"exec", "globals", "locals", "vars", "__builtins__", "execfile"}
_HOLE = re.compile(r"_+$|TODO|FIXME|YOUR_|FILL", re.IGNORECASE)  # to be filled in, as in homework
_SECRET = re.compile(
    r"(^|_)(api_?key|(secret|private|access)_?key|secret|password|passwd|credentials|(access|auth|api|hf|bot)_?token)$",
    re.IGNORECASE,
)
_FILES = (".py", ".ipynb")
_USUAL = ("x", "y")  # of the examples in manuals
_NEVER = 10**9  # behind every line
NUM_OF_FRAGMENT = 3  # a file that reads so many names at its top which it never binds goes on from another

# what notebooks, profilers, systems and earlier versions of Python give a value
_GIVEN = (
    "__annotations__", "_", "WindowsError", "display", "get_ipython", "profile", "basestring", "buffer", "cmp", "execfile",
    "file", "long", "raw_input", "reduce", "reload", "unichr", "unicode", "xrange",
)  # fmt: skip


class VariableWithoutValue(SourceCheck):
    """A function assigns a name that also stands outside of it, and reads it before; or nothing gives a name a value.

    Why: an assignment makes the name the function's own, so Python stops with an UnboundLocalError (or a NameError)
    when it comes there. pyflakes tells which names these are; where a training comes by it is a bug, elsewhere a risk.
    A name that nothing binds is told of whole files alone, and of none with a star import, `exec` or `globals`.

    Bad:
        num_steps = 0

        def train(loader):
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                num_steps += 1  # here

    Good:
        num_steps = 0

        def train(loader):
            global num_steps
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                num_steps += 1

    Fix: `global NAME` (of an outer function: `nonlocal NAME`), a parameter, or the name that is meant.

    Evidence: 186 repositories, beds E, F, G, H, I, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y: 443 true, 36
    debatable, 5 false.
    """

    code = "VALUE041"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what pyflakes finds; a name that nothing binds in whole files alone, once for each."""
        if "torch" not in module.text or not _can_have_unbound_names(module):
            return
        local, unbound = _unbound_local_and_global_names(module)
        for name in local:
            text = f"{name.id!r} is this function's own, and has no value here: no global says otherwise."
            yield At(name, text, _severity(module, name))
        set_here = _names_set_on_own_module(module)
        if set_here is None or not _is_self_contained_file(module, unbound):
            return
        is_form = has_blanks(module, unbound)
        for name in (
            each
            for each in unbound
            if each.id not in set_here and not _is_attribute_set_by_other_file(module, each.id)
        ):
            yield At(
                name, _unbound_name_message(module, name), ADVICE if is_form else _severity(module, name)
            )


def _unbound_name_message(module: SourceModule, name: ast.Name) -> str:
    """Say that nothing binds a name, or what binds it for itself alone."""
    others = [each.name for each in module.named_functions if _bindings_in_scope(module, each, name.id)]
    others += [
        each.name
        for each in module.named_classes
        if any(bound.node in each.body for bound in module.classes.attributes(each).get(name.id, ()))
    ]
    if not others:
        return f"Nothing in this file gives {name.id!r} a value."
    return f"{name.id!r} has no value here: {others[0]!r} gives it one for itself alone."


def _unbound_local_and_global_names(module: SourceModule) -> tuple[list[ast.Name], list[ast.Name]]:
    """Return the names that functions read before they bind them, and the first read of each that nothing binds."""
    places = {(each.lineno, each.col_offset, each.id): each for each in module.all(ast.Name)}
    local: list[ast.Name] = []
    unbound: dict[str, ast.Name] = {}
    for found in _undefined_reads(module):
        name = places.get((found.line, found.column, found.name))
        if name is None or _is_possibly_not_evaluated(module, name):
            continue
        if _is_bound_later_in_loop(module, name) or _is_deleted_behind_all_calls(module, name):
            continue
        if found.is_local:
            local.append(name)
        elif not _HOLE.match(found.name) and not _is_bound_in_later_cell(module, found.name):
            unbound.setdefault(found.name, name)
    return local, list(unbound.values())


def _is_self_contained_file(module: SourceModule, unbound: list[ast.Name]) -> bool:
    """Tell a file that runs by itself: no part of a text or of another file, and none whose names are made by texts."""
    if not module.path.endswith(_FILES) or not Path(module.path).is_file():
        return False
    if {each.id for each in module.all(ast.Name)} & _MAKES_NAMES:
        return False
    at_top = [each for each in unbound if not isinstance(module.scope(each), Function)]
    is_part = any(each.id in _USUAL or module.kind(each) is not None for each in at_top)
    return len(at_top) < NUM_OF_FRAGMENT and not is_part


def _names_set_on_own_module(module: SourceModule) -> set[str] | None:
    """Return the names that are set on `sys.modules[__name__]`; None where one is made of a text that nobody sees."""
    found: set[str] = set()
    for place in _references_to_own_module(module):
        above = module.parents[place]
        if isinstance(above, ast.Attribute) and above.attr == "__dict__":
            return None
        if isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Store):
            found.add(above.attr)
        if isinstance(above, ast.Call) and dotted_name(above.func) == "setattr" and above.args[0] is place:
            name = literal(module, above.args[1]) if len(above.args) > 1 else None
            if not isinstance(name, str):
                return None
            found.add(name)
    return found


def _is_attribute_set_by_other_file(module: SourceModule, name: str) -> bool:
    """Tell `loss.NUM_CLASSES = 9`, behind `import loss`."""
    bases = [base for base, _ in module.resolver.index.written.get(name, [])]
    return any(module.names.module_named(base) is module.tree for base in bases)


def _references_to_own_module(module: SourceModule) -> list[ast.expr]:
    """Return where `sys.modules[__name__]` stands, and where a name is read that it is given."""
    places: list[ast.expr] = [
        each
        for each in module.all(ast.Subscript)
        if module.qualify(each.value) == "sys.modules"
        and (dotted_name(each.slice) == "__name__" or constant(each.slice) == "__main__")
    ]
    kept = [above for each in places if isinstance(above := module.parents[each], ast.Assign)]
    names = [each.id for above in kept for each in above.targets if isinstance(each, ast.Name)]
    return [*places, *(read for name in names for read in module.reads(name))]


def _is_bound_in_later_cell(module: SourceModule, name: str) -> bool:
    """Tell a name that a notebook binds in a later cell: cells are run in any order."""
    return module.path.endswith(".ipynb") and name in module.index.names[module.tree].bindings


def _is_bound_later_in_loop(module: SourceModule, read: ast.Name) -> bool:
    """Tell whether a loop around a read, which a condition may leave out at first, binds the name further down."""
    above = list(module.ancestors(read))
    loops = [each for each in above if isinstance(each, (ast.For, ast.While))]
    bound = [each.node for each in module.names.bindings(read)]
    statement = module.statement(read)
    is_left_out = _is_conditionally_evaluated(module, read)  # `seen = x if i == 0 else cat(seen, x)`
    bound = [each for each in bound if is_left_out or module.statement(each) is not statement]
    bound = [each for each in bound if not _is_bound_behind_test_reading_it(module, each, read)]
    loops = [each for each in loops if any(each in module.ancestors(node) for node in bound)]
    conditions = ast.If | ast.IfExp | ast.BoolOp | ast.Try
    return bool(loops) and any(
        isinstance(each, conditions) and loops[-1] in module.ancestors(each) for each in above
    )


def _is_deleted_behind_all_calls(module: SourceModule, read: ast.Name) -> bool:
    """Tell a variable of the file that a function reads, where `del` stands behind every call of the function."""
    function = module.scope(read)
    gone = _first_deletion_lines(module).get((read.id, module.tree), _NEVER)
    first = _first_binding_line(module, module.tree, read.id)
    calls = module.functions.callers(function) if isinstance(function, ast.FunctionDef) else []
    return bool(calls) and all(
        module.scope(each) is module.tree and first < each.lineno < gone < _NEVER for each in calls
    )


def _is_conditionally_evaluated(module: SourceModule, read: ast.Name) -> bool:
    """Tell an arm of `a if test else b`, and what follows `a and`, within one statement: the test need not read the name."""
    below: ast.AST = read
    for above in module.ancestors(read):
        if isinstance(above, ast.stmt):
            return False
        tests: list[ast.expr] = []
        if isinstance(above, ast.IfExp) and below is not above.test:
            tests = [above.test]
        if isinstance(above, ast.BoolOp):
            tests = above.values[: above.values.index(below)]  # type: ignore[arg-type]
        if tests and not any(
            isinstance(each, ast.Name) and each.id == read.id for test in tests for each in walk(test)
        ):
            return True
        below = above
    return False


def _is_bound_behind_test_reading_it(module: SourceModule, bound: ast.AST, read: ast.Name) -> bool:
    """Tell `if score > best: best = score`: the test reads the name, before what it opens gives it a value."""
    tests = [each.test for each in module.ancestors(bound) if isinstance(each, (ast.If, ast.While))]
    return any(each is read or each in module.ancestors(read) for each in tests)


def _severity(module: SourceModule, name: ast.Name) -> Severity:
    """A training that comes here stops; of what none comes by, nobody knows whether it is ever run.

    A key that its owner took out before others read the file is put back by whoever runs it. A definition of a notebook
    that no cell reads is a sketch: the page shows it, and runs others.
    """
    if _is_sketch(module, name):
        return ADVICE
    if _SECRET.search(name.id):
        return RISK
    comes_by = module.scope(name) in module.program.answer(scopes_of_trainings)
    return BUG if comes_by else RISK


def _is_sketch(module: SourceModule, name: ast.Name) -> bool:
    """Tell what stands in a function or a class of a notebook that nothing in it reads."""
    around = [
        each
        for each in module.ancestors(name)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    return module.path.endswith(".ipynb") and bool(around) and not module.read_under(around[-1].name)


def _is_possibly_not_evaluated(module: SourceModule, name: ast.Name) -> bool:
    """Tell what may never be computed: an annotation, a part of `if False` or TYPE_CHECKING, what is guarded."""
    if is_behind_exit(module, name):
        return True
    below: ast.AST = name
    for each in module.ancestors(name):
        if isinstance(each, ast.arg) or (isinstance(each, ast.AnnAssign) and below is each.annotation):
            return True
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and below is each.returns:
            return True
        if isinstance(each, ast.If) and (
            isinstance(each.test, ast.Constant) or f"'{name.id}'" in ast.unparse(each.test)
        ):
            return True
        if _is_in_dead_branch(each, below):
            return True
        if isinstance(each, ast.Try) and each.handlers:
            return True
        below = each
    return False


def _is_in_dead_branch(above: ast.AST, below: ast.AST) -> bool:
    """Tell what stands beneath `while False` or `if x and False`, or behind `False and`."""
    match above:
        case ast.If() | ast.While():
            if below is not above.test and below not in above.orelse and _is_constant_false(above.test):
                return True
        case ast.IfExp():
            return below is above.body and _is_constant_false(above.test)
        case ast.BoolOp(op=ast.And()):
            before = above.values[: above.values.index(below)] if isinstance(below, ast.expr) else []
            return any(_is_constant_false(each) for each in before)
    return False


def _is_constant_false(test: ast.expr) -> bool:
    """Tell what is false as it is written: `False`, `0`, `x and False`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_constant_false(each) for each in test.values)
    return isinstance(test, ast.Constant) and not test.value


@dataclass(frozen=True)
class _UndefinedRead:
    """Where a name is read, and whether it is a function's own that it assigns too late."""

    name: str
    line: int
    column: int  # in bytes, as in the tree
    is_local: bool


def _can_have_unbound_names(module: SourceModule) -> bool:
    """Tell whether any name of a file is worth asking about: most files bind each, once, and need not be read twice."""
    linker = module.names
    known = {*dir(builtins), *_GIVEN, "__file__"}
    is_starred = any(alias.name == "*" for each in module.all(ast.ImportFrom) for alias in each.names)
    deleted = _first_deletion_lines(module)
    for (name, scope), reads in _reads_by_scope(module).items():
        owner = linker.owner(name, scope) if name not in known else None
        if owner is None:
            if (
                name not in known
                and not is_starred
                and not all(_is_bound_earlier_in_class(module, each) for each in reads)
            ):
                return True
            continue
        gone = deleted.get((name, owner), _NEVER)
        if gone < _NEVER and (
            owner is not scope or any(each.lineno >= gone for each in reads if _is_load(each))
        ):
            return True
        if (owner is scope and isinstance(scope, Function)) or not _bindings_in_scope(module, owner, name):
            if min(each.lineno for each in reads) <= _first_binding_line(module, owner, name):
                return True
    return False


def _reads_by_scope(module: SourceModule) -> dict[tuple[str, Scope], list[ast.Name]]:
    """Return where each name of a scope is read, `x += 1` and `del x` among them."""
    found: dict[tuple[str, Scope], list[ast.Name]] = {}
    added = {each.target for each in module.all(ast.AugAssign)}
    inside = _comprehension_variable_reads(module)
    for each in module.all(ast.Name):
        if each not in inside and (not isinstance(each.ctx, ast.Store) or each in added):
            found.setdefault((each.id, module.index.scope_of[each]), []).append(each)
    return found


def _first_deletion_lines(module: SourceModule) -> dict[tuple[str, Scope], int]:
    """Return the first line on which a name of a scope is deleted."""
    found: dict[tuple[str, Scope], int] = {}
    for each in module.all(ast.Name):
        if isinstance(each.ctx, ast.Del):
            key = each.id, module.index.scope_of[each]
            found[key] = min(each.lineno, found.get(key, _NEVER))
    return found


def _is_load(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _is_bound_earlier_in_class(module: SourceModule, read: ast.Name) -> bool:
    """Tell `@rate.setter` and `x = y + 1` in the body of a class that gave the name its value on a line before."""
    owner = next((each for each in module.ancestors(read) if isinstance(each, ast.ClassDef)), None)
    function = module.index.enclosing(read, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    if owner is None or (function is not None and not _is_decorator(function, read, module)):
        return False
    bound = module.classes.attributes(owner).get(read.id, ())
    return any(each.node in owner.body and each.line < read.lineno for each in bound)


def _is_decorator(function: ast.AST, read: ast.Name, module: SourceModule) -> bool:
    decorators = getattr(function, "decorator_list", [])
    return any(each is read or each in module.ancestors(read) for each in decorators)


def _comprehension_variable_reads(module: SourceModule) -> set[ast.Name]:
    """Return the reads of a comprehension's own variables; what it goes through first is read outside of it."""
    found: set[ast.Name] = set()
    whole: list[ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp] = [
        *module.all(ast.ListComp),
        *module.all(ast.SetComp),
        *module.all(ast.DictComp),
        *module.all(ast.GeneratorExp),
    ]
    for each in whole:
        own = {name.id for part in each.generators for name in module.inside(part.target, ast.Name)}
        outside = module.inside(each.generators[0].iter, ast.Name)
        found |= {name for name in module.inside(each, ast.Name) if name.id in own}.difference(outside)
    return found


def _bindings_in_scope(module: SourceModule, scope: Scope, name: str) -> list[Binding]:
    """Return what gives a name of a scope its value there, but for comprehensions, which keep it to themselves."""
    bound = module.index.names[scope].bindings.get(name, [])
    within = (ast.comprehension, ast.stmt)
    return [
        each
        for each in bound
        if each.how != "for" or not isinstance(module.enclosing(each.node, *within), ast.comprehension)
    ]


def _first_binding_line(module: SourceModule, scope: Scope, name: str) -> int:
    """Return the last line of the first statement, or head of a block, that gives a name a value; 0 for a parameter."""
    bound = _bindings_in_scope(module, scope, name)
    if not bound or any(each.how == "parameter" for each in bound):
        return 0 if bound else _NEVER
    first = min(bound, key=lambda each: each.line)
    statement = module.statement(first.node)
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else statement.end_lineno
    return max(first.line, last or 0)


def _undefined_reads(module: SourceModule) -> Iterator[_UndefinedRead]:
    """Yield the names that have no value where they are read; in a file with a star import only a function's own."""
    from pyflakes.checker import Checker  # at first use: nothing else of the doctor needs it
    from pyflakes.messages import UndefinedLocal, UndefinedName

    tree = parse_as_written(module.text, module.path, module.tree)
    for each in Checker(tree, module.path, builtins=frozenset(_GIVEN)).messages:
        if isinstance(each, (UndefinedLocal, UndefinedName)):
            told = each.message_args
            name = told if isinstance(told, str) else told[0]
            yield _UndefinedRead(name, each.lineno, each.col, isinstance(each, UndefinedLocal))

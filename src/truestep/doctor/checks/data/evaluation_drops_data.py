# SPDX-License-Identifier: Apache-2.0
"""An evaluation loader that drops or shuffles."""

import ast
import builtins
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.batch_counts import LOADER, has_single_row_batches, is_single_batch_loader
from truestep.doctor.source.frames import LocatedExpression
from truestep.doctor.source.live_variables import is_unused_data
from truestep.doctor.source.loaders import (
    argument_value,
    evaluation_loaders,
    is_loader_trained_on_here,
    training_loaders,
)
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, given_to, last_part, walk
from truestep.doctor.source.rewriting import Edits, set_keyword
from truestep.doctor.source.value_origins import (
    argument,
    constant,
    literal,
    resolve_expression,
    value_origins,
)

EVALUATION = re.compile(
    r"(^|_)(test|val|valid|validation|eval)(_|$)|^(test|val)(_?data)?loader", re.IGNORECASE
)
_SAYS_WHICH = ("split", "mode", "phase", "subset", "stage")
_TEXT = "The last samples of the evaluation set are left out."


class EvaluationDropsData(SourceCheck):
    """The evaluation loader drops its last batch.

    Why: the metric leaves out up to batch_size - 1 samples, other ones when it is shuffled too.

    Bad:
        test_loader = DataLoader(test_set, batch_size=32, drop_last=True)  # here

    Good:
        test_loader = DataLoader(test_set, batch_size=32)

    Fix: drop_last=False for evaluation.

    Evidence: found in the wild (docs/wild.md); LINCellularNeuroscience/VAME b97a5180
    vame/model/evaluate.py:157; LINCellularNeuroscience/VAME b97a5180 vame/model/rnn_vae.py:330; corpus, 186
    repositories, beds B, C, D, E, F, G, I, M, N, P, Q, R, S, T, U, V, W, X, Y: 47 true, 11 debatable, 12 false.
    """

    code = "DATA002"
    words = ("drop_last",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report drop_last=True in a loader that is evaluated on, or is named so."""
        trained = {
            (each.node, each.context) for each in training_loaders(module)
        }  # its own figures need not be whole
        measured = [each for each in evaluation_loaders(module) if (each.node, each.context) not in trained]
        evaluated = {
            each.node
            for each in measured
            if _has_drop_last(module, each) and not _drops_nothing(module, each.node)
        }
        for node in sorted(evaluated, key=lambda each: (each.lineno, each.col_offset)):
            yield At(node, _TEXT, RISK)
        for call in (each for each in module.calls(LOADER) if each not in evaluated):
            target = module.statement(call)
            targets = target.targets if isinstance(target, ast.Assign) else []
            names = [last_part(each) for each in targets]
            named = any(EVALUATION.search(name) for name in names)
            if named or _is_in_non_training_branch(module, call):
                drops = literal(module, argument(call, 8, "drop_last")) is True
                if drops and not _is_drop_last_harmless(module, call, targets):
                    yield At(call, _TEXT, RISK)
        for options in module.all(ast.Dict):
            if (dropped := _drop_last_key(options)) is not None:
                yield At(dropped, _TEXT, RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Keep the last batch."""
        return [set_keyword(module, node, "drop_last", "False")] if isinstance(node, ast.Call) else ()


def _drop_last_key(options: ast.Dict) -> ast.expr | None:
    """Return the key of `{"split": "val", "shuffle": False, "drop_last": True}`, which a loader is made with."""
    values = {constant(key): value for key, value in zip(options.keys, options.values, strict=True) if key}
    if constant(values.get("drop_last")) is not True or constant(values.get("shuffle")) is not False:
        return None
    said = [constant(value) for key, value in values.items() if key in _SAYS_WHICH]
    if not any(isinstance(each, str) and EVALUATION.search(each) for each in said):
        return None
    return next(each for each in options.keys if constant(each) == "drop_last")


def _drops_nothing(module: SourceModule, call: ast.AST) -> bool:
    """Tell batches of one row, all rows in one batch, and whole batches that a loss needs."""
    return isinstance(call, ast.Call) and (
        has_single_row_batches(module, call)
        or is_single_batch_loader(module, call)
        or _needs_whole_batches(module, call)
    )


def _is_drop_last_harmless(module: SourceModule, call: ast.Call, targets: list[ast.expr]) -> bool:
    """Tell a loader that drops nothing, that nothing reads, or that is named so and learned from: no metric is of it."""
    return (
        _drops_nothing(module, call)
        or _is_loader_unused(module, targets)
        or is_unused_data(module, call)
        or _is_only_peeked_with_next(module, targets)
        or _is_drawn_without_end(module, call, targets)
        or _is_used_by_libraries_only(module, call, targets)
        or is_loader_trained_on_here(module, call)
    )


def _is_drawn_without_end(module: SourceModule, call: ast.Call, targets: list[ast.expr]) -> bool:
    """Tell a loader that is gone through anew for ever: single batches are drawn of it, and no pass has an end."""
    if isinstance(above := module.parents[call], ast.Call):
        return _goes_on_for_ever(module, above)
    names = [last_part(each) for each in targets]
    files = module.program.linked
    reads = [read for name in names if name for file in files for read in file.read_under(name)]
    reads = [each for each in reads if not _is_replaced_before(module, module.statement(call), each)]
    given = [module.home(each).parents[each] for each in reads]
    return bool(given) and all(
        isinstance(each, ast.Call) and _goes_on_for_ever(module.home(each), each) for each in given
    )


def _is_replaced_before(module: SourceModule, made: ast.AST, read: ast.expr) -> bool:
    """Tell a read of another value under the name."""
    found = (
        module.resolver.reaching(read) if isinstance(read, ast.Name) and module.home(read) is module else []
    )
    return bool(found) and not any(module.statement(each.node) is made for each in found)


def _goes_on_for_ever(home: SourceModule, call: ast.Call) -> bool:
    """Tell a generator of the program with a loop over what it is given inside of `while True`."""
    function = home.functions.target(call)
    if not isinstance(function, ast.FunctionDef):
        return False
    names = {each.arg for each in function.args.args}
    return any(
        isinstance(loop, ast.While)
        and constant(loop.test) in (True, 1)
        and any(isinstance(part, ast.For) and dotted_name(part.iter) in names for part in walk(loop))
        and any(isinstance(part, ast.Yield) for part in walk(loop))
        for loop in walk(function)
    )


def _is_only_peeked_with_next(module: SourceModule, targets: list[ast.expr]) -> bool:
    """Tell a loader of which single batches are taken, and no loop goes on until it is at its end: `next(iter(loader))`."""
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    files = module.program.linked if module.program.is_imported() else [module]
    reads = [read for name in names for file in files for read in file.read_under(name)]
    begun = [module.home(each).parents.get(each) for each in reads]
    if not begun or len(names) != len(targets) or not all(_is_call_of_name(each, "iter") for each in begun):
        return False
    taken = [use for each in begun if each is not None for use in _uses_of_iterator(module.home(each), each)]
    return bool(taken) and all(
        _is_call_of_name(call := module.home(each).parents.get(each), "next")
        and not _ends_loop_at_exhaustion(module, call)
        for each in taken
    )


def _ends_loop_at_exhaustion(module: SourceModule, drawn: ast.AST | None) -> bool:
    """Tell a `next` with which a loop ends where nothing is left: its default says so, or a StopIteration begins nothing anew."""
    if not isinstance(drawn, ast.Call) or (home := module.home(drawn)).loop(drawn) is None:
        return False
    tried = [each for each in home.ancestors(drawn) if isinstance(each, ast.Try) and home.loop(each)]
    handled = [part for each in tried for one in each.handlers for part in walk(one)]
    begins_anew = any(_is_call_of_name(each, "iter") for each in handled)
    return len(given_to(drawn)) > 1 or (bool(tried) and not begins_anew)


def _is_used_by_libraries_only(module: SourceModule, loader: ast.Call, targets: list[ast.expr]) -> bool:
    """Tell a loader whose batches meet libraries alone, such as what draws them: no network, and no figure of one."""
    names, scope = [each.id for each in targets if isinstance(each, ast.Name)], module.scope(loader)
    reads = [each for name in names for each in module.reads(name) if module.scope(each) is scope]
    loops = [_for_loop_over(module, each) for each in reads]
    calls = [each for loop in loops if loop is not None for each in module.inside(loop, ast.Call)]
    is_seen = bool(loops) and None not in loops and not module.program.is_imported()
    return is_seen and all(_is_library_call(module, each) for each in calls)


def _for_loop_over(module: SourceModule, read: ast.expr) -> ast.For | None:
    """Return the loop that goes over what is read, itself or numbered; None where something else takes it."""
    statement = module.statement(read)
    return statement if isinstance(statement, ast.For) and read in walk(statement.iter) else None


def _is_library_call(module: SourceModule, call: ast.Call) -> bool:
    """Tell a function of a library's or of Python's, and a method of what such a one made, but for networks."""
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    name = module.qualify(call.func) or ""
    if "." in name and module.functions.target(call) is None:
        return module.kind(call.func) is None
    if isinstance(call.func, ast.Name):
        return call.func.id in dir(builtins)
    held = value_origins(module, call.func.value) if isinstance(call.func, ast.Attribute) else ()
    made = list(held)
    return bool(made) and all(
        isinstance(each, ast.Constant)
        or (isinstance(each, ast.Call) and module.qualify(each.func) is not None)
        for each in made
    )


def _is_call_of_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func) == name


def _uses_of_iterator(home: SourceModule, begun: ast.AST) -> list[ast.expr]:
    above = home.parents[begun]
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
        return list(home.reads(above.targets[0].id))
    assert isinstance(begun, ast.expr)
    return [begun]


def _needs_whole_batches(module: SourceModule, loader: ast.Call) -> bool:
    """Tell whether a loss is made for the size of the loader's batches, `Pairs(size)`, or a shape is: `[size, 3, 32]`."""
    size = _size_variable_name(module, argument(loader, 1, "batch_size"))
    if size is None:
        return False
    files = module.program.linked
    shapes: list[tuple[SourceModule, ast.List | ast.Tuple]]
    shapes = [(file, each) for file in files for each in file.all(ast.List)]
    shapes += [(file, each) for file in files for each in file.all(ast.Tuple)]
    if any(
        each.elts and _size_variable_name(file, each.elts[0]) == size and _is_shape(file, each)
        for file, each in shapes
    ):
        return True
    made = [each for file in module.program.linked for each in file.all(ast.Call)]
    return any(
        any(_size_variable_name(module, part) == size for part in given_to(each))
        and (owner := module.classes.named(each.func)) is not None
        and module.kinds.of_class(owner) == "module"
        for each in made
    )


def _is_shape(module: SourceModule, several: ast.List | ast.Tuple) -> bool:
    """Tell a shape that is kept: numbers behind the first, or a list that others are joined to."""
    above, (_, *others) = module.parents[several], several.elts
    joined = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add)
    return joined or (
        not isinstance(above, ast.Call)
        and bool(others)
        and all(isinstance(constant(each), int) for each in others)
    )


def _size_variable_name(module: SourceModule, given: ast.expr | None) -> str | None:
    """Return the name behind a size, `options.batch` of `size = options.batch`; None for a number that is written."""
    made = resolve_expression(module, given) if given is not None else None
    return dotted_name(made) or dotted_name(given) if made is not None and given is not None else None


def _is_loader_unused(module: SourceModule, targets: list[ast.expr]) -> bool:
    """Tell whether a program that draws from other loaders reads nowhere what this one is kept under."""
    names = [last_part(each) for each in targets]
    files = module.program.linked
    imported = {alias.name for file in files for each in file.all(ast.ImportFrom) for alias in each.names}
    is_read = any(file.read_under(name) for file in files for name in names)
    if not all(names) or is_read or not imported.isdisjoint({*names, "*"}):
        return False
    loops = [each.iter for file in files for each in file.all(ast.For)]
    loops += [each.iter for file in files for each in file.all(ast.comprehension)]
    drawn = [part for each in loops for part in walk(each) if isinstance(part, ast.Name | ast.Attribute)]
    return any(module.home(each).kind(each) == "loader" for each in drawn)


def _has_drop_last(module: SourceModule, loader: LocatedExpression) -> bool:
    call = loader.node
    return (
        isinstance(call, ast.Call)
        and argument_value(module, argument(call, 8, "drop_last"), loader.context) is True
    )


def _is_in_non_training_branch(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a loader is made in the `else` of `if train:`."""
    inside: ast.AST = call
    for above in module.ancestors(call):
        if isinstance(above, ast.If) and inside in above.orelse:
            name = last_part(above.test)
            if name in ("train", "training", "is_train", "is_training"):
                return True
        inside = above
    return False

# SPDX-License-Identifier: Apache-2.0
"""A running total that goes on from epoch to epoch, by hand or in a meter."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.libraries import EPOCHS_OF
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, Scope, dotted, last_part, method_of, walk
from truestep.doctor.source.once import asked_once
from truestep.doctor.source.values import value_origins

MAX_CALLS = 4  # functions between where a meter is made and where it is updated


class TotalNeverReset(SourceCheck):
    """A total is set to 0 before the epochs, summed over the batches, and read as that of one epoch.

    Why: from the second epoch on it also holds the epochs before: the loss seems to grow, the accuracy lags.

    Bad:
        total = 0.0
        for epoch in range(3):
            for x, y in loader:
                total += F.cross_entropy(net(x), y).item()
            print(total / len(loader))  # here

    Good:
        for epoch in range(3):
            total = 0.0
            for x, y in loader:
                total += F.cross_entropy(net(x), y).item()
            print(total / len(loader))

    Fix: set it to 0 at the start of each epoch; of a meter, reset() or a new one.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/039/main.py:14;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/039/original_code_snippet.py:7; bed V: 0 true, 1 false.
    """

    code = "EVAL013"
    words = ("len(", "Meter", "Average", "avg")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `total / len(...)` in a loop whose inner loop adds to it, and that never sets it."""
        for node in module.all(ast.BinOp):
            total, length = node.left, node.right
            measured = isinstance(length, ast.Call) and module.qualify(length.func) == "len"
            if isinstance(node.op, ast.Div) and isinstance(total, ast.Name) and measured:
                outer = module.loop(node)
                if isinstance(outer, ast.For) and self._goes_on(module, total, outer):
                    yield At(node, f"{total.id!r} also holds the epochs before: nothing sets it back.", RISK)
        told: set[Scope] = set()  # several meters of one function are one mistake
        for made, name in _meters(module):
            if module.scope(made) not in told and _sums_epochs(module, made, name):
                told.add(module.scope(made))
                yield At(made, f"{name!r} also holds the epochs before: nothing resets it.", RISK)

    def _goes_on(self, module: SourceModule, total: ast.Name, outer: ast.For) -> bool:
        inside = [each for each in module.names.bindings(total) if outer in module.ancestors(each.node)]
        added = [each for each in inside if each.how == "augmented" and module.loop(each.node) is not outer]
        return bool(added) and len(inside) == len(added) and self._counts(module, outer.iter)

    def _counts(self, module: SourceModule, source: ast.expr) -> bool:
        """Tell `range(n)` and `run.epochs(n)`, also within `tqdm(...)` and under a name."""
        for each in value_origins(module, source):
            inner = each
            while isinstance(inner, ast.Call) and not _counts_epochs(module, inner) and inner.args:
                inner = inner.args[0]
            if not (isinstance(inner, ast.Call) and _counts_epochs(module, inner)):
                return False
        return True


def _counts_epochs(module: SourceModule, call: ast.Call) -> bool:
    if module.qualify(call.func) == "range":
        return True
    method = method_of(call)
    return method in EPOCHS_OF and module.classes.maker_of(call) == EPOCHS_OF[method]


def _meters(module: SourceModule) -> Iterator[tuple[ast.Assign, str]]:
    """Yield where a meter of a class of the program is made, which nothing resets, and the one name that it has."""
    for node in module.all(ast.Assign):
        name = dotted(node.targets[0]) if isinstance(node.value, ast.Call) else None
        owner = module.classes.named(node.value.func) if isinstance(node.value, ast.Call) else None
        if name is None or owner is None or len(node.targets) > 1 or _adder(module, owner) is None:
            continue
        resets = module.program.called_anywhere("reset")
        if not any(module.home(each).enclosing(each, ast.ClassDef) is not owner for each in resets):
            yield node, name


@asked_once(None)
def _adder(module: SourceModule, owner: ast.ClassDef, depth: int = 0) -> str | None:  # noqa: ARG001 - asked so
    """Return the method by which a class adds to a sum and to a count, whose mean it gives; one of a window forgets."""
    home = module.home(owner)
    means = [each for each in home.inside(owner, ast.BinOp) if isinstance(each.op, ast.Div)]
    parts = [{dotted(each.left), dotted(_count(each.right))} for each in means]
    if any(last_part(each.func) == "deque" for each in home.inside(owner, ast.Call)):
        return None
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__call__":
            sums = [each for each in home.inside(method, ast.AugAssign) if isinstance(each.op, ast.Add)]
            added = {dotted(each.target) for each in sums} - {None}
            if any(each <= added for each in parts):
                return method.name
    return None


def _count(node: ast.expr) -> ast.expr:
    """Return n of `max(n, 1)`."""
    given = node.args if isinstance(node, ast.Call) else []
    return next((each for each in given if isinstance(each, ast.Attribute)), node)


def _sums_epochs(module: SourceModule, made: ast.Assign, name: str) -> bool:
    """Tell a meter that is made outside of two loops, is updated within both, and is read within the outer one."""
    stores = [each for each in module.all(ast.Assign) if name in map(dotted, each.targets)]
    written = [
        each
        for file in (module.program.linked if name.startswith("self.") else [])
        for each in file.all(ast.Attribute)
        if isinstance(each.ctx, ast.Store) and each.attr == name.rpartition(".")[2]
    ]
    if stores != [made] or len(written) > 1 or module.loop(made) is not None:
        return False
    scopes = _made_once(module, made) if name.startswith("self.") else {module.scope(made)}
    last = name.rpartition(".")[2]
    owner = module.classes.named(made.value.func) if isinstance(made.value, ast.Call) else None
    adder = _adder(module, owner) if owner is not None else None
    updates = [each for each in module.method_calls(adder or "") if dotted(each.func) == f"{name}.{adder}"]
    timed = [each for each in updates if "time" in ast.unparse(each).lower()]
    reads = [each for each in module.reads(name) if isinstance(module.parents[each], ast.Attribute)]
    others = [each for each in module.program.attributes_read.get(last, ()) if dotted(each) != name]
    if (
        not updates
        or timed
        or not scopes
        or (name != last and others)
        or _is_set_back(module, owner, reads, adder)
    ):
        return False
    around = [_loops_up_to(module, each, scopes) for each in updates]
    if any(_goes_over_batches(module, each[-1]) for each in around if each):
        return False  # the inner loop cuts a batch, and the function is one epoch's
    read_in = [_loops_up_to(module, each, scopes) for each in reads]
    return all(len(each) > 1 for each in around) and any(len(each) > 0 for each in read_in)


def _goes_over_batches(module: SourceModule, loop: ast.AST) -> bool:
    home = module.home(loop)
    return isinstance(loop, ast.For) and any(
        isinstance(each, ast.expr) and home.kind(each) == "loader" for each in walk(loop.iter)
    )


def _is_set_back(
    module: SourceModule, owner: ast.ClassDef | None, reads: list[ast.expr], adder: str | None
) -> bool:
    """Tell another method of the meter than the one that adds, which sets something, `__init__` among them."""
    names = {above.attr for each in reads if isinstance(above := module.parents[each], ast.Attribute)} - {
        adder
    }
    methods = [found for each in names if (found := module.classes.method(owner, each)) is not None]
    stores = [part for each in methods for part in module.home(each).inside(each, ast.Attribute)]
    return any(isinstance(each.ctx, ast.Store) for each in stores)


def _made_once(module: SourceModule, made: ast.Assign) -> set[Scope]:
    """Return the functions in which the object that has this meter is made, where that is in no loop."""
    scope = module.scope(made)
    while isinstance(scope, Function) and getattr(scope, "name", "") != "__init__":
        calls = module.functions.callers(scope)
        if len(calls) != 1 or module.home(calls[0]).loop(calls[0]) is not None:
            return set()
        scope = module.home(calls[0]).scope(calls[0])
    calls = module.functions.callers(scope) if isinstance(scope, Function) else []
    if any(module.home(each).loop(each) is not None for each in calls):
        return set()
    return {module.home(each).scope(each) for each in calls}


def _loops_up_to(module: SourceModule, node: ast.AST, scopes: set[Scope], depth: int = 0) -> list[ast.AST]:
    """Return the loops around a node, in its function and around the one call of that, up to where the meter is made."""
    home = module.home(node)
    scope = home.scope(node)
    loops: list[ast.AST] = [each for each in home.ancestors(node) if isinstance(each, (ast.For, ast.While))]
    loops = [each for each in loops if home.scope(each) is scope]
    if scope in scopes or depth > MAX_CALLS or not isinstance(scope, Function):
        return loops if scope in scopes else []
    calls = [each for each in module.functions.callers(scope) if each is not node]
    above = [_loops_up_to(module, each, scopes, depth + 1) for each in calls]
    return [*loops, *min(above, key=len)] if above else []

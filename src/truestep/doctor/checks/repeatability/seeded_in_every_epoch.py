# SPDX-License-Identifier: Apache-2.0
"""A seed set anew in each epoch."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.behind import is_without_grad
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted, given_to, is_none, last_part, names_in, walk
from truestep.doctor.source.once import each_once
from truestep.doctor.source.values import literal

_SEEDS = functions("seeds the host", "seeds devices", "seeds everything")
_STATES = (
    "get_rng_state",
    "get_rng_state_all",
    "getstate",
    "get_state",
    "fork_rng",
    "set_rng_state",
    "setstate",
)
_APART = ("eval", "valid", "test", "sample", "predict", "generate", "worker", "infer")
_COUNTS = re.compile(r"epoch|step|iter|round|fold|rank|time")
_TESTED = re.compile(
    r"(^|_)(py|unit|smoke)?tests?(ing)?(_|$)|(^|_)(debug|valid|validate|eval|evaluate|infer)", re.IGNORECASE
)
_DEEP = 3  # calls from the loop to the seed


class SeededInEveryEpoch(SourceCheck):
    """The random streams are set to the same seed at the start of each epoch.

    Why: each epoch then has the same order of batches, the same augmentation and the same dropout masks: the model sees
    one draw again and again.

    Bad:
        for epoch in range(3):
            torch.manual_seed(0)  # here
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        torch.manual_seed(0)
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: seed once before the loop; or with seed + epoch, so that a run can start again at any epoch.

    Evidence: beds D, M, P, R: 2 true, 3 false.
    """

    code = "SEED005"
    words = ("seed",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a seed in the loop around the batches, or in what it calls, that is the same each time."""
        loops: dict[ast.AST, set[ast.AST]] = {}
        for trace in module.traces:
            for loop in trace.training_loops():
                around = [frame.node for frame in loop.path if frame.kind == "loop"]
                for each in around[-2:]:
                    loops.setdefault(each, set()).add(loop.node)
        told: set[ast.AST] = set()
        for epochs, batches in loops.items():
            if isinstance(epochs, (ast.For, ast.While)) and not _makes_an_optimizer(module, epochs):
                for seed in _seeds_in(module, epochs, _changing(module, epochs), _DEEP, set()):
                    if seed in told or all(_is_seeded_anew(module, epochs, each, seed) for each in batches):
                        continue
                    told.add(seed)
                    yield At(seed, "The seed is set to the same number in each turn of this loop.", RISK)


def _is_seeded_anew(
    module: SourceModule, epochs: ast.For | ast.While, batches: ast.AST, seed: ast.Call
) -> bool:
    """Tell a seed behind the batches, for an evaluation, while those have another in each turn: `seed(epoch)`."""
    around = [*module.ancestors(batches), batches]
    place = next((at for at, each in enumerate(epochs.body) if each in around), len(epochs.body))
    is_behind = any(each in module.ancestors(seed) for each in epochs.body[place + 1 :])
    calls = [each.value for each in epochs.body[:place] if isinstance(each, ast.Expr)]
    same = [
        call for call in calls if isinstance(call, ast.Call) and ast.dump(call.func) == ast.dump(seed.func)
    ]
    changing = _changing(module, epochs)
    return is_behind and any(_varies(given, changing) for call in same for given in _given(call))


def _seeds_in(
    module: SourceModule, node: ast.AST, changing: frozenset[str], deep: int, seen: set[tuple[object, ...]]
) -> Iterator[ast.Call]:
    """Yield the first call of each place that seeds, directly or in what it calls; each of these is looked into once."""
    if (node, changing, deep) in seen:
        return
    seen.add((node, changing, deep))
    for call in module.inside(node, ast.Call):
        home = module.home(call)
        if _is_apart(home, call, node, changing) or any(_varies(each, changing) for each in _given(call)):
            continue
        if home.qualify(call.func) in _SEEDS:
            if call.args or call.keywords:
                yield call
                return
            continue
        function = home.functions.target(call) if deep else None
        if function is None or _keeps_state(module, function):
            continue
        given = frozenset({*changing, *_parameters_given(function, call, changing)})
        inner = given | _changed_by(home.home(function), function, given)
        found = next(_seeds_in(module, function, inner, deep - 1, seen), None)
        if found is not None:
            yield call if "seed" in getattr(function, "name", "") else found
            return


def _given(call: ast.Call) -> list[ast.expr]:
    """Return what a call is given, where that may be a seed."""
    named = "seed" in last_part(call.func)
    return given_to(call) if named else []


def _varies(node: ast.expr, changing: frozenset[str]) -> bool:
    """Tell a seed that another turn of the loop has another of: it names what changes, or is drawn."""
    read = {dotted(each) for each in walk(node) if isinstance(each, ast.Attribute)}
    if read & changing:
        return True
    drawn = any(isinstance(each, ast.Call) and dotted(each.func) not in ("int", "abs") for each in walk(node))
    return drawn or bool(set(names_in(node)) & changing) or bool(_COUNTS.search(ast.unparse(node)))


def _parameters_given(function: Function, call: ast.Call, changing: frozenset[str]) -> Iterator[str]:
    """Yield the parameters of a function that are given what changes."""
    for each in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]:
        given = argument_for(function, call, each.arg)
        if given is not None and each.arg != "self" and _varies(given, changing):
            yield each.arg


def _changed_by(module: SourceModule, function: Function, changing: frozenset[str]) -> frozenset[str]:
    """Return what a call gives another value each time: what it keeps in an object, and its names for that.

    `self.seed = self.next_seed` changes it, `self.seed = 0` does not.
    """
    found: frozenset[str] = changing
    added = [dotted(each.target) for each in module.directly_in(function, ast.AugAssign)]
    found |= {each for each in added if each is not None}
    stores = [each for each in module.directly_in(function, ast.Assign) if not is_none(each.value)]
    for store in sorted(stores, key=lambda each: each.lineno):
        kept = [dotted(each) for each in store.targets if isinstance(each, ast.Attribute)]
        kept = kept if literal(module, store.value) is None else []
        named = [dotted(each) for each in store.targets if _varies(store.value, found)]
        found |= {each for each in [*kept, *named] if each is not None}
    return found


def _changing(module: SourceModule, loop: ast.For | ast.While) -> frozenset[str]:
    """Return the names, and attributes with what they are of, that a loop gives another value."""
    stored = [each for each in module.inside(loop, ast.Name) if isinstance(each.ctx, ast.Store)]
    attributes = [each for each in module.inside(loop, ast.Attribute) if isinstance(each.ctx, ast.Store)]
    names = (dotted(each) for each in attributes)
    return frozenset({each.id for each in stored} | {name for name in names if name is not None})


def _is_apart(module: SourceModule, call: ast.Call, within: ast.AST, changing: frozenset[str]) -> bool:
    """Tell what happens in some turns only, what is restored behind it, and what is no training."""
    if is_without_grad(module, call):
        return True
    below: ast.AST = call
    for above in module.ancestors(call):
        if above is within:
            return False
        if isinstance(above, ast.If) and set(names_in(above.test)) & changing:
            return True
        if isinstance(above, ast.With) and any(
            "rng" in ast.unparse(each.context_expr) for each in above.items
        ):
            return True
        if isinstance(above, Function) or (
            isinstance(above, ast.If) and below in above.body and _is_of_tests(above.test)
        ):
            return True
        below = above
    return False


def _is_of_tests(test: ast.expr) -> bool:
    """Tell `if pytest:` and `if args.debug and x:`, a switch by whose name no training is meant."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return any(_TESTED.search(last_part(each)) for each in parts)


def _keeps_state(module: SourceModule, function: Function) -> bool:
    """Tell what sets the streams back to where they were, and what samples or evaluates."""
    name = getattr(function, "name", "").lower()
    asked = {each.attr for each in module.inside(function, ast.Attribute)}
    return any(each in name for each in _APART) or bool(asked & set(_STATES))


def _makes_an_optimizer(module: SourceModule, loop: ast.AST) -> bool:
    """Tell a loop over whole trainings: each makes its optimizer."""

    def called(node: ast.AST) -> list[ast.AST]:
        calls = module.inside(node, ast.Call)
        run = [module.functions.called(each) for each in calls]
        return [each for each in run if each is not None]

    reached = each_once([loop], called, _DEEP)
    return any(module.kind(call) == "optimizer" for each in reached for call in module.inside(each, ast.Call))

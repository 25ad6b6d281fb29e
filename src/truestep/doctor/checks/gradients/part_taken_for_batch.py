# SPDX-License-Identifier: Apache-2.0
"""A statistic of the batch in a loss that is computed part by part."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, receiver_of, walk
from truestep.doctor.source.protocol import Protocol
from truestep.doctor.source.uses import names_read
from truestep.doctor.source.values import argument, constant, is_call_of, literal, value_origins

# of a part they are a share of the batch's, as long as they are only added
_LINEAR = frozenset(("mean", "sum"))
# without a dimension they go over all numbers
_OVER_ALL = operations(numbers="averaged reduced") | {
    *("max", "min", "std_mean", "var_mean", "quantile", "median")
}
_ALONG = operations(numbers="share log-share") | {"argsort", "sort", "cumsum", "roll", "flip"}
_DIMENSION_SECOND = ("norm", "quantile", "median", "roll")  # among a method's arguments
# given to these it is no part of a loss
_OUTSIDE = operations(graph="left") | {*("print", "log", "append", "float", "int", "len")}
_DEEP = 2  # from a loss to a function of the program that takes the statistic
_TRANSPOSES = ("T", "mT", "t")
_TURNS = operations(shape="turned") | {*_TRANSPOSES}


class PartTakenForBatch(SourceCheck):
    """A loss that is computed in micro-batches takes a mean, a deviation, ranks, the number or other examples of the batch.

    Why: it is given one part after the other and takes those of each part: the gradient is another one for each micro_batch=.

    Bad:
        import truestep as ts
        run = ts.Run("runs/policy", progress=False)
        moves = torch.randn(32, 4), torch.arange(32) % 2, torch.randn(32)
        actor = run.learner(nn.Linear(4, 2), lambda p: torch.optim.SGD(p, lr=0.1))

        def loss(batch):
            seen, action, gain = batch
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)  # here
            return F.cross_entropy(actor(seen), action, reduction="none") * gain

        for batch in run.batches(run.data(moves, batch_size=8)):
            actor.update(loss, batch, micro_batch=4)

    Good:
        import truestep as ts
        run = ts.Run("runs/policy", progress=False)
        moves = torch.randn(32, 4), torch.arange(32) % 2, torch.randn(32)
        actor = run.learner(nn.Linear(4, 2), lambda p: torch.optim.SGD(p, lr=0.1))

        def loss(batch):
            seen, action, gain = batch
            return F.cross_entropy(actor(seen), action, reduction="none") * gain

        for seen, action, gain in run.batches(run.data(moves, batch_size=8)):
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            actor.update(loss, (seen, action, gain), micro_batch=4)

    Fix: compute it before the update and give it with the batch; where it needs the model, write decomposable=False and no
        micro_batch=.

    Evidence: preview; it was made for two scripts of a user of GANs and reinforcement learning, and
        `tests/doctor/test_parts_of_batches.py` computes the gradients of 31 forms whole and in parts.
    """

    code = "GRAD068"
    is_preview = True
    words = ("micro_batch",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report each line of such a loss that takes a statistic, once, where it is not only added to the loss."""
        told: set[ast.AST] = set()
        for call in [*module.method_calls("update"), *module.calls("truestep.update")]:
            given = Protocol(module).loss_given(call)
            function = _function(module, given) if given is not None and _is_split(module, call) else None
            axis = literal(module, argument(call, None, "split")) if argument(call, None, "split") else 0
            if function is None or not isinstance(axis, int):
                continue
            home = module.home(function)
            for each in _statistics(home, function, axis):
                line = home.statement(each)
                if line not in told and home is module:
                    told.add(line)
                    text = "This is taken of each micro-batch by itself, and not of the batch."
                    yield At(each, text, RISK)


def _function(module: SourceModule, given: ast.expr) -> Function | None:
    """Return the loss that is given, be it a lambda under a name."""
    known = module.functions.named(given) or module.functions.kept(given)
    made = module.definitions(given) if known is None else []
    return made[0] if len(made) == 1 and isinstance(made[0], ast.Lambda) else known


def _is_split(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether an update computes its batch in parts, by its own option or its learners'."""
    if constant(argument(call, None, "decomposable")) is False:
        return False
    own = argument(call, None, "micro_batch")
    if own is not None and not _is_none(own):
        return True
    several = (
        argument(call, 0, "learners") if is_call_of(module, call, "truestep.update") else receiver_of(call)
    )
    named = several.elts if isinstance(several, (ast.List, ast.Tuple)) else [several]
    made = [each for one in named if one is not None for each in value_origins(module, one)]
    options = [argument(each, None, "micro_batch") for each in made if isinstance(each, ast.Call)]
    return any(each is not None and not _is_none(each) for each in options)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _statistics(module: SourceModule, function: Function, axis: int, deep: int = 0) -> list[ast.expr]:
    """Return what a function takes of all examples that it is given, and computes its result of."""
    names = {
        each.arg for each in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    }
    given = _computed_from(function, names - {"self"})
    passed_over = _rows(function, given)
    turned = _turned(function)
    found = []
    for each in walk(function):
        operands = _operands(module, each, axis, deep) if isinstance(each, ast.expr) else []
        read = frozenset[str]().union(*(names_read(one) for one in operands))
        is_of_batch = (
            bool(operands) and all(names_read(one) & given for one in operands) and not read & passed_over
        )
        if _names_axis(each) and (read & turned or any(map(_turns, operands))):
            continue  # which axis the examples have by then is not known
        if is_of_batch and module.scope(each) is function and isinstance(each, ast.expr):
            if _reaches_result(module, function, each):
                found.append(each)
    return found


def _operands(module: SourceModule, node: ast.expr, axis: int, deep: int) -> list[ast.expr]:
    """Return what a statistic over the examples is taken of; nothing for any other expression."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return [node.left, node.right] if _is_transposed(node.right) else []
    if axis == 0 and (counted := _rows_counted(module, node)) is not None:
        return [counted]
    if not isinstance(node, ast.Call):
        return []
    target = module.functions.target(node)
    if target is not None:
        mixes = deep < _DEEP and _statistics(module.home(target), target, axis, deep + 1)
        return [ast.Tuple([*node.args], ast.Load())] if mixes and node.args else []
    qualified = module.qualify(node.func) or ""
    is_function = qualified.startswith("torch.") and bool(node.args)
    if not is_function and not isinstance(node.func, ast.Attribute):
        return []
    name = qualified.rpartition(".")[2] if is_function else node.func.attr  # type: ignore[attr-defined]
    if is_function and name == "cdist":
        return node.args[:2]
    if not _goes_over(node, name, axis, int(is_function)):
        return []
    return [node.args[0] if is_function else node.func.value]  # type: ignore[attr-defined]


def _rows_counted(module: SourceModule, node: ast.expr) -> ast.expr | None:
    """Return whose rows a factor or a divisor is the number of: `len(x)`, `x.shape[0]`, `x.size(0)`, or a name for one of these."""
    above = module.parents.get(node)
    is_divisor = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Div) and above.right is node
    if not is_divisor and not (isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult)):
        return None
    made = module.definitions(node) if isinstance(node, ast.Name) else [node]
    match made:
        case [
            ast.Call(
                func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() | ast.Subscript() as counted]
            )
        ]:
            return counted  # and of no call: `len(ts.gather(x))` is the whole batch's
        case [ast.Subscript(value=ast.Attribute(value=counted, attr="shape"), slice=ast.Constant(value=0))]:
            return counted
        case [ast.Call(func=ast.Attribute(value=counted, attr="size"), args=[ast.Constant(value=0)])]:
            return counted
    return None


def _goes_over(call: ast.Call, name: str, axis: int, shift: int) -> bool:
    """Tell whether an operation goes over the dimension of the examples, written or because it goes over all."""
    if name not in _OVER_ALL | _ALONG:
        return False
    position = int(name in _DIMENSION_SECOND)
    word = "dims" if name in ("roll", "flip") else "dim"
    dim = argument(call, position + shift, word) or argument(call, None, "axis")
    if dim is None or isinstance(constant(dim), bool):
        return name in _OVER_ALL
    if axis != 0:  # what was turned for a layer or a loss has its examples elsewhere by then
        return False
    parts = dim.elts if isinstance(dim, (ast.Tuple, ast.List)) else [dim]
    return any(constant(each) == axis and not isinstance(constant(each), bool) for each in parts)


def _is_transposed(node: ast.expr) -> bool:
    method = node.func if isinstance(node, ast.Call) and not node.args else node
    return isinstance(method, ast.Attribute) and method.attr in _TRANSPOSES


def _computed_from(function: Function, names: set[str]) -> frozenset[str]:
    """Return these names and those that get a value which is computed from them."""
    found, before = set(names), -1
    while before != len(found):
        before = len(found)
        for node in walk(function):
            source, targets = _given_by(node)
            if source is not None and names_read(source) & found:
                found.update(each.id for one in targets for each in walk(one) if isinstance(each, ast.Name))
    return frozenset(found)


def _given_by(node: ast.AST) -> tuple[ast.expr | None, list[ast.expr]]:
    """Return what a statement or a comprehension gives names, and these."""
    match node:
        case ast.Assign():
            return node.value, [stored for each in node.targets if (stored := _root(each)) is not None]
        case ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr():
            return node.value, [_root(node.target) or node.target]
        case ast.For() | ast.comprehension():
            return node.iter, [node.target]
    return None, []


def _root(target: ast.expr) -> ast.expr | None:
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
    return target


def _rows(function: Function, given: frozenset[str]) -> frozenset[str]:
    """Return the names that go over what is computed from the batch: each is one example, or one of several parts."""
    loops = [each for each in walk(function) if isinstance(each, (ast.For, ast.comprehension))]
    over = [each.target for each in loops if names_read(each.iter) & given]
    return _computed_from(
        function, {each.id for one in over for each in walk(one) if isinstance(each, ast.Name)}
    )


def _turned(function: Function) -> frozenset[str]:
    """Return the names of what is computed from a tensor whose axes were exchanged."""
    given = [_given_by(each) for each in walk(function)]
    direct = [one for source, targets in given if source is not None and _turns(source) for one in targets]
    return _computed_from(
        function, {each.id for one in direct for each in walk(one) if isinstance(each, ast.Name)}
    )


def _turns(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in _TURNS for each in walk(node))


def _names_axis(node: ast.AST) -> bool:
    """Tell a call that says by an argument over which axis it goes."""
    if not isinstance(node, ast.Call):
        return False
    given = [*node.args, *(word.value for word in node.keywords if word.arg in ("dim", "dims", "axis"))]
    return any(isinstance(constant(each), int) or isinstance(each, ast.Tuple) for each in given)


def _reaches_result(module: SourceModule, function: Function, statistic: ast.expr) -> bool:
    """Tell whether a result is computed of a statistic otherwise than by adding a mean or a sum to it."""
    waiting, seen = [statistic], set[ast.AST]()
    is_linear = (
        isinstance(statistic, ast.Call)
        and (module.qualify(statistic.func) or "").rpartition(".")[2] in _LINEAR
    )
    is_linear = is_linear or getattr(getattr(statistic, "func", None), "attr", "") in _LINEAR
    ways: list[bool] = []
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        top, is_added = _whole(module, node)
        above = module.parents.get(top) if top is not None else None
        if above is None:
            continue
        is_linear = is_linear and is_added
        if isinstance(above, ast.Return) or above is function:
            ways.append(top is not statistic)
        elif isinstance(above, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            stored = {
                each.id for one in _given_by(above)[1] for each in walk(one) if isinstance(each, ast.Name)
            }
            reads = [each for name in stored for each in module.reads(name)]
            waiting += [
                each for each in reads if module.scope(each) is function and each.lineno >= above.lineno
            ]
    return any(ways) and not is_linear


def _whole(module: SourceModule, node: ast.expr) -> tuple[ast.expr | None, bool]:
    """Return the whole expression that a value is part of, None where no loss is made of it; and whether it is only added."""
    is_added, current = True, node
    while isinstance(above := module.parents.get(current), (ast.expr, ast.keyword)):
        if isinstance(above, ast.Lambda):
            break
        called = above.func if isinstance(above, ast.Call) else None
        named = getattr(called, "attr", getattr(called, "id", ""))
        metric = isinstance(above, ast.keyword) and above.arg not in (None, "weights", "values")
        if named in _OUTSIDE or isinstance(above, ast.Compare) or (metric and _is_of_weighted(module, above)):
            return None, False
        if isinstance(above, ast.Attribute) and above.attr in ("item", "shape"):
            return None, False
        is_added = is_added and _only_adds(above, current)
        current = above  # type: ignore[assignment]
    return current, is_added


def _only_adds(above: ast.AST, node: ast.AST) -> bool:
    match above:
        case ast.BinOp(op=ast.Add() | ast.Sub()) | ast.UnaryOp(op=ast.USub()):
            return True
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return isinstance(right if left is node else left, ast.Constant)
        case ast.BinOp(op=ast.Div(), left=left, right=ast.Constant()):
            return left is node
    return False


def _is_of_weighted(module: SourceModule, word: ast.AST) -> bool:
    return is_call_of(module, module.parents.get(word), "truestep.weighted")

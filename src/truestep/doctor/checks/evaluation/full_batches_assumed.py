# SPDX-License-Identifier: Apache-2.0
"""Every batch taken for a full one: examples counted as batches times batch size, means of batches averaged."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.batches import LOADER, num_rows, source_of, tensors_of
from truestep.doctor.source.classes import MAX_DEPTH
from truestep.doctor.source.losses import losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part, method_of, receiver_of
from truestep.doctor.source.numbers import whole_number
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument, forwards_all, literal, seen_through, value_origins

_JOINS = functions("joins numbers")
_LEARNS = ("backward", "manual_backward", "step", "update")

_SAME = SAME_NUMBERS
_SAMPLERS = ((3, "sampler"), (4, "batch_sampler"))


class FullBatchesAssumed(SourceCheck):
    """A total is divided by the number of batches times the batch size, or the means of batches are averaged.

    Why: the last batch is mostly smaller: an accuracy comes out too low, or its few examples count for many.

    Bad:
        batch_size = 8
        test_loader = DataLoader(data, batch_size=batch_size)
        correct = 0
        with torch.no_grad():
            net.eval()
            for x, y in test_loader:
                correct += (net(x).argmax(1) == y).sum().item()
        accuracy = correct / (len(test_loader) * batch_size)  # here

    Good:
        batch_size = 8
        test_loader = DataLoader(data, batch_size=batch_size)
        correct = 0
        with torch.no_grad():
            net.eval()
            for x, y in test_loader:
                correct += (net(x).argmax(1) == y).sum().item()
        accuracy = correct / len(test_loader.dataset)

    Fix: sum over all batches and divide once, by len(loader.dataset) or by the len(x) that were counted.

    Evidence: 186 repositories, beds I, M: 10 true, 2 false.
    """

    code = "EVAL036"
    words = ("batch_size",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a divisor, unless the loader drops its last batch."""
        for node in module.all(ast.BinOp):
            if isinstance(node.op, ast.Div) and (loader := _counted(module, node.right)) is not None:
                loaders = _loaders_behind(module, loader)
                is_even = bool(loaders) and all(_is_even(module, each) for each in loaders)
                if not is_even and not _drops(module, loader) and not _is_sampled(module, loaders):
                    yield At(node, f"{ast.unparse(node.right)} is more than the number of examples.", RISK)
        for mean, kept in _averages(module):
            added = [each for each in module.method_calls("append") if _is_appended_to(module, each, kept)]
            if added and all(_is_mean_of_uneven(module, each) for each in added):
                text = f"{kept.id!r} holds means of batches: the examples of a shorter last batch count for more."
                yield At(mean, text, ADVICE)


def _counted(module: SourceModule, divisor: ast.expr) -> ast.expr | None:
    """Return the loader of `len(loader) * batch_size`."""
    if not (isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Mult)):
        return None
    for one, other in ((divisor.left, divisor.right), (divisor.right, divisor.left)):
        if isinstance(one, ast.Call) and module.qualify(one.func) == "len" and len(one.args) == 1:
            loader = one.args[0]
            if module.kind(loader) == "loader" and _is_its_batch_size(module, loader, other):
                return loader
    return None


def _is_its_batch_size(module: SourceModule, loader: ast.expr, size: ast.expr) -> bool:
    """Tell what the loader was given for it, or what is called so."""
    made = [each for each in module.definitions(loader) if isinstance(each, ast.Call)]
    given = [argument(each, 1, "batch_size") for each in made]
    same = any(each is not None and ast.unparse(each) == ast.unparse(size) for each in given)
    return same or (own_name(size) or "").endswith("batch_size")


def _averages(module: SourceModule) -> Iterator[tuple[ast.expr, ast.Name]]:
    """Yield the means of lists: `np.mean(means)`, `sum(means) / len(means)`, `torch.tensor(means).mean()`."""
    for call in module.calls("numpy.mean", "statistics.mean", "statistics.fmean", "torch.mean"):
        kept = _listed(module, call.args[0]) if len(call.args) == 1 else None
        if kept is not None:
            yield call, kept
    for call in module.method_calls("mean"):
        kept = _listed(module, call.func.value) if isinstance(call.func, ast.Attribute) else None
        if kept is not None and not call.args and not call.keywords:
            yield call, kept
    for node in module.all(ast.BinOp):
        total, length = _only(module, node.left, "sum"), _only(module, node.right, "len")
        if isinstance(node.op, ast.Div) and isinstance(total, ast.Name) and isinstance(length, ast.Name):
            if total.id == length.id:
                yield node, total


def _only(module: SourceModule, node: ast.expr, *names: str) -> ast.expr | None:
    """Return the one argument of a call of these."""
    is_call = isinstance(node, ast.Call) and module.qualify(node.func) in names and len(node.args) == 1
    return node.args[0] if is_call and isinstance(node, ast.Call) else None


def _listed(module: SourceModule, node: ast.expr) -> ast.Name | None:
    """Return the list of a mean: itself, or within `torch.tensor(means)`."""
    node = _only(module, node, *_JOINS) or node
    return node if isinstance(node, ast.Name) else None


def _is_appended_to(module: SourceModule, call: ast.Call, kept: ast.Name) -> bool:
    own = receiver_of(call)
    return isinstance(own, ast.Name) and own.id == kept.id and module.scope(call) is module.scope(kept)


def _is_mean_of_uneven(module: SourceModule, added: ast.Call) -> bool:
    """Tell the mean of a batch, in a loop that learns nothing, from a loader in sight whose batches may differ."""
    loop = module.loop(added)
    loader = source_of(module, loop) if isinstance(loop, ast.For) else None
    if loop is None or loader is None or module.qualify(loader.func) != LOADER or forwards_all(loader):
        return False
    learns = any(
        isinstance(each.func, ast.Attribute) and each.func.attr in _LEARNS
        for each in module.inside(loop, ast.Call)
    )
    drop, size = argument(loader, 8, "drop_last"), argument(loader, 1, "batch_size")
    dropped = drop is not None and literal(module, drop) is not False
    given = {word.arg for word in loader.keywords} & {"sampler", "batch_sampler"}
    if learns or dropped or given or size is None or not _is_mean(module, added.args[0]):
        return False
    return not _is_even(module, loader)


def _is_even(module: SourceModule, loader: ast.Call) -> bool:
    """Tell batches of one, a batch that holds all examples, or a size that divides their number."""
    size = argument(loader, 1, "batch_size")
    tensors = tensors_of(module, loader)
    rows = num_rows(module, tensors[0] if isinstance(tensors, list) and tensors else None)
    number = whole_number(module, size) if size is not None else 1
    if number == 1 or (rows is not None and number and rows % number == 0):
        return True
    known = [size, seen_through(module, size)]
    return any(each is not None and _is_length(each) for each in known)


def _is_length(size: ast.expr) -> bool:
    """Tell `len(x)`, `x.shape[0]` and `x.size(0)`."""
    called = last_part(size.func) if isinstance(size, ast.Call) else ""
    measured = size.value if isinstance(size, ast.Subscript) else None
    is_shape = isinstance(measured, ast.Attribute) and measured.attr == "shape"
    return called == "len" or (isinstance(size, ast.Call) and method_of(size) == "size") or is_shape


def _drops(module: SourceModule, loader: ast.expr) -> bool:
    """Tell whether the loader drops its last batch, or may: it is out of sight, or goes through the training set."""
    made = [each for each in module.definitions(loader) if isinstance(each, ast.Call)]
    flags = [argument(each, None, "drop_last") for each in made]
    asked = [each for each in flags if each is not None and literal(module, each) is not False]
    return bool(asked) or any(word.arg is None for each in made for word in each.keywords)


def _loaders_behind(module: SourceModule, loader: ast.expr) -> list[ast.Call]:
    """Return the loaders that a name may stand for, be they made by a function."""
    found = _calls_behind(module, loader)
    found += [
        each
        for call in found
        for made in module.resolver.results_of(call)
        for each in _calls_behind(module, made)
    ]
    return [each for each in found if module.qualify(each.func) == LOADER]


def _is_sampled(module: SourceModule, loaders: list[ast.Call]) -> bool:
    """Tell a loader with a sampler of the program's own, which says how many examples there are."""
    given = [argument(each, place, name) for each in loaders for place, name in _SAMPLERS]
    made = [each for sampler in given if sampler is not None for each in _calls_behind(module, sampler)]
    return any(not (module.qualify(each.func) or "").startswith("torch.") for each in made)


def _calls_behind(module: SourceModule, node: ast.expr) -> list[ast.Call]:
    return [each for each in value_origins(module.home(node), node) if isinstance(each, ast.Call)]


def _is_mean(module: SourceModule, node: ast.expr, depth: int = 0) -> bool:
    """Tell whether an expression is a mean over a batch, or a sum of such, on every way to it."""
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.Call(func=ast.Attribute(attr=method)) if method in _SAME:
            return _is_mean(module, node.func.value, depth + 1)  # type: ignore[attr-defined]
        case ast.Call():
            return _is_mean_call(module, node)
        case ast.BinOp(op=ast.Add()):
            return _is_mean(module, node.left, depth + 1) and _is_mean(module, node.right, depth + 1)
        case ast.BinOp(op=ast.Div()):
            return _is_sum(module, node.left) and _is_sum(module, node.right)
        case ast.BinOp(op=ast.Mult()):
            return isinstance(node.left, ast.Constant) and _is_mean(module, node.right, depth + 1)
        case ast.Name():
            return _is_mean_name(module, node, depth)
    return False


def _is_mean_call(module: SourceModule, call: ast.Call) -> bool:
    if module.qualify(call.func) == "torch.mean":
        return len(call.args) == 1 and not call.keywords
    if isinstance(call.func, ast.Attribute) and call.func.attr == "mean":
        return not call.args and not call.keywords
    key = (_is_mean, module)
    if key not in module.remembered:
        module.remembered[key] = set(losses_of(module))
    return call in module.remembered[key] and reduction_of(module, call) in (None, "mean")


def _is_mean_name(module: SourceModule, name: ast.Name, depth: int) -> bool:
    bindings = module.resolver.reaching(name)
    own = [each for each in bindings if each.value is not None and not _is_zero(each.value)]
    known = all(each.how in ("assign", "augmented") for each in bindings)
    given = [each.value for each in own if each.value is not None and not _reads_itself(each.value, name.id)]
    return known and bool(given) and all(_is_mean(module, each, depth + 1) for each in given)


def _reads_itself(value: ast.expr, name: str) -> bool:
    """Tell `loss = loss.to(device)`; a value that is computed from the one before is judged by its form."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _SAME
        and (isinstance(value.func.value, ast.Name) and value.func.value.id == name)
    )


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == 0


def _is_sum(module: SourceModule, node: ast.expr) -> bool:
    """Tell `x.sum()` and `torch.sum(x)`."""
    if not isinstance(node, ast.Call):
        return False
    if module.qualify(node.func) == "torch.sum":
        return len(node.args) == 1 and not node.keywords
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "sum"
        and not node.args
        and not node.keywords
    )

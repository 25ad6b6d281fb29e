# SPDX-License-Identifier: Apache-2.0
"""A total that each batch sets back, or none: it goes on from epoch to epoch."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.libraries import EPOCHS_OF
from truestep.doctor.source.loaders import goes_over_batches
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import assignment_target, dotted_name, method_of, receiver_of, walk
from truestep.doctor.source.value_origins import constant, value_origins

_LAST = "the mean is the last batch's"
_MEANS = re.compile(r"(^|\.)(mean|average|fmean|nanmean|sum|len)\(")


class TotalResetAtWrongPlace(SourceCheck):
    """A total is set to 0 within the loop that adds to it and read behind that, or before the epochs and read in each.

    Why: it holds the last batch alone; the metric that is made of it moves with whichever batch comes last. Or it also
    holds the epochs before: the loss seems to grow, the accuracy lags. A list that is given a value behind the loop
    holds one.

    Bad:
        for x, y in loader:
            correct = 0  # here
            correct += (net(x).argmax(1) == y).sum().item()
        print(correct / len(loader.dataset))

    Good:
        correct = 0
        for x, y in loader:
            correct += (net(x).argmax(1) == y).sum().item()
        print(correct / len(loader.dataset))

    Fix: set it to 0 before the loop over the batches, in each epoch.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/039/main.py:14;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/039/original_code_snippet.py:7; beds C, R, V: 4 true, 0
    false.
    """

    code = "EVAL039"
    words = ("+=", "sum(", "len(", "mean(", "average(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `x = 0` at the top of a loop's body that also adds to x, where x is read behind the loop alone."""
        for added in module.all(ast.AugAssign) if "torch" in module.text else ():
            loop, name = module.loop(added), _target_text(added.target)
            if not isinstance(loop, ast.For) or name is None or module.scope(loop) is not module.scope(added):
                continue
            resets = [
                each
                for each in _block_statements(loop.body)
                if _is_reset_to_zero(each, name) and each.lineno < added.lineno
            ]
            if (
                len(resets) == 1
                and not _has_early_exit(module, loop)
                and _is_read_after_loop(module, loop, name, added)
            ):
                yield At(resets[0], f"{name!r} is set back in each turn of the loop that adds to it.")
        for given in module.all(ast.Assign) if "torch" in module.text else ():
            loop = module.loop(given)
            if isinstance(loop, ast.For) and _is_last_batch_count(module, loop, given):
                name = dotted_name(given.targets[0])
                yield At(
                    given, f"{name!r} is given anew in each turn: behind the loop it is the last batch's."
                )
        late = [each for each in module.method_calls("append") if _is_of_last_batch(module, each)]
        yield from (At(each, f"{ast.unparse(each.func)} stands behind the loop: {_LAST}.") for each in late)
        yield from _totals_of_all_epochs(module)


def _totals_of_all_epochs(module: SourceModule) -> Iterator[At]:
    """Yield the means of an epoch whose total was set back before the first one alone."""
    for node in module.all(ast.BinOp):
        total, length, outer = node.left, node.right, module.loop(node)
        measured = isinstance(length, ast.Call) and module.qualify(length.func) == "len"
        if isinstance(node.op, ast.Div) and isinstance(total, ast.Name) and measured:
            if isinstance(outer, ast.For) and _is_total_never_reset(module, total, outer):
                yield At(node, f"{total.id!r} also holds the epochs before: nothing sets it back.", RISK)


def _is_of_last_batch(module: SourceModule, append: ast.Call) -> bool:
    """Tell the only value that a list is given before a mean is taken of it: what the loop right before it made last."""
    kept, statement = receiver_of(append), module.statement(append)
    if not isinstance(kept, ast.Name):
        return False
    begun, above = module.names.bindings(kept), module.parents[statement]
    block = next(
        (part for name in ("body", "orelse") if statement in (part := getattr(above, name, []))), [statement]
    )
    loops = [each for each in block[: block.index(statement)] if isinstance(each, ast.For)]
    if (
        len(begun) != 1
        or not loops
        or not goes_over_batches(module, loops[-1])
        or _has_early_exit(module, loops[-1])
    ):
        return False
    is_anew = module.loop(begun[0].node) is module.loop(statement)
    if not is_anew or not isinstance(begun[0].value, ast.List) or begun[0].value.elts:
        return False
    reads = [each for each in module.reads(kept.id) if each is not kept]
    around = [part for each in reads for part in module.ancestors(each) if isinstance(part, ast.expr)]
    means = [each for each in around if _MEANS.search(ast.unparse(each))]
    is_changed = any(isinstance(module.parents[each], ast.Attribute) for each in reads)
    return (
        bool(means) and not is_changed and all(_is_made_last(module, loops[-1], each) for each in append.args)
    )


def _is_made_last(module: SourceModule, loop: ast.For, value: ast.expr) -> bool:
    """Tell what each turn of a loop makes anew, of nothing that the loop adds to."""
    added = {dotted_name(each.target) for each in module.inside(loop, ast.AugAssign)}
    added |= {
        dotted_name(each.func.value)
        for each in module.inside(loop, ast.Call)
        if isinstance(each.func, ast.Attribute) and each.func.attr in ("append", "extend", "update", "add")
    }
    names = [each for each in walk(value) if isinstance(each, ast.Name)]
    made = [
        each
        for name in names
        for each in module.resolver.reaching(name)
        if loop in module.ancestors(each.node)
    ]
    parts = [part for each in made if each.value is not None for part in walk(each.value)]
    outside = [each for name in names for each in module.resolver.reaching(name) if each not in made]
    return (
        bool(made)
        and not outside
        and not any(dotted_name(each) in added for each in parts if isinstance(each, ast.expr))
    )


def _is_total_never_reset(module: SourceModule, total: ast.Name, outer: ast.For) -> bool:
    """Tell a total that an inner loop adds to, and no line of the outer one sets."""
    inside = [each for each in module.names.bindings(total) if outer in module.ancestors(each.node)]
    added = [each for each in inside if each.how == "augmented" and module.loop(each.node) is not outer]
    return bool(added) and len(inside) == len(added) and _is_epoch_range(module, outer.iter)


def _is_epoch_range(module: SourceModule, source: ast.expr) -> bool:
    """Tell `range(n)` and `run.epochs(n)`, also within `tqdm(...)` and under a name."""
    for each in value_origins(module, source):
        inner = each
        while isinstance(inner, ast.Call) and not _is_range_or_epochs_call(module, inner) and inner.args:
            inner = inner.args[0]
        if not (isinstance(inner, ast.Call) and _is_range_or_epochs_call(module, inner)):
            return False
    return True


def _is_range_or_epochs_call(module: SourceModule, call: ast.Call) -> bool:
    method = method_of(call)
    is_range = module.qualify(call.func) == "range"
    return is_range or (method in EPOCHS_OF and module.classes.maker_of(call) == EPOCHS_OF[method])


def _is_last_batch_count(module: SourceModule, loop: ast.For, given: ast.Assign) -> bool:
    """Tell `right = (p == y).sum()` where `right = 0` stands before the loop, and a total of all batches divides it behind."""
    target = given.targets[0]
    if (
        not isinstance(target, ast.Name)
        or module.scope(loop) is not module.scope(given)
        or _has_early_exit(module, loop)
    ):
        return False
    same = [
        each
        for each in module.stores
        if assignment_target(each) is not None and dotted_name(assignment_target(each)) == target.id
    ]
    same = [each for each in same if each is not given and module.scope(each) is module.scope(loop)]
    reads = [each for each in module.reads(target.id) if module.scope(each) is module.scope(loop)]
    begins = [each for each in same if each.lineno < loop.lineno and _is_reset_to_zero(each, target.id)]
    if not begins or not _is_count_of_equal(given.value) or given not in _block_statements(loop.body):
        return False
    if any(loop in module.ancestors(each) for each in [*same, *reads]):
        return False
    behind = [each for each in reads if each.lineno > (loop.end_lineno or loop.lineno)]
    behind = [each for each in behind if not _is_assigned_before_read(module, loop, target.id, each)]
    return any(_is_divided_by_total(module, loop, each) for each in behind)


def _is_count_of_equal(value: ast.expr) -> bool:
    """Tell `(p == y).sum().item()`: how many are equal."""
    calls = [each.func for each in walk(value) if isinstance(each, ast.Call)]
    names = {each.attr for each in calls if isinstance(each, ast.Attribute)}
    equal = any(isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Eq) for each in walk(value))
    return "sum" in names and (equal or "eq" in names)


def _is_divided_by_total(module: SourceModule, loop: ast.For, read: ast.expr) -> bool:
    """Tell `right / len(loader.dataset)` and `right / total`, to which the loop adds."""
    for each in module.ancestors(read):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div) and read in walk(each.left):
            added = {dotted_name(one.target) for one in module.inside(loop, ast.AugAssign)}
            parts = list(walk(each.right))
            whole = any(isinstance(one, ast.Attribute) and one.attr == "dataset" for one in parts)
            return whole or any(dotted_name(one) in added for one in parts if isinstance(one, ast.Name))
    return False


def _block_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block, those under a `with` among them."""
    for each in body:
        yield each
        if isinstance(each, ast.With):
            yield from _block_statements(each.body)


def _is_reset_to_zero(node: ast.stmt, name: str) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    targets = [each for target in node.targets for each in getattr(target, "elts", [target])]
    values = getattr(node.value, "elts", [node.value] * len(targets))
    for target, value in zip(targets, values, strict=False):
        items = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else []
        parts: dict[str | None, ast.expr] = {_target_text(target): value}
        parts |= {f"{dotted_name(target)}[{constant(key)!r}]": each for key, each in items}
        if constant(parts.get(name)) in (0, 0.0):
            return True
    return False


def _has_early_exit(module: SourceModule, loop: ast.For) -> bool:
    return bool(module.inside(loop, ast.Break, ast.Return, ast.Yield))


def _is_read_after_loop(module: SourceModule, loop: ast.For, name: str, added: ast.AugAssign) -> bool:
    """Tell whether a name is read after the loop, in the loop around it too, and nowhere in it."""
    table = name.partition("[")[0]
    reads = [each for each in module.reads(table) if module.scope(each) is module.scope(loop)]
    if table != name:  # an item of a dict: all that asks for it, and what takes the whole dict
        reads = [each for each in reads if _is_read_of_item(module, each, name)]
    inside = [each for each in reads if loop in module.ancestors(each)]
    others = [
        each
        for each in module.stores
        if _target_text(assignment_target(each)) == name
        and each is not added
        and loop in module.ancestors(each)
    ]
    end = loop.end_lineno or loop.lineno
    behind = [
        each for each in reads if each.lineno > end and not _is_assigned_before_read(module, loop, name, each)
    ]
    return not inside and len(others) <= 1 and bool(behind)


def _is_read_of_item(module: SourceModule, table: ast.expr, name: str) -> bool:
    """Tell `stats["n"]` where it is read, and `stats` itself."""
    item = module.parents[table]
    if not isinstance(item, ast.Subscript) or item.value is not table:
        return True
    return _target_text(item) == name and isinstance(item.ctx, ast.Load)


def _is_assigned_before_read(module: SourceModule, loop: ast.For, name: str, read: ast.expr) -> bool:
    end = loop.end_lineno or loop.lineno
    return any(
        _target_text(assignment_target(each)) == name
        and end < each.lineno < read.lineno
        and isinstance(each, ast.Assign)
        for each in module.stores
    )


def _target_text(node: ast.AST) -> str | None:
    """Return the text of a name, a chain of attributes, or an item of one under a constant key."""
    if isinstance(node, ast.Subscript) and (key := constant(node.slice)) is not None:
        base = dotted_name(node.value)
        return f"{base}[{key!r}]" if base is not None else None
    return dotted_name(node)

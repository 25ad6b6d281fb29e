# SPDX-License-Identifier: Apache-2.0
"""Fitting a scaler on what is tested later."""

import ast
import re
from collections.abc import Iterator
from itertools import product
from typing import TypeGuard

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.arguments import arguments_of, parameters_given
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Scope, dotted_name, last_part, walk
from truestep.doctor.source.overlapping_windows import overlapping_windows
from truestep.doctor.source.value_origins import argument, constant

_TENSORS = functions("takes numbers over")
_HELD_OUT = re.compile(r"(^|_)(va|val|valid|validation|te|test|dev|held|holdout)(_|$)", re.IGNORECASE)
_TRAINED = re.compile(r"(^|_)(tr|train|training)(_|$)", re.IGNORECASE)

MAX_DEPTH = 5  # from what is split back to what was fitted
_SAME_ROWS = ("to_numpy", "copy", "reset_index", "astype", "values", "iloc", "loc")


class StatisticsBeforeSplit(SourceCheck):
    """A scaler is fitted on all data before they are split into training and test, or windows that overlap are split at random.

    Why: the test data have shaped the training inputs: the measured quality is too good.

    Bad:
        from sklearn.model_selection import train_test_split
        from sklearn.preprocessing import StandardScaler

        X = StandardScaler().fit_transform(X)  # here
        train, test = train_test_split(X)

    Good:
        from sklearn.model_selection import train_test_split
        from sklearn.preprocessing import StandardScaler

        train, test = train_test_split(X)
        scaler = StandardScaler().fit(train)

    Fix: split first, fit on the training part alone, transform both. A series is cut by time, and each part into windows.

    Evidence: 186 repositories, beds E, S, T, W, X: 23 true, 2 debatable, 0 false.
    """

    code = "DATA013"
    words = (
        "train_test_split",
        ".mean(",
        ".std(",
        "fit_transform",
        "random_split",
        "randperm",
        "permutation",
        "shuffle",
    )

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report fit or fit_transform whose data reach a later split in the same scope, or were split already; and windows."""
        found = [
            *self._find_fits_before_split(module),
            *_find_manual_statistics(module),
            *_find_split_overlapping_windows(module),
        ]
        yield from {each.node: each for each in reversed(found)}.values()

    def _find_fits_before_split(self, module: SourceModule) -> Iterator[At]:
        for split in module.calls(*functions("splits at random")):
            fitted = [call for each in split.args for call in _source_fit_transform_calls(module, each)]
            data = {dotted_name(each) for each in split.args} - {None}
            for call in module.method_calls("fit_transform", "fit"):
                earlier = call.lineno < split.lineno and module.scope(call) is module.scope(split)
                if earlier and _is_scaler(module, call) and _names_of_fit(module, call) & data:
                    fitted += [] if _is_fit_repeated_below(module, call, split) else [call]
            text = (
                f"This is fitted on all data; line {split.lineno} splits off the test data only afterwards."
            )
            yield from (At(call, text) for call in dict.fromkeys(fitted))
        scaled = [call for call in module.method_calls("fit_transform", "fit") if _is_scaler(module, call)]
        has_own = any("train" in (name or "") for call in scaled for name in _names_of_fit(module, call))
        splits = module.calls(*functions("splits at random"))
        for call in scaled:
            if any(_is_fit_repeated_below(module, call, split) for split in splits):
                continue
            if has_own and not _is_fit_transform(call):
                continue  # what is fitted on all data besides is for use afterwards
            if any(_is_name_split_in_two(module, name, call) for name in _names_of_fit(module, call) if name):
                yield At(call, "This is fitted on all data, which are cut into two parts only afterwards.")


def _find_split_overlapping_windows(module: SourceModule) -> Iterator[At]:
    """Report a split at random of examples that share rows with their neighbours."""
    for split, wholes in _random_splits(module):
        if any(overlapping_windows(module, _source_expressions(module, wholes))):
            text = "Windows next to each other share rows, and these are split at random: what is tested was trained on in part."
            yield At(split, text, RISK)


def _random_splits(module: SourceModule) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """Yield each random split with what it splits, by a function or by the two halves of an order that was drawn."""
    for split in module.calls(*functions("splits at random")):
        if constant(argument(split, None, "shuffle")) is not False:
            yield split, split.args
    halves: dict[str, list[ast.Subscript]] = {}
    for each in module.all(ast.Subscript):
        if isinstance(each.slice, ast.Slice) and _is_random_permutation(module, each.value):
            halves.setdefault(ast.unparse(each.value), []).append(each)
    for cuts in halves.values():
        texts = {ast.unparse(each.slice): each for each in cuts}
        firsts = [each for text, each in texts.items() if text[:1] == ":" and f"{text[1:]}:" in texts]
        for each in firsts:
            given = [target for target, value in _target_value_pairs(module.statement(each)) if value is each]
            uses = [each, *(read for name in map(dotted_name, given) if name for read in module.reads(name))]
            yield each, [whole for use in uses for whole in _sources_of_subset(module, use)]


def _is_random_permutation(module: SourceModule, order: ast.expr) -> bool:
    """Tell `torch.randperm(n)`, and what `shuffle` was given."""
    made = [last_part(each.func) for each in module.definitions(order) if isinstance(each, ast.Call)]
    shuffled = [each.args[0] for each in module.method_calls("shuffle") if each.args]
    return any(each in ("randperm", "permutation") for each in made) or any(
        dotted_name(each) == dotted_name(order) and module.scope(each) is module.scope(order)
        for each in shuffled
    )


def _sources_of_subset(module: SourceModule, rows: ast.expr) -> list[ast.expr]:
    """Return x of `x[rows]` and `Subset(x, rows)`."""
    up = module.parents[rows]
    if isinstance(up, ast.Subscript) and up.slice is rows:
        return [up.value]
    return up.args[:1] if isinstance(up, ast.Call) and rows in up.args[1:] else []


def _is_fit_repeated_below(module: SourceModule, fitted: ast.Call, split: ast.Call) -> bool:
    """Tell a fit whose whole statement stands below once more, with nothing between that reads its result: one mistake."""
    statement = module.statement(fitted)
    same = [
        each
        for call in module.method_calls("fit_transform", "fit")
        if fitted.lineno < call.lineno < split.lineno and module.scope(call) is module.scope(fitted)
        if ast.dump(each := module.statement(call)) == ast.dump(statement)
    ]
    if not same or not isinstance(statement, (ast.Assign, ast.Expr)):
        return False
    names = [dotted_name(each) for each in statement.targets] if isinstance(statement, ast.Assign) else []
    reads = [read for name in names if name is not None for read in module.reads(name)]
    return not any(statement.lineno < read.lineno < same[0].lineno for read in reads)


def _find_manual_statistics(module: SourceModule) -> Iterator[At]:
    """Report the first mean or std of what is cut, or of what it was computed from."""
    seen: set[str] = set()
    for call in sorted(module.method_calls("mean", "std"), key=lambda each: each.lineno):
        whole = (
            _table_with_all_rows(module, call.func.value) if isinstance(call.func, ast.Attribute) else None
        )
        if (
            whole is None
            or whole in seen
            or not _is_statistic_over_rows(call)
            or not _is_used_to_normalise(module, call)
        ):
            continue
        names = (whole, *_names_computed_from(module, whole))
        if any(_is_name_split_in_two(module, name, call) for name in names):
            seen.add(whole)
            yield At(
                call, f"The statistics of all of {whole}, its test part too, normalise the training part."
            )


def _is_statistic_over_rows(call: ast.Call) -> bool:
    """Tell a statistic that examples share from one of each example alone: `x.mean(axis=1)`."""
    axes = [argument(call, 0, "axis"), argument(call, 0, "dim")]
    numbers = [constant(each) for each in axes if each is not None]
    return not any(isinstance(each, int) and each != 0 for each in numbers)


def _names_computed_from(module: SourceModule, name: str) -> list[str]:
    return [
        target
        for each in module.all(ast.Assign)
        if _is_arithmetic_or_tensor(module, each.value) and (target := dotted_name(each.targets[0]))
        if any(dotted_name(node) == name for node in walk(each.value))
    ]


def _is_arithmetic_or_tensor(module: SourceModule, value: ast.expr) -> bool:
    """Tell arithmetic, and `torch.tensor(x)`: the same numbers as a tensor."""
    return isinstance(value, ast.BinOp) or (
        isinstance(value, ast.Call) and module.qualify(value.func) in _TENSORS
    )


def _is_name_split_in_two(module: SourceModule, name: str, statistic: ast.Call) -> bool:
    """Tell whether `x_train, x_test = x[:s], x[s:]` cuts this name in two, or an index does whose parts take from it."""
    cuts = _slices_by_purpose(module, name)
    for cut in cuts["train"]:
        if (cut.startswith(":") and f"{cut[1:]}:" in cuts["test"]) or f"~{cut}" in cuts["test"]:
            return True
    splits = module.calls(*functions("splits at random")) if "train" not in name.lower() else []
    if any(_table_with_all_rows(module, each) == name for split in splits for each in split.args):
        return True
    taken = {
        rows
        for each in module.all(ast.Subscript)
        if (rows := dotted_name(each.slice)) is not None and dotted_name(each.value) == name
    }
    pairs = [*_split_index_names(module), *_fold_index_names(module, module.scope(statistic))]
    taken |= {rows for pair in pairs for rows in pair if _takes_rows_of(module, rows, name)}
    return any(first in taken and second in taken for first, second in pairs)


def _takes_rows_of(module: SourceModule, rows: str, name: str) -> bool:
    """Tell whether a function or a class is given an index by which it takes rows of a table, its own name or a parameter."""
    for use in module.reads(rows):
        above = module.parents[use]
        call = module.parents[above] if isinstance(above, ast.keyword) else above
        function = (
            module.functions.target(call) or module.functions.constructor(call)
            if isinstance(call, ast.Call)
            else None
        )
        if function is None or not isinstance(call, ast.Call):
            continue
        tables = {
            name,
            *(given for given, node, _ in arguments_of(function, call) if dotted_name(node) == name),
        }
        indices = parameters_given(function, call, use)
        taken = [
            each
            for each in module.home(function).inside(function, ast.Subscript)
            if dotted_name(each.value) in tables
        ]
        if any(isinstance(each.slice, ast.Name) and each.slice.id in indices for each in taken):
            return True
    return False


def _split_index_names(module: SourceModule) -> Iterator[tuple[str, str]]:
    """Yield the names of `tr, va, te = idx[:n], idx[n:m], idx[m:]`, two by two, one of which is held out."""
    halves: dict[str, dict[str, str]] = {}
    for target, cut in _all_target_value_pairs(module):
        part = dotted_name(target)
        if part is not None and isinstance(cut, ast.Subscript) and isinstance(cut.slice, ast.Slice):
            halves.setdefault(ast.unparse(cut.value), {})[ast.unparse(cut.slice)] = part
    for parts in halves.values():
        firsts = [name for bounds, name in parts.items() if bounds.startswith(":")]
        others = [name for bounds, name in parts.items() if not bounds.startswith(":")]
        for pair in product(firsts, others):
            if any(_HELD_OUT.search(name.rpartition(".")[2]) for name in pair):
                yield pair


def _fold_index_names(module: SourceModule, scope: Scope) -> Iterator[tuple[str, str]]:
    """Yield the names of `for train, test in folds.split(x)` in a scope, two by two, one of which is held out."""
    loops = [each for each in module.all(ast.For) if module.scope(each) is scope]
    for names in (each.elts for loop in loops for each in walk(loop.target) if isinstance(each, ast.Tuple)):
        parts = [name for each in names if (name := dotted_name(each)) is not None]
        yield from product(filter(_TRAINED.search, parts), filter(_HELD_OUT.search, parts))


def _all_target_value_pairs(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value."""
    for assignment in module.all(ast.Assign):
        yield from _target_value_pairs(assignment)


def _target_value_pairs(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(statement, ast.Assign):
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=False)
        else:
            yield target, value


def _slices_by_purpose(module: SourceModule, name: str) -> dict[str, set[str]]:
    """Return what is kept of a name for training, and for anything else: slices, masks, and the rows that a part lacks."""
    found: dict[str, set[str]] = {"train": set(), "test": set()}
    for part, value in _all_target_value_pairs(module):
        cut, side = _underlying_frame(value), "train" if "train" in ast.unparse(part).lower() else "test"
        if isinstance(cut, ast.Subscript) and dotted_name(_underlying_frame(cut.value)) == name:
            rows = cut.slice
            if isinstance(rows, ast.UnaryOp) and isinstance(
                rows.operand, ast.Call
            ):  # ~df.index.isin(part.index)
                rows = ast.UnaryOp(rows.op, *rows.operand.args[:1])
            found[side] |= (
                {ast.unparse(rows)} if isinstance(rows, (ast.Slice, ast.Name, ast.UnaryOp)) else set()
            )
        elif isinstance(cut, ast.Call) and dotted_name(cut.func) == f"{name}.sample":
            found[side].add(f"{dotted_name(part)}.index")
        elif isinstance(cut, ast.Call) and dotted_name(cut.func) == f"{name}.drop":
            left = argument(cut, 0, "index")
            found[side] |= {f"~{ast.unparse(left)}"} if left is not None else set()
    return found


def _underlying_frame(node: ast.expr) -> ast.expr:
    """Return what a frame's copy, array or way to its rows is of."""
    while True:
        made = node.func if isinstance(node, ast.Call) else node
        if not (isinstance(made, ast.Attribute) and made.attr in _SAME_ROWS):
            return node
        node = made.value


def _table_with_all_rows(module: SourceModule, node: ast.expr) -> str | None:
    """Return the name of a table, of which all columns or some are taken."""
    node = _underlying_frame(node)
    return dotted_name(
        _underlying_frame(node.value)
        if isinstance(node, ast.Subscript) and _is_column_index(module, node.slice)
        else node
    )


def _is_column_index(module: SourceModule, index: ast.expr) -> bool:
    """Tell `["a", "b"]`, a name of such, `df.columns[1:]` and `:, 1:` from rows."""
    if isinstance(index, ast.Tuple):
        first = index.elts[0]
        return isinstance(first, ast.Slice) and first.lower is None and first.upper is None
    found = module.definitions(index) if isinstance(index, ast.Name) else [index]
    return bool(found) and all(
        each is not None
        and (
            isinstance(each, (ast.List, ast.ListComp))
            or isinstance(constant(each), str)
            or any(isinstance(part, ast.Attribute) and part.attr == "columns" for part in walk(each))
        )
        for each in found
    )


def _is_used_to_normalise(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether the statistic is taken away from, or divides, something."""
    if _is_right_operand_of(module, call, ast.Sub):
        return True
    given = [target for target, value in _target_value_pairs(module.statement(call)) if call in walk(value)]
    return any(
        _is_used_as_shift_or_scale(module, use)
        for name in map(dotted_name, given)
        if name
        for use in module.reads(name)
    )


def _is_right_operand_of(module: SourceModule, use: ast.expr, *operators: type[ast.operator]) -> bool:
    """Tell `x - mean` and `x / std` from a rate's `1 - p` and `(1 - p) / p`, and from the squares that a variance sums."""
    up = module.parents[use]
    if not isinstance(up, ast.BinOp) or up.right is not use or not isinstance(up.op, operators):
        return False
    above = module.parents[up]
    is_squared = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Pow)
    is_rate = constant(up.left) is not None or dotted_name(use) in {
        dotted_name(each) for each in walk(up.left)
    } - {None}
    return not (is_squared or is_rate)


def _is_used_as_shift_or_scale(module: SourceModule, use: ast.expr, depth: int = 3) -> bool:
    """Tell a number that is taken away, or divides: here, under another name, or in a function that is given it."""
    up = module.parents[use]
    if isinstance(up, ast.BinOp):
        return _is_right_operand_of(module, use, ast.Sub, ast.Div)
    given = [target for target, value in _target_value_pairs(module.statement(use)) if value is use]
    uses = [(module, each) for name in map(dotted_name, given) if name for each in module.reads(name)]
    call = module.parents[up] if isinstance(up, ast.keyword) else up
    function = (
        module.functions.target(call) or module.functions.constructor(call)
        if isinstance(call, ast.Call) and use is not call.func
        else None
    )
    if function is not None and isinstance(call, ast.Call):
        home, names = module.home(function), parameters_given(function, call, use)
        uses += [(home, each) for each in home.inside(function, ast.Name) if each.id in names]
    return depth > 0 and any(_is_used_as_shift_or_scale(home, each, depth - 1) for home, each in uses)


def _is_scaler(module: SourceModule, call: ast.Call) -> bool:
    """Tell what learns figures; which classes there are is none."""
    assert isinstance(call.func, ast.Attribute)
    made = [
        each for each in (call.func.value, *module.definitions(call.func.value)) if isinstance(each, ast.Call)
    ]
    learns = re.compile(r"sklearn\.preprocessing\.(?!.*((?<!Target)Encoder|Binarizer)$)")
    return any(learns.match(module.qualify(each.func) or "") for each in made)


def _names_of_fit(module: SourceModule, call: ast.Call) -> set[str | None]:
    """Return the names of what is fitted, of what the result is stored under, and of what is transformed by it."""
    statement = module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    scaler = dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else None
    turned = [each for each in module.method_calls("transform") if dotted_name(each.func.value) == scaler]  # type: ignore[attr-defined]
    later = [
        module.statement(each)
        for each in turned
        if scaler is not None and _is_transform_of_fitted_data(each, call)
    ]
    targets = [*targets, *(name for each in later if isinstance(each, ast.Assign) for name in each.targets)]
    stored = {dotted_name(each.value if isinstance(each, ast.Subscript) else each) for each in targets}
    return stored | {_table_with_all_rows(module, each) for each in call.args}


def _is_transform_of_fitted_data(turned: ast.Call, fitted: ast.Call) -> bool:
    """Tell `scaler.transform(x)` after `scaler.fit(x)`: of the same data."""
    given = [[ast.dump(each) for each in call.args[:1]] for call in (turned, fitted)]
    return given[0] == given[1]


def _source_fit_transform_calls(module: SourceModule, node: ast.expr) -> list[ast.Call]:
    """Return each `scaler.fit_transform(...)` that a value comes from."""
    parts = _source_expressions(module, [node])
    return [each for each in parts if _is_fit_transform(each) and _is_scaler(module, each)]


def _source_expressions(module: SourceModule, nodes: list[ast.expr]) -> list[ast.AST]:
    """Return the parts of what values come from, through names, data sets and functions."""

    def direct_sources(value: ast.expr) -> list[ast.expr]:
        return [
            made for part in walk(value) for made in _resolve_name_or_call(module, part) if made is not None
        ]

    return [part for value in walk_each_once(nodes, direct_sources, MAX_DEPTH - 1) for part in walk(value)]


def _is_fit_transform(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "fit_transform"


def _resolve_name_or_call(module: SourceModule, part: ast.AST) -> list[ast.expr | None]:
    """Return what a name stands for, and what a call of a function of the program gives."""
    if isinstance(part, ast.Name):
        return module.definitions(part)
    function = (
        module.functions.target(part) if isinstance(part, ast.Call) and not _is_fit_transform(part) else None
    )
    return [*module.functions.results(function)] if function is not None else []

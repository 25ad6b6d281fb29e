# SPDX-License-Identifier: Apache-2.0
"""A total divided by the length of another loader, of means by the number of examples, or by batches times batch size."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.batch_counts import LOADER, loader_tensors, num_rows
from truestep.doctor.source.integer_values import whole_number
from truestep.doctor.source.loaders import is_batch_length, loop_iterable
from truestep.doctor.source.losses import loss_calls, loss_layer_constructor, loss_reduction
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, given_to, last_part, names_in, receiver_of
from truestep.doctor.source.running_means import (
    additions_each_turn,
    divisions_in,
    divisor_of_period,
    is_one_turn_more,
    unwrap_number,
)
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.value_origins import (
    argument,
    has_star_args,
    literal,
    resolve_expression,
    value_origins,
)

_ROWS = re.compile(r"\.size\((dim=)?0\)$|\.shape\[0\]$|^len\([\w\[\]'\".]+\)$")  # of a batch
_Place = tuple[ast.AST | None, str]
_SAMPLERS = ((3, "sampler"), (4, "batch_sampler"))
_LOADERS = re.compile(r"(loader|(^|[_.])dl|batches)$", re.IGNORECASE)


class DividedByOtherLength(SourceCheck):
    """A total over the batches of one loader is divided by the number of batches of another, or one of means by that of examples.

    Why: the mean is wrong by the ratio of the two lengths, and moves when either set changes. The mean losses of batches,
    divided by the number of examples, are too small by the batch size. Batches times batch size is more than there are
    examples: the last batch is mostly smaller. A window's mean is divided by the number of batches in the window.

    Bad:
        train_loader, valid_loader = DataLoader(x, shuffle=True), DataLoader(x)
        total = 0.0
        for batch in valid_loader:
            total += net(batch).sum().item()
        mean = total / len(train_loader)  # here

    Good:
        train_loader, valid_loader = DataLoader(x, shuffle=True), DataLoader(x)
        total = 0.0
        for batch in valid_loader:
            total += net(batch).sum().item()
        mean = total / len(valid_loader)

    Fix: divide by the length of what the loop goes through; add loss.item() * len(x) where examples are counted;
    divide by len(loader.dataset), or by the len(x) that were counted.

    Evidence: 186 repositories, beds D, H, I, M, Q, R, S, T, U, V, W, X, Y: 49 true, 1 debatable, 4 false.
    """

    code = "EVAL043"
    words = ("len(", "size(", "shape[", "batch_size", "%", "enumerate(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a quotient where every loop that adds to the total goes through one other loader."""
        for node, total, length in divisions_in(module) if "torch" in module.text else ():
            name, other = dotted_name(total), _loader_in_len_call(module, length)
            if name is None or other is None:
                continue
            sources = {_loader_of_addition(module, each) for each in _additions_to_total(module, node, name)}
            source = next(iter(sources), None)
            if len(sources) == 1 and source is not None and not _is_same_loader(module, node, source, other):
                yield At(
                    node, f"{name!r} is summed over {source}, and divided by the length of {other}.", RISK
                )
        yield from _find_means_over_examples(module)
        yield from _meters_of_means(module)
        yield from _sums_over_batches(module)
        yield from _find_full_batch_assumptions(module)
        yield from _find_other_windows(module)
        yield from _find_means_divided_by_rows(module)


def _is_same_loader(module: SourceModule, node: ast.AST, source: str, other: str) -> bool:
    """Tell two names of one loader: a parameter is what every call in sight gives for it."""
    return source == other or _arguments_for_parameter(module, node, source) == _arguments_for_parameter(
        module, node, other
    )


def _arguments_for_parameter(module: SourceModule, node: ast.AST, name: str) -> set[str]:
    """Return the text that the calls of this function give for a parameter, else the name itself."""
    scope = module.scope(node)
    parameters = scope.args.args if isinstance(scope, Function) and not isinstance(scope, ast.Lambda) else []
    at = next((index for index, each in enumerate(parameters) if each.arg == name), None)
    if at is None or not isinstance(scope, Function):
        return {name}
    at -= parameters[0].arg in ("self", "cls")
    given = [argument(call, at, name) for call in module.functions.callers(scope)]
    texts = {ast.unparse(each) for each in given if each is not None}
    return texts if texts and None not in given else {name}


def _find_means_over_examples(module: SourceModule) -> Iterator[At]:
    """Report the sum of batches' mean losses that is divided by the number of examples."""
    files = module.program.linked
    means = {each for file in files for each in loss_calls(file) if _is_mean_loss(file, each)}
    sums = _sums_of_means(module, means) if means else {}
    for node, total, number in divisions_in(module) if sums else ():
        if isinstance(total, ast.Call) and ast.unparse(total.func).endswith("sum") and total.args:
            total = total.args[0]
        loops = [module.loop(each) for each in sums.get(_total_location(module, total), [])]
        is_shown = loops and not _is_only_for_plateau(module, node)
        if is_shown and all(_is_example_count(module, number, each) for each in loops):
            text = f"Mean losses of batches are added up, and divided by the number of examples, {ast.unparse(number)}."
            yield At(node, text, RISK)


def _find_other_windows(module: SourceModule) -> Iterator[At]:
    """Report the mean of a window of batches that is divided by another number than that of its batches."""
    losses = [*loss_calls(module)]
    means = {each for each in losses if _is_mean_loss(module, each)}
    for node, total, number in divisions_in(module):
        name, loop = dotted_name(total), module.loop(node)
        if name is None or not isinstance(loop, ast.For) or module.scope(loop) is not module.scope(node):
            continue
        if is_one_turn_more(module, node, number):
            if additions_each_turn(module, loop, name, node.lineno):
                text = f"{name!r} holds {ast.unparse(number)} + 1 batches here: the counter begins at 0."
                yield At(node, text, RISK)
        elif (
            losses
            and len(means) == len(losses)
            and (period := divisor_of_period(module, node, name, number)) is not None
        ):
            added = additions_each_turn(module, loop, name, node.lineno)
            values = [unwrap_number(each.value) for each in added]
            trained = {dotted_name(receiver_of(each) or each) for each in module.method_calls("backward")}
            if values and all(
                dotted_name(each) in trained or _is_combination_of_means(module, means, each)
                for each in values
            ):
                yield At(
                    node,
                    f"{name!r} holds {period} batches here, and is divided by {ast.unparse(number)}.",
                    RISK,
                )


def _find_means_divided_by_rows(module: SourceModule) -> Iterator[At]:
    """Report `total += loss.item() / len(x)` of a loss that is the mean over x already."""
    means = {each for each in loss_calls(module) if _is_mean_loss(module, each)}
    for added in module.all(ast.AugAssign) if means else ():
        value, loop = added.value, module.loop(added)
        if (
            not isinstance(added.op, ast.Add)
            or not isinstance(value, ast.BinOp)
            or not isinstance(value.op, ast.Div)
        ):
            continue
        rows = (
            value.right if _ROWS.search(ast.unparse(value.right)) else resolve_expression(module, value.right)
        )
        measured = {*names_in(rows)} if rows is not None and _ROWS.search(ast.unparse(rows)) else set()
        of_turn = {*names_in(loop.target)} if isinstance(loop, ast.For) else set()
        if measured & of_turn and _is_combination_of_means(module, means, unwrap_number(value.left)):
            text = f"The loss is the mean over the batch already, and is divided by {ast.unparse(value.right)} again."
            yield At(added, text, RISK)


def _meters_of_means(module: SourceModule) -> Iterator[At]:
    """Report `self.sum += value` of a meter beside `self.count += n`, where its callers give it a batch's mean and its size."""
    quotients = [each for each in module.all(ast.BinOp) if isinstance(each.op, ast.Div)]
    counted = {(ast.unparse(each.left), ast.unparse(each.right)) for each in quotients}
    for total in module.all(ast.AugAssign) if counted else ():
        function = module.scope(total)
        if (
            not isinstance(total.value, ast.Name)
            or not isinstance(total.target, ast.Attribute)
            or not isinstance(function, ast.FunctionDef)
        ):
            continue
        beside = [
            each
            for each in module.inside(function, ast.AugAssign)
            if (ast.unparse(total.target), ast.unparse(each.target)) in counted
        ]
        for number in (each.value for each in beside if isinstance(each.value, ast.Name)):
            if any(
                _gives_mean_and_size(module, function, call, total.value.id, number.id)
                for call in module.functions.callers(function)
            ):
                value, size = total.value.id, number.id
                text = f"The mean of a batch, {value!r}, counts as one example of {size!r}: add {value} * {size}."
                yield At(total, text, RISK)


def _gives_mean_and_size(
    module: SourceModule, function: ast.FunctionDef, call: ast.Call, value: str, number: str
) -> bool:
    given, size = argument_for(function, call, value), argument_for(function, call, number)
    home, files = module.home(call), module.program.linked
    means = {each for file in files for each in loss_calls(file) if _is_mean_loss(file, each)}
    means |= {each for file in files for each in file.method_calls("mean") if not given_to(each)}  # over all
    sized = size is not None and bool(_ROWS.search(ast.unparse(resolve_expression(home, size) or size)))
    return sized and given is not None and _is_combination_of_means(home, means, unwrap_number(given))


def _sums_over_batches(module: SourceModule) -> Iterator[At]:
    """Report the sum of losses over examples, none of which is trained on, that is divided by the number of batches."""
    summed = {each for each in loss_calls(module) if loss_reduction(module, each) == "sum"}
    taken = [
        receiver for call in module.method_calls("backward") if (receiver := receiver_of(call)) is not None
    ]
    is_trained_on = any(_is_combination_of_means(module, summed, each) for each in taken)
    sums = _sums_of_means(module, summed) if summed and not is_trained_on else {}
    for node, total, length in divisions_in(module) if sums else ():
        loops = [module.loop(each) for each in sums.get(_total_location(module, total), [])]
        sources = [loop_iterable(module, each) for each in loops]
        if (
            _loader_in_len_call(module, length)
            and sources
            and all(each is not None and _is_batched_loader(module, each) for each in sources)
        ):
            text = f"The losses of all examples are added up, and divided by the number of batches, {ast.unparse(length)}."
            yield At(node, text, RISK)


def _is_only_for_plateau(module: SourceModule, node: ast.AST) -> bool:
    """Tell a figure that only a ReduceLROnPlateau takes: its relative threshold does not see a constant factor."""
    above = module.parents[node]
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
        scope = module.scope(above)
        reads = [each for each in module.reads(above.targets[0].id) if module.scope(each) is scope]
        return bool(reads) and all(_is_step_of_plateau(module, module.parents[each]) for each in reads)
    return _is_step_of_plateau(module, above)


def _is_step_of_plateau(module: SourceModule, call: ast.AST) -> bool:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
        return False
    made = [each for each in value_origins(module, call.func.value) if isinstance(each, ast.Call)]
    return bool(made) and all(
        last_part(each.func) == "ReduceLROnPlateau"
        and not has_star_args(each)
        and literal(module, argument(each, 5, "threshold_mode") or ast.Constant("rel")) == "rel"
        for each in made
    )


def _is_mean_loss(module: SourceModule, loss: ast.Call) -> bool:
    source = loss_layer_constructor(module, loss) or loss
    said = argument(source, None, "reduction")
    return loss_reduction(module, loss) is None if said is None else bool(literal(module, said) == "mean")


def _total_location(module: SourceModule, total: ast.expr) -> _Place:
    """Return what a total is kept under: a name of another function is another one."""
    return None if isinstance(total, ast.Attribute) else module.scope(total), ast.unparse(total)


def _sums_of_means(module: SourceModule, means: set[ast.Call]) -> dict[_Place, list[ast.AST]]:
    """Return the totals to which mean losses alone are added, and the lists that hold them."""
    sums: dict[_Place, list[ast.AST]] = {}
    others: set[_Place] = set()
    adding: list[tuple[ast.expr, ast.expr, ast.AST]] = [
        (each.target, each.value, each) for each in module.all(ast.AugAssign) if isinstance(each.op, ast.Add)
    ]
    for call in module.method_calls("append"):
        assert isinstance(call.func, ast.Attribute)
        adding += [(call.func.value, each, call) for each in call.args[:1]]
    for place, value, node in adding:
        text = _total_location(module, place)
        if _is_combination_of_means(module, means, unwrap_number(value)) and module.loop(node) is not None:
            sums.setdefault(text, []).append(node)
        else:
            others.add(text)
    return {text: nodes for text, nodes in sums.items() if text not in others}


def _is_combination_of_means(
    module: SourceModule, means: set[ast.Call], value: ast.expr, steps: int = 4
) -> bool:
    """Tell mean losses, their sums, and their products with a number that is written: all of them are means."""
    made = list(value_origins(module, value)) if steps else []
    for each in made:
        if each in means:
            continue
        terms: list[ast.expr] = []
        if isinstance(each, ast.BinOp):
            is_sum = isinstance(each.op, (ast.Add, ast.Sub))
            terms = [side for side in (each.left, each.right) if is_sum or not isinstance(side, ast.Constant)]
            terms = terms if is_sum or len(terms) == 1 else []
        elif isinstance(each, ast.Call):
            home = module.home(each)
            terms = home.functions.results(home.functions.target(each))
        if not terms or not all(_is_combination_of_means(module, means, term, steps - 1) for term in terms):
            return False
    return bool(made)


def _is_example_count(module: SourceModule, number: ast.expr, loop: ast.AST | None) -> bool:
    """Tell `len(loader.dataset)`, or a count that the batches of the same loop are added to."""
    source = loop_iterable(module, loop)
    if source is None or not _is_batched_loader(module, source):
        return False
    if _is_dataset_length(module, number) or any(
        each is not None and _is_dataset_length(module, each) for each in value_origins(module, number)
    ):
        return True
    text = ast.unparse(number)
    added = [
        each
        for each in module.all(ast.AugAssign)
        if ast.unparse(each.target) == text and isinstance(each.op, ast.Add) and module.loop(each) is loop
    ]
    return bool(added) and all(_ROWS.search(ast.unparse(each.value)) for each in added)


def _is_dataset_length(module: SourceModule, node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and module.qualify(node.func) == "len" and len(node.args) == 1):
        return False
    data = ast.unparse(node.args[0])
    loaders = module.calls("torch.utils.data.DataLoader")
    given = {ast.unparse(each) for call in loaders if (each := argument(call, 0, "dataset")) is not None}
    return data.endswith(".dataset") or data in given


def _is_batched_loader(module: SourceModule, source: ast.expr) -> bool:
    """Tell a loader whose batches are not known to be of one example."""
    if not _is_loader(module, source):
        return False
    made = [each for each in value_origins(module, source) if isinstance(each, ast.Call)]
    loaders = [each for each in made if module.kind(each) == "loader" and not has_star_args(each)]
    sizes = [argument(each, 1, "batch_size") for each in loaders]
    return all(each is not None and literal(module, each) != 1 for each in sizes)


def _loader_in_len_call(module: SourceModule, node: ast.expr) -> str | None:
    """Return the loader of `len(loader)`."""
    if isinstance(node, ast.Call) and module.qualify(node.func) == "len" and len(node.args) == 1:
        return dotted_name(node.args[0]) if _is_loader(module, node.args[0]) else None
    return None


def _is_loader(module: SourceModule, node: ast.expr) -> bool:
    return module.kind(node) == "loader" or bool(_LOADERS.search(dotted_name(node) or ""))


def _additions_to_total(module: SourceModule, node: ast.AST, name: str) -> list[ast.AugAssign]:
    """Return what adds to a total of the same function, before it is divided."""
    return [
        each
        for each in module.all(ast.AugAssign)
        if dotted_name(each.target) == name
        and isinstance(each.op, ast.Add)
        and module.scope(each) is module.scope(node)
    ]


def _loader_of_addition(module: SourceModule, added: ast.AugAssign) -> str | None:
    """Return the loader that the loop around a sum goes through, be it by enumerate or a progress bar."""
    loop = module.loop(added)
    source = loop_iterable(module, loop)
    return dotted_name(source) if source is not None and _is_loader(module, source) else None


def _find_full_batch_assumptions(module: SourceModule) -> Iterator[At]:
    """Report a total that is divided by batches times batch size, unless the loader drops its last batch."""
    for node in module.all(ast.BinOp) if "batch_size" in module.text else ():
        loader = _loader_times_batch_size(module, node.right) if isinstance(node.op, ast.Div) else None
        if loader is not None:
            loaders = _possible_loaders(module, loader)
            is_even = bool(loaders) and all(_has_equal_batches(module, each) for each in loaders)
            if (
                not is_even
                and not _can_drop_last(module, loader)
                and not _has_custom_sampler(module, loaders)
            ):
                yield At(node, f"{ast.unparse(node.right)} is more than the number of examples.", RISK)


def _loader_times_batch_size(module: SourceModule, divisor: ast.expr) -> ast.expr | None:
    """Return the loader of `len(loader) * batch_size`."""
    if not (isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Mult)):
        return None
    for one, other in ((divisor.left, divisor.right), (divisor.right, divisor.left)):
        if isinstance(one, ast.Call) and module.qualify(one.func) == "len" and len(one.args) == 1:
            loader = one.args[0]
            if module.kind(loader) == "loader" and _is_batch_size_of_loader(module, loader, other):
                return loader
    return None


def _is_batch_size_of_loader(module: SourceModule, loader: ast.expr, size: ast.expr) -> bool:
    """Tell what the loader was given for it, or what is called so."""
    made = [each for each in module.definitions(loader) if isinstance(each, ast.Call)]
    given = [argument(each, 1, "batch_size") for each in made]
    same = any(each is not None and ast.unparse(each) == ast.unparse(size) for each in given)
    return same or (own_name(size) or "").endswith("batch_size")


def _has_equal_batches(module: SourceModule, loader: ast.Call) -> bool:
    """Tell batches of one, a batch that holds all examples, or a size that divides their number."""
    size = argument(loader, 1, "batch_size")
    tensors = loader_tensors(module, loader)
    rows = num_rows(module, tensors[0] if isinstance(tensors, list) and tensors else None)
    number = whole_number(module, size) if size is not None else 1
    if number == 1 or (rows is not None and number and rows % number == 0):
        return True
    known = [size, resolve_expression(module, size)]
    return any(each is not None and is_batch_length(each) for each in known)


def _can_drop_last(module: SourceModule, loader: ast.expr) -> bool:
    """Tell whether the loader drops its last batch, or may: it is out of sight, or goes through the training set."""
    made = [each for each in module.definitions(loader) if isinstance(each, ast.Call)]
    flags = [argument(each, None, "drop_last") for each in made]
    asked = [each for each in flags if each is not None and literal(module, each) is not False]
    return bool(asked) or any(word.arg is None for each in made for word in each.keywords)


def _possible_loaders(module: SourceModule, loader: ast.expr) -> list[ast.Call]:
    """Return the loaders that a name may stand for, be they made by a function."""
    found = _source_calls(module, loader)
    found += [
        each
        for call in found
        for made in module.resolver.results_of(call)
        for each in _source_calls(module, made)
    ]
    return [each for each in found if module.qualify(each.func) == LOADER]


def _has_custom_sampler(module: SourceModule, loaders: list[ast.Call]) -> bool:
    """Tell a loader with a sampler of the program's own, which says how many examples there are."""
    given = [argument(each, place, name) for each in loaders for place, name in _SAMPLERS]
    made = [each for sampler in given if sampler is not None for each in _source_calls(module, sampler)]
    return any(not (module.qualify(each.func) or "").startswith("torch.") for each in made)


def _source_calls(module: SourceModule, node: ast.expr) -> list[ast.Call]:
    return [each for each in value_origins(module.home(node), node) if isinstance(each, ast.Call)]

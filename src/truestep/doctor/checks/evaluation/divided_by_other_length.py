# SPDX-License-Identifier: Apache-2.0
"""A total over one loader divided by the length of another, or one of means divided by the number of examples."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.losses import constructor_of, losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted
from truestep.doctor.source.values import argument, forwards_all, literal, value_origins

_ROWS = re.compile(r"\.size\((dim=)?0\)$|\.shape\[0\]$|^len\([\w\[\]'\".]+\)$")  # of a batch
_Place = tuple[ast.AST | None, str]
_LOADERS = re.compile(r"(loader|(^|[_.])dl|batches)$", re.IGNORECASE)


class DividedByOtherLength(SourceCheck):
    """A total over the batches of one loader is divided by the number of batches of another, or one of means by that of examples.

    Why: the mean is wrong by the ratio of the two lengths, and moves when either set changes. The mean losses of batches,
    divided by the number of examples, are too small by the batch size.

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

    Fix: divide by the length of what the loop goes through; add loss.item() * len(x) where examples are counted.

    Evidence: 186 repositories, beds D, H, Q, R, S, T, U, V: 24 true, 1 debatable, 1 false.
    """

    code = "EVAL043"
    words = ("len(", "size(", "shape[")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a quotient where every loop that adds to the total goes through one other loader."""
        for node in [*module.all(ast.BinOp), *module.all(ast.AugAssign)] if "torch" in module.text else ():
            total = node.left if isinstance(node, ast.BinOp) else node.target  # type: ignore[attr-defined]
            length = node.right if isinstance(node, ast.BinOp) else node.value  # type: ignore[attr-defined]
            name, other = dotted(total), _loader_measured(module, length)
            if not isinstance(node.op, ast.Div) or name is None or other is None:  # type: ignore[attr-defined]
                continue
            sources = {_source_of(module, each) for each in _added(module, node, name)}
            source = next(iter(sources), None)
            if len(sources) == 1 and source is not None and not _is_one(module, node, source, other):
                yield At(
                    node, f"{name!r} is summed over {source}, and divided by the length of {other}.", RISK
                )
        yield from _means_over_examples(module)


def _is_one(module: SourceModule, node: ast.AST, source: str, other: str) -> bool:
    """Tell two names of one loader: a parameter is what every call in sight gives for it."""
    return source == other or _given_as(module, node, source) == _given_as(module, node, other)


def _given_as(module: SourceModule, node: ast.AST, name: str) -> set[str]:
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


def _means_over_examples(module: SourceModule) -> Iterator[At]:
    """Report the sum of batches' mean losses that is divided by the number of examples."""
    files = module.program.linked
    means = {each for file in files for each in losses_of(file) if _is_mean(file, each)}
    sums = _sums_of_means(module, means) if means else {}
    for node in [*module.all(ast.BinOp), *module.all(ast.AugAssign)] if sums else ():
        total = node.left if isinstance(node, ast.BinOp) else node.target  # type: ignore[attr-defined]
        number = node.right if isinstance(node, ast.BinOp) else node.value  # type: ignore[attr-defined]
        if isinstance(total, ast.Call) and ast.unparse(total.func).endswith("sum") and total.args:
            total = total.args[0]
        added = sums.get(_place(module, total), []) if isinstance(node.op, ast.Div) else []  # type: ignore[attr-defined]
        loops = [module.loop(each) for each in added]
        if loops and all(_counts_examples(module, number, each) for each in loops):
            text = f"Mean losses of batches are added up, and divided by the number of examples, {ast.unparse(number)}."
            yield At(node, text, RISK)


def _is_mean(module: SourceModule, loss: ast.Call) -> bool:
    source = constructor_of(module, loss) or loss
    said = argument(source, None, "reduction")
    return reduction_of(module, loss) is None if said is None else bool(literal(module, said) == "mean")


def _place(module: SourceModule, total: ast.expr) -> _Place:
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
        text = _place(module, place)
        if _is_of_means(module, means, _behind_number(value)) and module.loop(node) is not None:
            sums.setdefault(text, []).append(node)
        else:
            others.add(text)
    return {text: nodes for text, nodes in sums.items() if text not in others}


def _is_of_means(module: SourceModule, means: set[ast.Call], value: ast.expr, steps: int = 4) -> bool:
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
        if not terms or not all(_is_of_means(module, means, term, steps - 1) for term in terms):
            return False
    return bool(made)


def _behind_number(node: ast.expr) -> ast.expr:
    """Return x for `x.item()`, `float(x)` and `x.detach().cpu()`."""
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute):
            if node.attr != "data":
                break
            node = node.value
        elif isinstance(node.func, ast.Attribute) and node.func.attr in SAME_NUMBERS and not node.args:
            node = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id == "float" and node.args:
            node = node.args[0]
        else:
            break
    return node


def _counts_examples(module: SourceModule, number: ast.expr, loop: ast.AST | None) -> bool:
    """Tell `len(loader.dataset)`, or a count that the batches of the same loop are added to."""
    source = _gone_through(module, loop)
    if source is None or not _has_batches(module, source):
        return False
    if _is_length_of_data(module, number) or any(
        each is not None and _is_length_of_data(module, each) for each in value_origins(module, number)
    ):
        return True
    text = ast.unparse(number)
    added = [
        each
        for each in module.all(ast.AugAssign)
        if ast.unparse(each.target) == text and isinstance(each.op, ast.Add) and module.loop(each) is loop
    ]
    return bool(added) and all(_ROWS.search(ast.unparse(each.value)) for each in added)


def _is_length_of_data(module: SourceModule, node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and module.qualify(node.func) == "len" and len(node.args) == 1):
        return False
    data = ast.unparse(node.args[0])
    loaders = module.calls("torch.utils.data.DataLoader")
    given = {ast.unparse(each) for call in loaders if (each := argument(call, 0, "dataset")) is not None}
    return data.endswith(".dataset") or data in given


def _has_batches(module: SourceModule, source: ast.expr) -> bool:
    """Tell a loader whose batches are not known to be of one example."""
    if not _is_loader(module, source):
        return False
    made = [each for each in value_origins(module, source) if isinstance(each, ast.Call)]
    loaders = [each for each in made if module.kind(each) == "loader" and not forwards_all(each)]
    sizes = [argument(each, 1, "batch_size") for each in loaders]
    return all(each is not None and literal(module, each) != 1 for each in sizes)


def _loader_measured(module: SourceModule, node: ast.expr) -> str | None:
    """Return the loader of `len(loader)`."""
    if isinstance(node, ast.Call) and module.qualify(node.func) == "len" and len(node.args) == 1:
        return dotted(node.args[0]) if _is_loader(module, node.args[0]) else None
    return None


def _is_loader(module: SourceModule, node: ast.expr) -> bool:
    return module.kind(node) == "loader" or bool(_LOADERS.search(dotted(node) or ""))


def _added(module: SourceModule, node: ast.AST, name: str) -> list[ast.AugAssign]:
    """Return what adds to a total of the same function, before it is divided."""
    return [
        each
        for each in module.all(ast.AugAssign)
        if dotted(each.target) == name
        and isinstance(each.op, ast.Add)
        and module.scope(each) is module.scope(node)
    ]


def _source_of(module: SourceModule, added: ast.AugAssign) -> str | None:
    """Return the loader that the loop around a sum goes through, be it by enumerate or a progress bar."""
    loop = module.loop(added)
    source = _gone_through(module, loop)
    return dotted(source) if source is not None and _is_loader(module, source) else None


def _gone_through(module: SourceModule, loop: ast.AST | None) -> ast.expr | None:
    """Return what a loop goes through, be it by enumerate or a progress bar."""
    source = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(source, ast.Call) and source.args and module.functions.target(source) is None:
        if module.kind(source) == "loader":
            break
        source = source.args[0]
    return source

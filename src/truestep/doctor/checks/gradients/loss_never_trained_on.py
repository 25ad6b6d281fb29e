# SPDX-License-Identifier: Apache-2.0
"""A loss that is computed and logged, and trains nothing."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source import kinds
from truestep.doctor.source.behind import is_without_grad
from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument

_LOSS = re.compile(r"(^|_)loss(es)?(_|\d|$)", re.IGNORECASE)
_FEWEST = 2  # losses in a sum that show how they are named
_NUMBERS = operations(numbers="kept", graph="cut left")
_SHOWS = ("print", "float", "log", "info", "update", "format", "add_scalar", "set_postfix")


class LossNeverTrainedOn(SourceCheck):
    """Of two losses of one step the second is only logged: the sum that goes backward leaves it out.

    Why: what it is to train, a second head or task, gets no gradient; its curve looks alive as long as they share layers.

    Bad:
        head = nn.Linear(3, 3)
        for x, y in loader:
            out = net(x)
            second = head(out)
            first_loss = F.cross_entropy(out, y)
            second_loss = F.cross_entropy(second, y)  # here
            opt.zero_grad()
            first_loss.backward()
            opt.step()
            print(first_loss.item(), second_loss.item())

    Good:
        head = nn.Linear(3, 3)
        for x, y in loader:
            out = net(x)
            second = head(out)
            first_loss = F.cross_entropy(out, y)
            second_loss = F.cross_entropy(second, y)
            opt.zero_grad()
            (first_loss + second_loss).backward()
            opt.step()
            print(first_loss.item(), second_loss.item())

    Fix: add it to what goes backward; or compute it under torch.no_grad().
    """

    code = "GRAD057"
    words = ("loss",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss all of whose uses show it, of a value that nothing else uses, beside one that goes backward."""
        named = [(call, name) for call in losses_of(module) if (name := _name_of(module, call)) is not None]
        for call, name in named:
            others = [
                each for each, _ in named if each is not call and module.scope(each) is module.scope(call)
            ]
            if (
                not others
                or _is_measured(module, call)
                or not _LOSS.search(name.rsplit(".", 1)[-1])
                or is_without_grad(module, call)
            ):
                continue
            if _is_only_shown(module, call, name) and _is_last_use(module, argument(call, 0, "input")):
                if any(goes_backward(module, each) for each in others) and not goes_backward(module, call):
                    yield At(call, f"{name!r} is only logged: nothing goes backward through it.", RISK)
        yield from _left_out(module)


def _left_out(module: SourceModule) -> Iterator[At]:
    """Report a sum of several losses that go backward, and one more beside them that is only logged, or not even that."""
    for node in module.all(ast.Assign):
        terms = _terms_named(node.value)
        if len(terms) < _FEWEST or not _of_one_form(terms) or not goes_backward(module, node.value):
            continue
        block = getattr(module.parents[node], "body", [])
        for before in block[: block.index(node)] if node in block else []:
            name = before.targets[0] if isinstance(before, ast.Assign) and len(before.targets) == 1 else None
            if not isinstance(name, ast.Name) or name.id in terms or not _of_one_form([*terms, name.id]):
                continue
            if not _is_computed(module, before.value) or _reads_but_shows(module, name):
                continue
            if not is_without_grad(module, before.value) and not goes_backward(module, before.value):
                yield At(node, f"{name.id!r} is computed beside these and is not in the sum.", RISK)


def _terms_named(value: ast.expr) -> list[str]:
    """Return the names whose weighted sum a value is."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        return [*_terms_named(value.left), *_terms_named(value.right)]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div):
        sides = [each for each in (value.left, value.right) if isinstance(each, ast.Name)]
        return [each.id for each in sides if _LOSS.search(each.id)][:1]
    return [value.id] if isinstance(value, ast.Name) and _LOSS.search(value.id) else []


def _of_one_form(names: list[str]) -> bool:
    """Tell names that all begin or all end with the word: loss_rec and loss_adv."""
    return all(each.startswith("loss_") for each in names) or all(each.endswith("_loss") for each in names)


def _is_computed(module: SourceModule, value: ast.expr) -> bool:
    """Tell a tensor that is computed here from its number, a setting, or what is cut from its graph."""
    called = value.func if isinstance(value, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in operations(graph="cut left"):
        return False
    inner = [each for each in walk(value) if isinstance(each, ast.Call)]
    return isinstance(value, ast.BinOp | ast.Call) and bool(inner) and module.kind(value) is None


def _reads_but_shows(module: SourceModule, name: ast.Name) -> bool:
    """Tell whether anything reads a loss as more than a number to be shown."""
    reads = [each for each in module.reads(name.id) if module.scope(each) is module.scope(name)]
    return not all(_shows(module, each) for each in reads)


def _is_measured(module: SourceModule, call: ast.Call) -> bool:
    """Tell a loss behind `net.eval()` in one block: nothing is trained there."""
    statement = module.statement(call)
    block = getattr(module.parents[statement], "body", [])
    before = block[: block.index(statement)] if statement in block else []
    modes = [
        own_name(each.value.func)
        for each in before
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
    ]
    set_last = [each for each in modes if each in kinds.MODES]
    return bool(set_last) and not kinds.MODES[set_last[-1] or ""]


def _name_of(module: SourceModule, call: ast.Call) -> str | None:
    parent = module.parents[call]
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return dotted(targets[0]) if len(targets) == 1 else None


def _is_only_shown(module: SourceModule, call: ast.Call, name: str) -> bool:
    """Tell whether all that reads the name takes its number."""
    reads = [each for each in module.reads(name) if module.scope(each) is module.scope(call)]
    return bool(reads) and all(_shows(module, each) for each in reads)


def _shows(module: SourceModule, read: ast.expr) -> bool:
    parent = module.parents[read]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _NUMBERS
    if isinstance(parent, ast.FormattedValue):
        return True
    called = parent.func if isinstance(parent, ast.Call) else None
    last = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return last in _SHOWS


def _is_last_use(module: SourceModule, given: ast.expr | None) -> bool:
    """Tell whether the prediction goes into this loss alone."""
    if not isinstance(given, ast.Name):
        return False
    reads = [each for each in module.reads(given.id) if module.scope(each) is module.scope(given)]
    return len(reads) == 1

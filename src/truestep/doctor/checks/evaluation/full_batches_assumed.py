# SPDX-License-Identifier: Apache-2.0
"""Every batch taken for a full one: examples counted as batches times batch size."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.batches import LOADER, num_rows, tensors_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part, method_of
from truestep.doctor.source.numbers import whole_number
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument, literal, seen_through, value_origins

_SAMPLERS = ((3, "sampler"), (4, "batch_sampler"))


class FullBatchesAssumed(SourceCheck):
    """A total is divided by the number of batches times the batch size.

    Why: the last batch is mostly smaller: an accuracy comes out too low.

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

# SPDX-License-Identifier: Apache-2.0
"""One of several metrics that is not detached."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, stored_in, walk
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.uses import names_read

_CUTS = operations(numbers="kept itself", graph="cut left")
_KEEPS = operations(numbers="kept home moved rounded averaged", graph="kept")
_METRICS = re.compile(r"metric|stats|logs?$|log_|info|record", re.IGNORECASE)
_FEWEST = 2  # others that are detached


class MetricKeptWithGraph(SourceCheck):
    """Of the values that are kept beside a loss one has its graph, while others are detached.

    Why: as long as it is kept, so are all activations of its batch: memory grows with every batch.

    Bad:
        def compute(metrics):
            logits = net(x)
            nll = F.cross_entropy(logits, y)
            penalty = logits.pow(2).mean()
            loss = nll + 0.1 * penalty
            metrics["logits"] = logits.detach().mean().cpu()
            metrics["penalty"] = penalty.detach().cpu()
            metrics["nll"] = nll.cpu().mean()  # here
            return loss, metrics

    Good:
        def compute(metrics):
            logits = net(x)
            nll = F.cross_entropy(logits, y)
            penalty = logits.pow(2).mean()
            loss = nll + 0.1 * penalty
            metrics["logits"] = logits.detach().mean().cpu()
            metrics["penalty"] = penalty.detach().cpu()
            metrics["nll"] = nll.detach().cpu().mean()
            return loss, metrics

    Fix: .detach(), or .item().
    """

    code = "MEM006"
    words = ("detach",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a term of the loss that is put into a dict of metrics as it is, where others there are detached."""
        for function in module.functions:
            items: dict[str, list[tuple[ast.Assign, ast.expr]]] = {}
            for node in module.directly_in(function, ast.Assign):
                target = node.targets[0]
                place = dotted(target.value) if isinstance(target, ast.Subscript) else None
                if place is not None and _METRICS.search(place):
                    items.setdefault(place, []).append((node, node.value))
            for kept in items.values():
                if sum(_is_cut(value) for _, value in kept) >= _FEWEST:
                    terms = _terms_of_loss(module, function)
                    for node, value in kept:
                        term = next(
                            (each for each in _names_on_the_way(module, value) if each in terms), None
                        )
                        if term is not None:
                            text = f"{term!r} is kept with its graph, unlike the values beside it."
                            yield At(node, text, RISK)


def _is_cut(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in _CUTS for each in walk(node))


def _names_on_the_way(module: SourceModule, node: ast.expr | None) -> Iterator[str]:
    """Yield the names of a value that is only moved or averaged, back to where it was computed."""
    for _ in range(MAX_DEPTH):
        while (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS
        ):
            node = node.func.value
        if not isinstance(node, ast.Name):
            return
        yield node.id
        values = module.definitions(node)
        node = values[0] if len(values) == 1 else None


def _terms_of_loss(module: SourceModule, function: ast.AST) -> set[str]:
    """Return the names that are added up to what is called the loss."""
    found: set[str] = set()
    for node in module.stores:
        target = stored_in(node)
        if (
            module.scope(node) is function
            and isinstance(target, ast.Name)
            and target.id in ("loss", "total_loss")
        ):
            adds = any(isinstance(each, ast.Add) for each in walk(node))
            found |= names_read(node.value) if adds and not _is_cut(node.value) else frozenset()
    return found

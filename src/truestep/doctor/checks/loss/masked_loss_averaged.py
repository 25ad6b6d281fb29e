# SPDX-License-Identifier: Apache-2.0
"""A mask, and then a mean over all."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.losses import loss_calls, loss_layer_constructor, loss_reduction
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, method_of, walk
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.value_origins import (
    argument,
    constant,
    literal,
    resolve_expression,
    value_origins,
)

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ORDERING = operations(numbers="ordered")
_WEIGHING = operations(numbers="computed share log-share activated")
_MASK = re.compile(r"(^|_)masks?(_|$)|_mask", re.IGNORECASE)


class MaskedLossAveraged(SourceCheck):
    """A loss for each entry is multiplied with a mask, or ignores targets, and is averaged over all entries, those among them.

    Why: the more is masked, the smaller the loss and its gradient: batches with much padding count less.

    Bad:
        mask = y > 0
        losses = F.cross_entropy(net(x), y, reduction="none")
        loss = (losses * mask).mean()  # here

    Good:
        mask = y > 0
        losses = F.cross_entropy(net(x), y, reduction="none")
        loss = (losses * mask).sum() / mask.sum()

    Fix: (losses * mask).sum() / mask.sum(), or losses[mask].mean().

    Evidence: 186 repositories, beds A, B, C, F, G, P, R, W: 7 true, 6 debatable, 2 false.
    """

    code = "LOSS036"
    words = ("mask", "ignore_index")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the mean of what is multiplied with a mask, where nothing divides by the size of that mask."""
        ignoring = [
            each
            for each in loss_calls(module, "cross_entropy", "nll_loss")
            if _has_ignored_targets(module, each)
        ]
        for call in module.method_calls("mean"):
            if not isinstance(call.func, ast.Attribute):
                continue
            if (
                ignoring
                and not isinstance(module.parents[call], ast.BinOp)
                and not _is_indexed(module, call.func.value)
            ):
                made = [each for each in value_origins(module, call.func.value) if each in ignoring]
                if made:
                    yield At(call, "The mean counts the targets that ignore_index takes out.", RISK)
            mask = _mask_in_product(module, call.func.value)
            if (
                mask is not None
                and not _is_confidence_mask(module, call, mask)
                and _is_named_loss(module, call)
                and not _is_mask_size_used(module, call, mask)
            ):
                severity = ADVICE if _is_of_what_occurs(module, call, mask) else RISK
                yield At(call, f"The mean counts what {mask!r} takes out.", severity)


def _is_of_what_occurs(module: SourceModule, call: ast.Call, mask: str) -> bool:
    """Tell `y.sum((0, 2)) > 0`: a class without an example may count as 0 on purpose, as in a Jaccard loss."""
    scope = module.scope(call)
    made = [
        each
        for name in module.reads(mask)
        if module.scope(name) is scope
        for each in module.definitions(name)
    ]
    tests = [
        part for each in made if each is not None for part in walk(each) if isinstance(part, ast.Compare)
    ]
    return any(isinstance(each.left, ast.Call) and method_of(each.left) == "sum" for each in tests)


def _has_ignored_targets(module: SourceModule, loss: ast.Call) -> bool:
    """Tell a loss for each entry that is told which targets to leave out: 0 stands there."""
    told = argument(loss_layer_constructor(module, loss) or loss, None, "ignore_index")
    return told is not None and loss_reduction(module, loss) == "none"


def _is_indexed(module: SourceModule, value: ast.expr) -> bool:
    """Tell `losses[kept]`, written there or under a name."""
    parts = [*walk(value), *walk(resolve_expression(module, value) or value)]
    return any(isinstance(each, ast.Subscript) for each in parts)


def _is_confidence_mask(module: SourceModule, call: ast.Call, mask: str) -> bool:
    """Tell a mask of what is sure enough from one of padding: what is left out then counts as 0 on purpose."""
    scope = module.scope(call)
    for name in (each for each in walk(scope) if isinstance(each, (ast.Name, ast.Attribute))):
        if dotted_name(name) != mask or not isinstance(name.ctx, ast.Load):
            continue
        made = [part for value in module.definitions(name) if value is not None for part in walk(value)]
        orders = [each for each in made if isinstance(each, ast.Compare) and isinstance(each.ops[0], _ORDERS)]
        asked = [part for each in orders for part in (each.left, *each.comparators)]
        if any(isinstance(each, ast.Call) and own_name(each.func) in _WEIGHING for each in made):
            return True  # a weight for each entry, by the name of a mask
        methods = [each.func for each in made if isinstance(each, ast.Call)]
        ordering = [each for each in methods if isinstance(each, ast.Attribute) and each.attr in _ORDERING]
        if ordering or (orders and not any(constant(each) == 0 for each in asked)):
            return True
    return False


def _mask_in_product(module: SourceModule, node: ast.expr) -> str | None:
    """Return the mask that an expression, or the name's last change, is multiplied with."""
    if isinstance(node, ast.Name):
        bindings = module.resolver.reaching(node)
        values = [each for each in bindings if each.value is not None and each.how in ("assign", "augmented")]
        found = {
            _mask_name(each.value)
            if each.how == "augmented" and _is_in_place_multiplication(each.node)
            else _mask_factor(each.value)
            for each in values
            if each.value is not None and (each.how == "assign" or _is_in_place_multiplication(each.node))
        }
        return next((each for each in found if each is not None), None)
    return _mask_factor(node)


def _is_in_place_multiplication(node: ast.AST) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult)


def _mask_factor(node: ast.expr) -> str | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _mask_name(node.right) or _mask_name(node.left)
    return None


def _mask_name(node: ast.expr) -> str | None:
    """Return the name of a mask, through changes of its type or shape."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    while isinstance(node, ast.Subscript):
        node = node.value
    name = own_name(node)
    return dotted_name(node) if name is not None and _MASK.search(name) else None


def _is_named_loss(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether what is averaged is called a loss, by itself or by what it becomes."""
    statement = module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AugAssign) else targets
    words = [own_name(each) or "" for each in targets]
    assert isinstance(call.func, ast.Attribute)
    names = [each for each in walk(call.func.value) if isinstance(each, ast.Name)]
    words += [own_name(each) or "" for each in walk(call.func.value)]
    return any("loss" in each.lower() or "cross_entropy" in each for each in words) or any(
        _is_unreduced_loss(module, each) for each in names
    )


def _is_unreduced_loss(module: SourceModule, name: ast.Name) -> bool:
    """Tell what a loss of torch's gives for each entry: `F.cross_entropy(out, y, reduction="none")`."""
    made = [each for each in module.definitions(name) if isinstance(each, ast.Call)]
    return any(literal(module, argument(each, None, "reduction")) == "none" for each in made)


def _is_mask_size_used(module: SourceModule, call: ast.Call, mask: str) -> bool:
    """Tell whether the function asks for the size of the mask, or a mean of it."""
    scope = module.scope(call)
    for each in [
        *module.method_calls("sum", "mean", "count_nonzero"),
        *module.calls("torch.sum", "torch.mean"),
    ]:
        if module.scope(each) is scope and each is not call:
            texts = [each.func.value if isinstance(each.func, ast.Attribute) else each, *each.args]
            if any(mask in ast.unparse(text) and "loss" not in ast.unparse(text).lower() for text in texts):
                return True
    return False

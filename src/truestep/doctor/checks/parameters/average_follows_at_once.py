# SPDX-License-Identifier: Apache-2.0
"""A moving average whose two weights are exchanged."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import argument, constant, literal, seen_through

_PARAMETERS = ("parameters", "state_dict", "named_parameters", "values", "buffers")


class AverageFollowsAtOnce(SourceCheck):
    """A moving average of weights keeps less of itself than it takes of the new weights.

    Why: with 0.999 on the new weights the average is a copy of them: nothing is smoothed, a target moves with the net.

    Bad:
        momentum, slow = 0.99, copy.deepcopy(net)
        with torch.no_grad():
            for old, new in zip(slow.parameters(), net.parameters()):
                old.data = old.data * (1 - momentum) + new.data * momentum  # here

    Good:
        momentum, slow = 0.99, copy.deepcopy(net)
        with torch.no_grad():
            for old, new in zip(slow.parameters(), net.parameters()):
                old.data = old.data * momentum + new.data * (1 - momentum)

    Fix: exchange the two weights.
    """

    code = "PARAM043"
    words = ("zip(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an average over the parameters of two models, whose own share is known to be under a half."""
        for loop in module.all(ast.For):
            if not _goes_through_weights(loop):
                continue
            moves: list[ast.Assign | ast.Call] = [*module.inside(loop, ast.Assign)]
            for node in [*moves, *module.inside(loop, ast.Call)]:
                kept = _own_share(module, node)
                if kept is not None and kept < 0.5:
                    yield At(
                        node,
                        f"The average keeps {kept:.4g} of itself, and takes the rest from the new weights.",
                        RISK,
                    )


def _goes_through_weights(loop: ast.For) -> bool:
    call = loop.iter
    parts = call.args if isinstance(call, ast.Call) and dotted(call.func) == "zip" else []
    names = [
        each.func.attr
        for each in parts
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
    ]
    return len(names) == len(parts) == 2 and all(each in _PARAMETERS for each in names)


def _own_share(module: SourceModule, node: ast.Assign | ast.Call) -> float | None:
    """Return the weight of the old value in what replaces it."""
    if isinstance(node, ast.Assign):
        return _share_in(module, node.value, _bare(node.targets[0]))
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    own = _bare(node.func.value) if isinstance(node.func, ast.Attribute) else None
    if method == "copy_" and node.args:
        return _share_in(module, node.args[0], own)
    if method == "lerp_":
        taken = _number(module, argument(node, 1, "weight"))
        return 1 - taken if taken is not None else None
    if method in ("add_", "mul_") and isinstance(node.func, ast.Attribute):
        inner = node.func.value
        if method == "add_" and isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "mul_":
            return _number(module, inner.args[0]) if inner.args else None
    return None


def _share_in(module: SourceModule, value: ast.expr, own: str | None) -> float | None:
    """Return w of `w * own + (1 - w) * other`."""
    if own is None or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return None
    for side in (value.left, value.right):
        if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult):
            for weight, tensor in ((side.left, side.right), (side.right, side.left)):
                if _bare(tensor) == own:
                    return _number(module, weight)
    return None


def _bare(node: ast.expr) -> str | None:
    """Return p for `p` and `p.data`."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return dotted(node)


def _number(module: SourceModule, node: ast.expr | None, depth: int = 0) -> float | None:
    """Return a number that is written, given, or a parameter's default."""
    value = literal(module, node)
    if isinstance(value, int | float) or node is None or depth > MAX_DEPTH:
        return float(value) if isinstance(value, int | float) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        left, right = _number(module, node.left, depth + 1), _number(module, node.right, depth + 1)
        return left - right if left is not None and right is not None else None
    made = seen_through(module, node)
    if made is not node and made is not None:
        return _number(module, made, depth + 1)
    source = _attribute_source(module, node)
    return _default(module, source) if isinstance(source, ast.Name) else None


def _attribute_source(module: SourceModule, node: ast.expr) -> ast.expr | None:
    """Return what an attribute is given in its class, if that is one thing."""
    owner = module.class_of(node.value) if isinstance(node, ast.Attribute) else None
    if owner is None or not isinstance(node, ast.Attribute):
        return node
    bindings = module.resolver.attribute_bindings(owner, node.attr)
    return bindings[0].value if len(bindings) == 1 else None


def _default(module: SourceModule, name: ast.Name) -> float | None:
    for binding in module.bindings(name):
        arguments = binding.parameter_of.args if binding.parameter_of is not None else None
        if arguments is not None:
            ordered = [*arguments.posonlyargs, *arguments.args]
            pairs = [*zip(reversed(ordered), reversed(arguments.defaults), strict=False)]
            given = [constant(value) for each, value in pairs if each.arg == name.id]
            return float(given[0]) if given and isinstance(given[0], int | float) else None
    return None

# SPDX-License-Identifier: Apache-2.0
"""Named tensors, gone since 2.13."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule

MAKERS = operations(numbers="drawn filled copied")
METHODS = ("align_to", "align_as", "refine_names", "rename_")


class NamedTensors(SourceCheck):
    """Named tensors are used.

    Why: removed in torch 2.13: names= raises TypeError, the methods AttributeError.

    Bad:
        img = torch.randn(8, 3, 32, 32, names=["N", "C", "H", "W"])  # here

    Good:
        img = torch.randn(8, 3, 32, 32)  # N, C, H, W

    Fix: integer dimensions with a comment on the shape, permute, or einops.

    Evidence: 186 repositories: 7 true, 0 false.
    """

    code = "OLD005"
    words = ("names=", "align_to", "align_as", "refine_names", "rename_", "sum(", "select(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report names= of the makers, the methods, and sum or select by a name."""
        named = False
        for call in module.calls(*(f"torch.{name}" for name in sorted(MAKERS))):
            if any(word.arg == "names" for word in call.keywords):
                named = True
                yield At(call, "names= was removed with named tensors: TypeError.")
        for call in _tensor_method_calls(module, *METHODS):
            yield At(call, f"{ast.unparse(call.func).rsplit('.', 1)[-1]} was removed with named tensors.")
        for call in _tensor_method_calls(module, "sum", "select", "mean") if named else ():
            if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
                yield At(call, "A dimension by its name was removed with named tensors: TypeError.")


def _tensor_method_calls(module: SourceModule, *methods: str) -> Iterator[ast.Call]:
    """Yield the calls of methods on what is not Truestep's Named, which has them too."""
    for call in module.method_calls(*methods):
        if isinstance(call.func, ast.Attribute) and not _is_truestep_named_value(module, call.func.value):
            yield call


def _is_truestep_named_value(module: SourceModule, node: ast.expr) -> bool:
    """Follow an expression back to `truestep.named(...)`; `.tensor` and `.to_tensor(...)` are plain tensors."""
    sources = walk_each_once([node], lambda each: _sources_with_same_names(module, each))
    return any(isinstance(each, ast.Call) and _is_truestep_named_call(module, each) for each in sources)


def _is_truestep_named_call(module: SourceModule, call: ast.Call) -> bool:
    return module.qualify(call.func) == "truestep.named"


def _sources_with_same_names(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    """Return what a value is computed from that is named where this is."""
    match node:
        case ast.Call() if _is_truestep_named_call(module, node):
            return []
        case ast.Call(func=ast.Attribute(value=before, attr=attribute)) if attribute != "to_tensor":
            return [before]
        case ast.Subscript(value=before) | ast.UnaryOp(operand=before):
            return [before]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Name():
            return [each for each in module.definitions(node) if each is not None]
    return []

# SPDX-License-Identifier: Apache-2.0
"""Names that torch has better ones for: torch.cuda.amp, apex, weight_norm, a default tensor type, size_average."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import (
    Edits,
    SourceRewriteError,
    local_name_of,
    replace_node,
    with_first,
)
from truestep.doctor.source.value_origins import constant

_MODERN = {
    "torch.cuda.amp.autocast": 'torch.autocast("cuda")',
    "torch.cuda.amp.GradScaler": 'torch.amp.GradScaler("cuda")',
    "torch.cuda.amp.custom_fwd": 'torch.amp.custom_fwd(device_type="cuda")',
    "torch.cuda.amp.custom_bwd": 'torch.amp.custom_bwd(device_type="cuda")',
    "torch.cpu.amp.autocast": 'torch.autocast("cpu")',
}
_TYPES = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16"}
_NORM = "torch.nn.utils.weight_norm"
_CALLS = {
    "torch.set_default_tensor_type": "set_default_tensor_type is deprecated.",
    _NORM: "This weight_norm is deprecated: use parametrizations.weight_norm.",
    "torch.nn.utils.remove_weight_norm": "This weight_norm is deprecated: use parametrizations.weight_norm.",
}
_REDUCTION = ("size_average", "reduce")


class DeprecatedCall(SourceCheck):
    """torch.cuda.amp, apex, nn.utils.weight_norm, set_default_tensor_type, or size_average of a loss is used.

    Why: deprecated, and one day gone; torch warns. apex is unmaintained; deepcopy of a module with the old weight_norm
    raises; with a default type of CUDA, data loading on the CPU breaks.

    Bad:
        scaler = torch.cuda.amp.GradScaler()  # here

    Good:
        scaler = torch.amp.GradScaler("cuda")

    Fix: torch.autocast("cuda") and torch.amp.GradScaler("cuda"); torch.optim.AdamW(..., fused=True);
    torch.nn.utils.parametrizations.weight_norm (it loads old checkpoints); torch.set_default_dtype; reduction="sum".

    Evidence: the plain form in snippets 4, 16, 25 and 48 of the notes; 186 repositories: said 451 times, not judged.
    """

    code = "OLD001"
    rewrites = "safe"
    words = (
        "autocast", "GradScaler", "custom_fwd", "custom_bwd", "apex", "set_default_tensor_type", "weight_norm", *_REDUCTION,
    )  # fmt: skip

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report calls and decorators of the old names, and the first of apex."""
        nodes: list[ast.Name | ast.Attribute] = [*module.all(ast.Name), *module.all(ast.Attribute)]
        for node in nodes:
            whole = isinstance(node.ctx, ast.Load) and not isinstance(module.parents[node], ast.Attribute)
            if whole and (name := module.qualify(node)) in _MODERN:
                yield At(node, f"{name} is deprecated: write {_MODERN[name]}.", ADVICE)
        for name, text in _CALLS.items():
            yield from (At(call, text, ADVICE) for call in module.calls(name))
        layers = [call for name, call in module.calls_matching("torch.nn.") if name.endswith("Loss")]
        for call in [*layers, *loss_calls(module)]:
            if any(word.arg in _REDUCTION for word in call.keywords):
                yield At(call, "size_average and reduce are deprecated: reduction says it.", ADVICE)
        yield from list(_apex_uses(module))[:1]

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Write the name of today."""
        name = module.qualify(node.func) if isinstance(node, ast.Call) else module.qualify(node)
        if name in _MODERN:
            return _modern_call_edits(module, node, _MODERN[name])
        if name == _NORM:
            utils = local_name_of(module, "torch.nn.utils")
            return [replace_node(module, node.func, f"{utils}.parametrizations.weight_norm")]
        if name == "torch.set_default_tensor_type":
            kind = (module.qualify(node.args[0]) or "").removeprefix("torch.") if node.args else ""
            if kind in _TYPES:
                torch = local_name_of(module, "torch")
                return [replace_node(module, node, f"{torch}.set_default_dtype({torch}.{_TYPES[kind]})")]
        old = [word for word in getattr(node, "keywords", ()) if word.arg in _REDUCTION]
        value = constant(old[0].value) if len(old) == 1 else None
        if not isinstance(value, bool):
            raise SourceRewriteError
        new = "mean" if value else "sum" if old[0].arg == "size_average" else "none"
        return [replace_node(module, old[0], f'reduction="{new}"')]


def _apex_uses(module: SourceModule) -> Iterator[At]:
    """Yield its imports, and amp.initialize or its optimizers where the import is out of sight."""
    imports: list[ast.Import | ast.ImportFrom] = [*module.all(ast.Import), *module.all(ast.ImportFrom)]
    for node in imports:
        whence = (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        )
        if any(name.split(".")[0] == "apex" for name in whence):
            text = "apex is deprecated: torch has mixed precision and fused optimizers of its own."
            yield At(node, text, ADVICE)
    for name, call in module.calls_matching("apex."):
        yield At(call, f"{name} is deprecated: torch has it.", ADVICE)


def _modern_call_edits(module: SourceModule, node: Any, modern: str) -> Edits:
    torch, call = local_name_of(module, "torch"), module.parents[node]
    if not (isinstance(call, ast.Call) and call.func is node):
        return [replace_node(module, node, modern.replace("torch", torch, 1))]
    function, _, given = modern.rstrip(")").replace("torch", torch, 1).partition("(")
    if call.args and "GradScaler" not in modern:  # the old autocast's first argument was another one
        raise SourceRewriteError
    return [replace_node(module, node, function), with_first(module, call, given)]

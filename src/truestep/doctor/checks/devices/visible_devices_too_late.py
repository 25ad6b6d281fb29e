# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES after CUDA was asked."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk

VARIABLE = "CUDA_VISIBLE_DEVICES"

# of torch.cuda: what does nothing, or is put off, until something else has asked for the devices (torch 2.13)
_PUT_OFF = frozenset((
    "empty_cache", "is_initialized", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "memory_stats", "memory_stats_as_nested_dict", "memory_allocated", "max_memory_allocated",
    "memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached",
))  # fmt: skip


class VisibleDevicesTooLate(SourceCheck):
    """CUDA_VISIBLE_DEVICES is set after torch has looked at the devices.

    Why: CUDA reads it once; later changes have no effect, and the run uses the wrong GPU.

    Bad:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # here

    Good:
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        device = "cuda" if torch.cuda.is_available() else "cpu"

    Fix: set it in the shell, or before torch is imported.

    Evidence: the plain form of row 92 of docs/mistakes.md; corpus, beds G, I, T: 4 true, 4 debatable, 4 false.
    """

    code = "DEV001"
    words = (VARIABLE,)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it after a torch.cuda call that runs before it, in the body of the file."""
        calls = [
            call
            for name, call in module.calls_matching("torch.cuda.")
            if module.scope(call) is module.tree and name.rpartition(".")[2] not in _PUT_OFF
        ]
        calls += [call for call in module.method_calls("cuda") if module.scope(call) is module.tree]
        for node in module.all(ast.Assign):
            key = next(
                (each for target in node.targets for each in walk(target) if isinstance(each, ast.Constant)),
                None,
            )
            if key is None or key.value != VARIABLE or module.scope(node) is not module.tree:
                continue
            earlier = [
                call for call in calls if call.lineno < node.lineno and not _is_chosen(module, call, node)
            ]
            if earlier:
                yield At(
                    node,
                    f"No effect: line {min(call.lineno for call in earlier)} has asked for the devices.",
                )


def _is_chosen(module: SourceModule, call: ast.Call, later: ast.AST) -> bool:
    """Tell whether a call stands in a branch, be it of an expression, that may not be taken before the other place."""
    above = set(module.ancestors(later))
    inside: ast.AST = call
    for each in module.ancestors(call):
        match each:
            case ast.If() if each in above:
                if _is_in_else(module, each, call) != _is_in_else(module, each, later):
                    return True
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if inside is not test:
                return True
            case ast.BoolOp(values=[first, *_]) if inside is not first:
                return True
        inside = each
    return False


def _is_in_else(module: SourceModule, choice: ast.If, node: ast.AST) -> bool:
    above = {node, *module.ancestors(node)}
    return any(each in above for each in choice.orelse)

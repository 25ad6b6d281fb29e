# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES after CUDA was asked."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.value_origins import argument, literal

VARIABLE = "CUDA_VISIBLE_DEVICES"

# what does nothing, or is put off, until something else has asked for the devices (torch 2.13)
_PUT_OFF = functions("leaves CUDA alone without it")


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

    Evidence: the plain form of row 92 of docs/mistakes.md; corpus, beds G, I, T, X: 4 true, 4 debatable, 5
    false.
    """

    code = "DEV001"
    words = (VARIABLE,)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it after a torch.cuda call that runs before it, in the body of the file."""
        calls = [
            call
            for name, call in module.calls_matching("torch.cuda.")
            if module.scope(call) is module.tree and name not in _PUT_OFF
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
                call
                for call in calls
                if call.lineno < node.lineno and not _is_in_untaken_branch_before(module, call, node)
            ]
            if not earlier or _is_fresh_notebook_start(module, node, earlier):
                continue
            text = f"No effect: line {min(call.lineno for call in earlier)} has asked for the devices."
            if not _is_leading_device_list(module, node.value):
                yield At(node, text)
            elif _uses_all_visible_devices(module):
                yield At(node, f"{text} All devices are used.", RISK)


def _is_leading_device_list(module: SourceModule, value: ast.expr) -> bool:
    """Tell "0" and "0,1", under which each device keeps its number: what asks for one gets the same without them."""
    written = literal(module, value)
    numbers = written.replace(" ", "").split(",") if isinstance(written, str) else []
    return bool(numbers) and numbers == [str(each) for each in range(len(numbers))]


def _uses_all_visible_devices(module: SourceModule) -> bool:
    """Tell what goes by how many devices there are."""
    parallel = list(module.calls("torch.nn.parallel.DataParallel"))
    counted = list(module.calls("torch.cuda.device_count"))
    return bool(counted) or any(argument(each, 1, "device_ids") is None for each in parallel)


def _is_fresh_notebook_start(module: SourceModule, node: ast.stmt, earlier: list[ast.Call]) -> bool:
    """Tell a part of a notebook that imports torch once more, in front of this: it is run by itself, in a fresh kernel."""
    if not module.path.endswith(".ipynb"):
        return False
    lines = [each.lineno for each in module.all(ast.Import) if any(one.name == "torch" for one in each.names)]
    return any(max(each.lineno for each in earlier) < line for line in lines if line < node.lineno)


def _is_in_untaken_branch_before(module: SourceModule, call: ast.Call, later: ast.AST) -> bool:
    """Tell whether a call stands in a branch, be it of an expression, that may not be taken before the other place."""
    above = set(module.ancestors(later))
    inside: ast.AST = call
    for each in module.ancestors(call):
        match each:
            case ast.If() if each in above:
                if _is_in_else_branch(module, each, call) != _is_in_else_branch(module, each, later):
                    return True
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if inside is not test:
                return True
            case ast.BoolOp(values=[first, *_]) if inside is not first:
                return True
        inside = each
    return False


def _is_in_else_branch(module: SourceModule, choice: ast.If, node: ast.AST) -> bool:
    above = {node, *module.ancestors(node)}
    return any(each in above for each in choice.orelse)

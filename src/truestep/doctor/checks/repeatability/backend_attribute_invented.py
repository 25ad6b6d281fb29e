# SPDX-License-Identifier: Apache-2.0
"""A switch that does not exist."""

import ast
import difflib
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, rename_attribute
from truestep.doctor.source.value_origins import literal

# what may be assigned, in torch 2.11 to 2.13 (a test compares it with the torch at hand)
SWITCHES = {
    "torch.backends.cudnn": {
        "enabled", "deterministic", "benchmark", "benchmark_limit", "allow_tf32", "fp32_precision",
    },
    "torch.backends.cuda.matmul": {
        "allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation", "fp32_precision",
    },
    "torch.backends.mkldnn": {"enabled", "deterministic", "allow_tf32", "fp32_precision"},
    "torch.backends.opt_einsum": {"enabled", "strategy"},
    "torch.backends.cudnn.conv": {"fp32_precision"},
    "torch.backends.cudnn.rnn": {"fp32_precision"},
    "torch.backends.nnpack": {"enabled"},
}  # fmt: skip

_OFF_AT_START = ("benchmark", "deterministic")


class BackendAttributeInvented(SourceCheck):
    """Something is assigned to a torch.backends attribute that does not exist.

    Why: Python makes a new attribute and torch never looks at it: the switch stays as it was.

    Bad:
        torch.backends.cudnn.enable = True  # here

    Good:
        torch.backends.cudnn.enabled = True

    Fix: the switches of cudnn are enabled, deterministic, benchmark, benchmark_limit and allow_tf32.

    Evidence: THUDM/CogDL 281f4742 cogdl/utils/utils.py:43; THUDM/CogDL 281f4742
    examples/graphmae/graphmae/utils.py:36; corpus, 186 repositories, beds D, I, K, N, P, R, U, V, Y: 26 true, 2
    debatable, 0 false.
    """

    code = "SEED002"
    words = ("backends",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an assignment to a name that is not among the switches of its backend."""
        for node in module.all(ast.Attribute):
            if not isinstance(node.ctx, ast.Store):
                continue
            home = module.qualify(node.value)
            known = SWITCHES.get(home or "")
            if known is not None and node.attr not in known:
                close = difflib.get_close_matches(node.attr, known, n=1, cutoff=0.5)
                hint = f" Is {close[0]} meant?" if close else ""
                text = f"{home} has no switch {node.attr!r}: the assignment has no effect.{hint}"
                is_so = bool(close) and _is_switch_off_by_default(module, node, close[0])
                yield At(node, text, ADVICE if is_so else BUG)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take the switch that is meant."""
        known = SWITCHES[module.qualify(node.value) or ""]
        close = difflib.get_close_matches(node.attr, known, n=1, cutoff=0.5)
        return [rename_attribute(module, node, close[0])] if close else []


def _is_switch_off_by_default(module: SourceModule, node: ast.Attribute, meant: str) -> bool:
    """Tell a switch that is to be off, as it is from the start, where the program sets it nowhere."""
    statement = module.statement(node)
    is_off = isinstance(statement, ast.Assign) and literal(module, statement.value) is False
    set_elsewhere = any(
        isinstance(each.ctx, ast.Store) and each.attr == meant
        for file in module.program.linked
        for each in file.all(ast.Attribute)
    )
    return is_off and meant in _OFF_AT_START and not set_elsewhere

# SPDX-License-Identifier: Apache-2.0
"""strict=False whose result nobody reads."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import argument, literal


class KeysDroppedSilently(SourceCheck):
    """load_state_dict(strict=False) is called and its result thrown away.

    Why: with other names (a `module.` prefix) nothing at all is loaded, and nothing says so.

    Bad:
        net.load_state_dict(torch.load("w.pt", map_location="cpu"), strict=False)  # here

    Good:
        keys = net.load_state_dict(torch.load("w.pt", map_location="cpu"), strict=False)
        assert set(keys.missing_keys) <= {"head.weight", "head.bias"}, keys

    Fix: leave out strict=False, or look at missing_keys and unexpected_keys of what load_state_dict returns.
    """

    code = "SAVE003"
    words = ("load_state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it where the result is not used, or where it is used as the model."""
        if module.identifiers & {"missing_keys", "unexpected_keys"}:
            return
        for call in module.method_calls("load_state_dict"):
            parent = module.parents[call]
            kept = isinstance(parent, ast.Assign) and _is_looked_at(module, parent.targets[0])
            if (
                literal(module, argument(call, 1, "strict")) is False
                and isinstance(parent, ast.Expr | ast.Assign)
                and not kept
            ):
                yield At(
                    call, "strict=False drops keys that don't fit without a word: perhaps all of them.", RISK
                )


def _is_looked_at(module: SourceModule, target: ast.expr) -> bool:
    """Tell whether what did not fit is taken apart, or read later."""
    name = dotted(target)
    if isinstance(target, ast.Tuple) or name is None:
        return True
    reads = [each for each in module.reads(name) if each.lineno > target.lineno]
    return any(
        not isinstance(module.parents[each], ast.Call) or each in _arguments(module, each) for each in reads
    )


def _arguments(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    call = module.parents[node]
    return call.args if isinstance(call, ast.Call) else []

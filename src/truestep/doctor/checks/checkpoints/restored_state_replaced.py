# SPDX-License-Identifier: Apache-2.0
"""A schedule that is made anew behind the loading of its state."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk

_KEEPS_STATE = re.compile(r"sched|optim|scaler")
_LOADS = ("load_state_dict", "load_state", "prepare")


class RestoredStateReplaced(SourceCheck):
    """An optimizer, schedule or scaler gets its state from a checkpoint, and is made anew after that.

    Why: the run goes on with a fresh one: warm-up, moments or scale begin again.

    Bad:
        def resume(opt, path):
            scheduler = torch.optim.lr_scheduler.StepLR(opt, 10)
            scheduler.load_state_dict(torch.load(path, weights_only=True))
            scheduler = torch.optim.lr_scheduler.StepLR(opt, 10)  # here
            return scheduler

    Good:
        def resume(opt, path):
            scheduler = torch.optim.lr_scheduler.StepLR(opt, 10)
            scheduler.load_state_dict(torch.load(path, weights_only=True))
            return scheduler

    Fix: make it once, before the state is loaded.
    """

    code = "SAVE009"
    words = ("load_state",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a second making by the same call in one function, with the loading between and none after."""
        made: dict[tuple[ast.AST, str, str], list[ast.Assign]] = {}
        for node in module.all(ast.Assign):
            place = dotted(node.targets[0])
            if place is not None and isinstance(node.value, ast.Call) and _KEEPS_STATE.search(place):
                made.setdefault((module.scope(node), place, ast.unparse(node.value.func)), []).append(node)
        for (scope, place, called), nodes in made.items():
            if len(nodes) < 2 or "load" in called:
                continue
            first, last = nodes[0].lineno, nodes[-1].lineno
            loads = [each for each in module.method_calls(*_LOADS) if module.scope(each) is scope]
            between = [each for each in loads if first < each.lineno < last and _is_of(each, place)]
            if (
                between
                and not any(each.lineno > last for each in loads)
                and not _exclusive(module, nodes[-1], between)
                and not _is_asked_for(module, nodes[-1], place)
            ):
                yield At(
                    nodes[-1],
                    f"{place!r} was given its state on line {between[-1].lineno}; this one is new.",
                    RISK,
                )


def _is_of(call: ast.Call, place: str) -> bool:
    """Tell a loading of everything that was prepared, or of this one."""
    assert isinstance(call.func, ast.Attribute)
    owner = (dotted(call.func.value) or "").rsplit(".", 1)[-1]
    if call.func.attr == "load_state_dict":
        return dotted(call.func.value) == place
    return call.func.attr == "load_state" and owner == "accelerator"


def _is_asked_for(module: SourceModule, node: ast.AST, place: str) -> bool:
    """Tell `if scheduler is None:` around the second making: what was restored is there, and stays."""
    tests = [above.test for above in module.ancestors(node) if isinstance(above, ast.If)]
    return any(dotted(part) == place for test in tests for part in walk(test))


def _exclusive(module: SourceModule, node: ast.AST, loads: list[ast.Call]) -> bool:
    """Tell whether the making and the loading stand in different arms of one `if`."""
    for above in module.ancestors(node):
        if isinstance(above, ast.If) and any(above in module.ancestors(each) for each in loads):
            return True
    return False

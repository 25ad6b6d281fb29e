# SPDX-License-Identifier: Apache-2.0
"""A state that is saved, and left behind when the run goes on."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.checkpoints import (
    LoadInSource,
    SaveInSource,
    checkpoint_loads,
    checkpoint_saves,
    is_text_elsewhere,
)
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.training_actions import LOAD_STATE

_COUNTERS = frozenset(
    ("epoch", "step", "iteration", "iter", "global_step", "start_epoch", "epochs", "start_iter")
)

_GIVES = re.compile(r"load_|restore|resume")
_BEST = re.compile(r"(^|_)best(_|$)", re.IGNORECASE)


class StateNotRestored(SourceCheck):
    """A checkpoint is saved with a state that the code which resumes from it does not load.

    Why: the run goes on with a fresh optimizer, schedule or scale.

    Bad:
        def save(epoch, scheduler):
            state = {
                "net": net.state_dict(), "opt": opt.state_dict(),
                "schedule": scheduler.state_dict(), "epoch": epoch,
            }
            torch.save(state, "last.pt")

        def resume(scheduler):
            state = torch.load("last.pt", weights_only=True)  # here
            net.load_state_dict(state["net"])
            opt.load_state_dict(state["opt"])
            return state["epoch"]

    Good:
        def save(epoch, scheduler):
            state = {
                "net": net.state_dict(), "opt": opt.state_dict(),
                "schedule": scheduler.state_dict(), "epoch": epoch,
            }
            torch.save(state, "last.pt")

        def resume(scheduler):
            state = torch.load("last.pt", weights_only=True)
            net.load_state_dict(state["net"])
            opt.load_state_dict(state["opt"])
            scheduler.load_state_dict(state["schedule"])
            return state["epoch"]

    Fix: load each of these states, as `scheduler.load_state_dict(state["schedule"])`, before the first step.

    Evidence: beds D, G, H, Q, T, Y: 6 true, 3 false.
    """

    code = "SAVE011"
    never = (LOAD_STATE,)
    words = ("torch.load",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a state_dict under a key that only the saving names, where the loading reads a counter beside it."""
        loads = [
            each for each in checkpoint_loads(module) if each.keys.keys() & _COUNTERS and not each.is_whole
        ]
        saved = [each for file in module.program.linked for each in checkpoint_saves(file)] if loads else []
        for loaded in loads:
            if not _restores_or_returns_states(module, loaded.call):
                continue
            alike = [each for each in saved if len(loaded.keys.keys() & each.keys.keys()) >= 2]
            if (
                left := _unrestored_state_keys(module, loaded, alike, saved)
                if not _is_loaded_only_to_evaluate(module, loaded)
                else []
            ):
                keys = " and ".join(map(repr, left))
                yield At(loaded.call, f"What is saved as {keys} is not read when the run goes on.", RISK)


def _restores_or_returns_states(module: SourceModule, load: ast.Call) -> bool:
    """Tell a load whose function gives a state to something, or gives the whole on: no summary of its numbers."""
    scope = module.scope(load)
    given = [each for each in module.directly_in(scope, ast.Call) if _GIVES.search(ast.unparse(each.func))]
    statement = module.statement(load)
    name = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    wholes = [module.parents[each] for each in module.reads(name)] if name is not None else []
    wholes = [each for each in wholes if isinstance(each, (ast.Call, ast.Return, ast.Tuple, ast.keyword))]
    return bool(given) or any(module.scope(each) is scope for each in wholes)


def _is_loaded_only_to_evaluate(module: SourceModule, loaded: LoadInSource) -> bool:
    """Tell a load on whose every way a model is evaluated and nothing trained: no run goes on with it."""
    ways = list(module.program.traces_through(loaded.call))
    if not ways or any(each.of("backward", "grad", "step", "learn", "train", "unknown") for each in ways):
        return False
    return all(each.of("eval") for each in ways)


def _unrestored_state_keys(
    module: SourceModule, loaded: LoadInSource, alike: list[SaveInSource], saved: list[SaveInSource]
) -> list[str]:
    """Return the keys that every such checkpoint has a state under, and no text but those of what is saved."""
    common = set.intersection(*(set(each.keys) for each in alike)) if alike else set()
    texts = set().union(*(each.texts for each in saved))
    return [
        key
        for key in sorted(common - loaded.keys.keys())
        if (
            _is_optimizer_or_scaler_state(module, alike[0].keys[key])
            or _is_best_value_so_far(key, alike[0].keys[key])
        )
        and not is_text_elsewhere(module, key, texts)
    ]


def _is_optimizer_or_scaler_state(module: SourceModule, node: ast.expr) -> bool:
    """Tell the state_dict() of an optimizer, a schedule or a scaler; weights may be kept for other uses."""
    calls = [each.func for each in walk(node) if isinstance(each, ast.Call)]
    asked = [each.value for each in calls if isinstance(each, ast.Attribute) and each.attr == "state_dict"]
    return bool(asked) and module.home(asked[0]).kind(asked[0]) in ("optimizer", "scheduler", "scaler")


def _is_best_value_so_far(key: str, node: ast.expr) -> bool:
    """Tell the best value so far, which decides what the run keeps when it goes on."""
    return bool(_BEST.search(key)) and isinstance(node, (ast.Name, ast.Attribute))

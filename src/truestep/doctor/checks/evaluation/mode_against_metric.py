# SPDX-License-Identifier: Apache-2.0
"""A watched metric taken the wrong way round."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.libraries import MONITORS
from truestep.doctor.source.metrics import FALLS, RISES, better_by_name, better_by_value, logged_by_modules
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, forwards_all, literal, seen_through

_PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"


class ModeAgainstMetric(SourceCheck):
    """A checkpoint, an early stop or a schedule looks for the lowest value of a metric that is better when higher, or the reverse.

    Why: the worst model is kept as the best, and training stops, or slows down, just when it improves.

    Bad:
        class Task(lightning.LightningModule):
            def validation_step(self, batch, index):
                x, y = batch
                self.log("val_acc", (self(x).argmax(1) == y).float().mean())

        best = lightning.pytorch.callbacks.ModelCheckpoint(monitor="val_acc")  # here

    Good:
        class Task(lightning.LightningModule):
            def validation_step(self, batch, index):
                x, y = batch
                self.log("val_acc", (self(x).argmax(1) == y).float().mean())

        best = lightning.pytorch.callbacks.ModelCheckpoint(monitor="val_acc", mode="max")

    Fix: mode="max" for what is to rise, mode="min" for what is to fall.
    """

    code = "EVAL037"
    words = ("monitor", "EarlyStopping", "ReduceLROnPlateau", "metric_for_best_model")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a monitor whose mode contradicts what is logged under its name, or what the name says."""
        for name, row in MONITORS.items():
            for call in module.calls(name):
                metric, mode = argument(call, *row.metric), argument(call, *row.mode)
                watched = literal(module, metric)
                wanted = row.default if mode is None else row.modes.get(literal(module, mode))
                if isinstance(watched, str) and not forwards_all(call):
                    if wanted is None and mode is None:
                        wanted = FALLS if watched.endswith("loss") else RISES
                    yield from _judged(
                        call, watched, wanted, _by_log(module, watched), better_by_name(watched)
                    )
        for call in module.calls(_PLATEAU):
            mode = argument(call, 1, "mode")
            wanted = FALLS if mode is None else literal(module, mode)
            watched = _watched_through(module, call)
            if watched is not None:
                yield from _judged(call, watched, wanted, _by_log(module, watched), better_by_name(watched))
            for step in _steps_of(module, call) if not forwards_all(call) else ():
                given = argument(step, 0, "metrics")
                told = ast.unparse(given) if given is not None else ""
                yield from _judged(step, told, wanted, better_by_value(module, given), better_by_name(told))


def _judged(
    node: ast.Call, watched: str, wanted: str | None, by_value: str | None, by_name: str | None
) -> Iterator[At]:
    better = by_value or by_name
    if wanted in (RISES, FALLS) and better is not None and better != wanted:
        text = f"{watched!r} is better when {'higher' if better == RISES else 'lower'}, and the {wanted}imum is looked for."
        yield At(node, text, BUG if by_value is not None else RISK)


def _by_log(module: SourceModule, name: str) -> str | None:
    """Return what the values that are logged under a name say, if they agree."""
    values = module.of_program(logged_by_modules).values.get(name, [])
    found = {better_by_value(module, each) for each in values}
    return found.pop() if len(found) == 1 else None


def _steps_of(module: SourceModule, scheduler: ast.Call) -> Iterator[ast.Call]:
    for call in module.method_calls("step"):
        if isinstance(call.func, ast.Attribute) and call.args:
            if module.definitions(call.func.value) == [scheduler]:
                yield call


def _watched_through(module: SourceModule, scheduler: ast.Call) -> str | None:
    """Return the metric of `{"scheduler": scheduler, "monitor": "val_loss"}`."""
    for given in module.all(ast.Dict):
        keys = [constant(each) if each is not None else None for each in given.keys]
        parts = dict(zip(keys, given.values, strict=True))
        if (
            "monitor" in parts
            and seen_through(module, parts.get("scheduler", parts.get("lr_scheduler"))) is scheduler
        ):
            watched = literal(module, parts["monitor"])
            return watched if isinstance(watched, str) else None
    return None

# SPDX-License-Identifier: Apache-2.0
"""A library that is told the wrong end of a figure."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.better_ends import better_end_of_figure
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part
from truestep.doctor.source.value_origins import argument, has_star_args, literal

_OF_LIGHTNING = ("lightning.", "pytorch_lightning.")
_WATCHED = {"EarlyStopping": 0, "ModelCheckpoint": 2}  # where what they watch stands
_BOTH = {"min": "lower", "max": "higher"}


class BestByOtherEnd(SourceCheck):
    """The best checkpoint, or the end of the training, is chosen by the wrong end of a figure: the lowest accuracy.

    Why: the worst weights are kept as the best ones, and the training stops while it goes well. Lightning's mode is
    "min" where none is given.

    Bad:
        from lightning.pytorch.callbacks import ModelCheckpoint

        keep = ModelCheckpoint("out", monitor="val_acc")  # here

    Good:
        from lightning.pytorch.callbacks import ModelCheckpoint

        keep = ModelCheckpoint("out", monitor="val_acc", mode="max")

    Fix: mode="max" (or greater_is_better=True) for what grows as the model gets better, "min" for losses and errors;
    give a score_function the loss with a minus.

    Evidence: none while it is on trial.
    """

    code = "SAVE019"
    is_preview = True
    words = ("monitor", "EarlyStopping", "metric_for_best_model", "score_function")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an object that is told of a figure, and that the end of it is the best one which its name says is not."""
        for call in module.all(ast.Call):
            if has_star_args(call):
                continue
            figure, wanted = _told_to_library(module, call)
            better = better_end_of_figure(module, figure) if wanted is not None else None
            if better is not None and wanted != better and figure is not None:
                text = f"The {_BOTH[wanted or better]} {ast.unparse(figure)} counts as better here, and the {_BOTH[better]} one is."
                yield At(call, text, RISK)


def _told_to_library(module: SourceModule, call: ast.Call) -> tuple[ast.expr | None, object]:
    """Return the figure that an object watches, and which end of it it takes for the best."""
    if (score := argument(call, None, "score_function")) is not None:
        given = module.functions.results(module.functions.named(score))
        return (given[0], "max") if len(given) == 1 else (None, None)
    if (metric := argument(call, None, "metric_for_best_model")) is not None:
        greater, name = argument(call, None, "greater_is_better"), literal(module, metric)
        is_greater = literal(module, greater) if greater is not None else not str(name).endswith("loss")
        ends = {True: "max", False: "min"}
        return ast.Constant(name), ends.get(is_greater) if isinstance(name, str) else None
    mode, called = argument(call, None, "mode"), last_part(call.func)
    is_lightning = (module.qualify(call.func) or "").startswith(_OF_LIGHTNING) and called in _WATCHED
    metric = argument(call, _WATCHED.get(called) if is_lightning else None, "monitor")
    name = literal(module, metric)
    wanted = literal(module, mode) if mode is not None else "min" if is_lightning else None
    return ast.Constant(name), wanted if isinstance(name, str) and wanted in _BOTH else None

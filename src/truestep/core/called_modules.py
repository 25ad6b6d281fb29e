# SPDX-License-Identifier: Apache-2.0
"""Modules of this package that people call, as `ts.run(...)`: their names are those of functions or classes nearby."""

import sys
from types import ModuleType
from typing import Any, NoReturn

from truestep.core.errors import OptionError

# What to write for a module of this package that is called.
_INSTEAD = {
    "run": "ts.Run(directory), with a capital, makes a run",
    "report": "ts.write_report(directory) writes the report of a run",
    "model": "ts.summary(net, batch) shows a model, and run.learner(module, optimizer) trains one",
    "doctor": "with ts.watch(): ... watches a loop, and `truestep doctor train.py` a script",
    "engine": "run = ts.Run(directory), net = run.learner(module, optimizer), net.update(loss, batch)",
    "checkpoints": "ts.CheckpointStore(directory), or ts.load_weights(module, directory)",
    "explainer": "`truestep explain` explains an error",
    "machine": "ts.environment(), ts.gpus()",
}


class CalledModule(ModuleType):
    """A module that says what to write where it is called."""

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Say what to write."""
        name = self.__name__.rpartition(".")[2]
        raise OptionError(f"ts.{name} is a module and can't be called. {_INSTEAD[name]}.")


def refuse_calls_of_modules() -> None:
    """Have the modules that are imported by now say what to write where one is called."""
    for name in _INSTEAD:
        if type(module := sys.modules.get(f"truestep.{name}")) is ModuleType:
            module.__class__ = CalledModule

# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C caught, saved, and forgotten."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.once import each_once

MAX_DEPTH = 2  # functions from the handler to the save


class InterruptSwallowed(SourceCheck):
    """KeyboardInterrupt is caught anywhere in training, and the state of that instant saved.

    Why: between optimizer.step() and the counter the two disagree; a second Ctrl-C cuts the file off; and
    SIGTERM, which schedulers send, is not caught at all.

    Bad:
        try:
            train()
        except KeyboardInterrupt:
            torch.save(net.state_dict(), "last.pt")  # here

    Good:
        import signal

        stop = []
        signal.signal(signal.SIGINT, lambda *_: stop.append(True))

    Fix: let the handler set a flag, save between steps to a temporary file, os.replace it, then exit with
    130.

    Evidence: the plain form in snippet 42 of the notes; bed E: 0 true, 1 debatable, 0 false; bed G: 0 true, 2
    debatable, 0 false; bed I: 0 true, 3 debatable, 0 false; bed L: 0 true, 12 debatable, 0 false.
    """

    code = "SAVE006"
    words = ("KeyboardInterrupt",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a torch.save in such a handler."""
        for handler in module.all(ast.ExceptHandler):
            named = ast.unparse(handler.type) if handler.type is not None else ""
            if "KeyboardInterrupt" not in named:
                continue
            for call in module.inside(handler, ast.Call):
                if _saves(module, call):
                    yield At(call, "The state is saved wherever Ctrl-C happened to strike.", RISK)


def _saves(module: SourceModule, call: ast.Call) -> bool:
    """Tell `torch.save(...)`, and a call of a function that does it."""

    def inside(each: ast.Call) -> list[ast.Call]:
        target = module.functions.target(each)
        return module.inside(target, ast.Call) if target is not None else []

    calls = each_once([call], inside, MAX_DEPTH)
    return any(module.qualify(each.func) == "torch.save" for each in calls)

# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C caught, and a state to go on from saved wherever it struck."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.source.frames import CallFrame, LocatedExpression
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.value_contexts import CallFrames
from truestep.doctor.source.value_origins import argument

MAX_DEPTH = 2  # functions from the handler to the save


class InterruptSwallowed(SourceCheck):
    """KeyboardInterrupt is caught anywhere in training, and the state of that instant saved to go on from.

    Why: between optimizer.step() and the counter the two disagree, and the run goes on from that; a second
    Ctrl-C cuts the file off; and SIGTERM, which schedulers send, is not caught at all.

    Bad:
        state = torch.load("last.pt")
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        try:
            train(start=state["step"])
        except KeyboardInterrupt:
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step}, "last.pt")  # here

    Good:
        import signal

        stop = []
        signal.signal(signal.SIGINT, lambda *_: stop.append(True))

    Fix: let the handler set a flag, save between steps to a temporary file, os.replace it, then exit with
    130.

    Evidence: the plain form in snippet 42 of the notes; beds E, G, I, L: 0 true, 18 debatable, 0 false.
    """

    code = "SAVE006"
    words = ("KeyboardInterrupt",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a save of several states in such a handler; weights alone disagree with nothing."""
        if not _can_resume_from_file(module):
            return
        frames = CallFrames(module.resolver)
        for handler in module.all(ast.ExceptHandler):
            named = ast.unparse(handler.type) if handler.type is not None else ""
            if "KeyboardInterrupt" not in named:
                continue
            scope = module.scope(handler)
            frame = CallFrame(scope if isinstance(scope, Function) else None)
            for call in module.inside(handler, ast.Call):
                if any(_has_several_states(frames, each) for each in _torch_save_calls(frames, call, frame)):
                    yield At(call, "The state is saved wherever Ctrl-C happened to strike.", QUESTION)


def _torch_save_calls(
    frames: CallFrames, call: ast.Call, frame: CallFrame, depth: int = MAX_DEPTH
) -> Iterator[LocatedExpression]:
    """Yield `torch.save(...)`, here or in a function that is called, in its call."""
    if frames.resolver.names.qualify(call.func) == "torch.save":
        yield LocatedExpression(call, frame)
    inner = frames.entered(call, frame) if depth else None
    if inner is not None and inner.function is not None:
        for each in ast.walk(inner.function):
            if isinstance(each, ast.Call):
                yield from _torch_save_calls(frames, each, inner, depth - 1)


def _has_several_states(frames: CallFrames, save: LocatedExpression) -> bool:
    """Tell a dict of more than one entry, or what is out of sight, from the weights of one module."""
    assert isinstance(save.node, ast.Call)
    given = argument(save.node, 0, "obj")
    made = frames.origin(LocatedExpression(given, save.context)).node if given is not None else None
    if isinstance(made, ast.Dict):
        return len(made.keys) > 1
    return isinstance(made, ast.Call) and not (
        isinstance(made.func, ast.Attribute) and made.func.attr == "state_dict"
    )


def _can_resume_from_file(module: SourceModule) -> bool:
    """Tell a program that loads a file, and a few lines of one: what goes on from theirs is not among them."""
    files = module.program.linked
    return any(file.calls("torch.load") for file in files) or not any(
        file.read_under("backward") for file in files
    )

# SPDX-License-Identifier: Apache-2.0
"""Micro-batch losses added up at full size."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck, Unsure
from truestep.doctor.source.events import Event, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule


class AccumulatedLossNotDivided(SourceCheck):
    """Gradients are accumulated over several batches, but the loss is not divided by their number.

    Why: k batches give the sum of their gradients, k times their mean: SGD takes steps k times as long.

    Bad:
        for i, (x, y) in enumerate(loader):
            F.cross_entropy(net(x), y).backward()  # here
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Good:
        for i, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x), y) / 4
            loss.backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Fix: (loss / k).backward(); where batches differ in size, weight each by its samples or tokens.
    """

    code = "GRAD005"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the backward of an accumulating loop in which nothing divides or weights the loss."""
        for trace in module.traces:
            for loop in trace.training_loops():
                backward = _accumulated(loop)
                if backward is None or backward.receiver is None:
                    continue
                scaled = is_scaled(module, backward.receiver)
                if scaled is None:
                    yield Unsure(backward.node, "what the loss is made of can't be seen from here")
                elif not scaled and not _delegated(backward):
                    text = "The loss of each micro-batch is not divided by their number."
                    yield At(backward.node, text, RISK if _counted(loop, backward) else QUESTION)


def _counted(loop: TrainingLoop, backward: Event) -> bool:
    """Tell "four times" from "once for each task": of those the sum may be meant."""
    inner = [frame.node for frame in backward.path[len(loop.path) :] if frame.kind == "loop"]
    return not inner or all(
        isinstance(each, ast.For) and getattr(getattr(each.iter, "func", None), "id", "") == "range"
        for each in inner
    )


def _accumulated(loop: TrainingLoop) -> Event | None:
    """Return the backward that runs several times in every window, if its gradients are meant to add up."""
    run = execution_of(loop.trace, loop.path)
    windows = run.full_windows(loop.optimizer)
    same = {event.node for window in windows for event in window.backwards}
    meant = all(each.adds_up for each in windows) and any(each.clears for each in windows)
    if not run.is_certain or not windows or len(same) != 1 or not meant:
        return None
    return windows[0].backwards[0]


def is_scaled(module: SourceModule, loss: ast.expr) -> bool | None:
    """Tell whether a loss comes from a product or a quotient; None where part of it is out of sight."""
    seen: set[ast.expr] = set()
    waiting: list[ast.expr | None] = [loss]
    hidden = False
    while waiting:
        current = waiting.pop()
        if current is None or current in seen:
            hidden = hidden or current is None
            continue
        seen.add(current)
        if _scales(current):
            return True
        if isinstance(current, ast.Name | ast.Attribute | ast.Subscript):
            waiting += module.definitions(current)
            continue
        if isinstance(current, ast.Call) and _passes_on(module, current):
            waiting += current.args[:1]
        elif isinstance(current, ast.Call):
            function = module.target(current)
            waiting += module.resolver.results(function) if function is not None else []
            of_library = module.qualify(current.func) is not None
            waiting += (
                [current.func.value] if isinstance(current.func, ast.Attribute) and not of_library else []
            )
        elif isinstance(current, ast.BinOp):
            waiting += [current.left, current.right]
    return None if hidden else False


def _passes_on(module: SourceModule, call: ast.Call) -> bool:
    """Tell `scaler.scale(loss)` and `torch.sum(loss)`: the loss is what they are given."""
    name = module.qualify(call.func) or ""
    scaler = isinstance(call.func, ast.Attribute) and call.func.attr == "scale"
    return scaler or name in ("torch.sum", "torch.mean", "torch.stack", "sum")


def _scales(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div | ast.Mult)
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return method in ("div", "mul", "div_", "mul_", "true_divide")


def _delegated(backward: Event) -> bool:
    """`accelerator.backward(loss)` divides by itself."""
    call = backward.node
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and bool(call.args)

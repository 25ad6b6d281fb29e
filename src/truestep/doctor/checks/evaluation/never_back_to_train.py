# SPDX-License-Identifier: Apache-2.0
"""Training that goes on in eval mode."""

from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck, Unsure
from truestep.doctor.source.evaluations import sensitive_layers
from truestep.doctor.source.events import Event, Trace, TrainingLoop
from truestep.doctor.source.module import SourceModule


class NeverBackToTrain(SourceCheck):
    """eval() is called within the training loop, and train() never after it.

    Why: from the first evaluation on, the model trains without dropout and with frozen batch-norm statistics.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        net.train()
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            net.eval()  # here
            with torch.no_grad():
                score = evaluate(net(x), y)

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        for epoch in range(3):
            net.train()
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                score = evaluate(net(x), y)

    Fix: net.train() at the start of every epoch.
    """

    code = "EVAL003"
    words = ("eval()", "train(False)")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report an eval() that shares a loop with training, in which nothing calls train()."""
        for trace in module.traces:
            for loop in trace.training_loops():
                for path in (loop.path, *loop.outer_loops()):
                    evals = [event for event in trace.within(path, "eval") if _trained(trace, loop, event)]
                    if evals and not trace.within(path, "train"):
                        yield from self._judge(module, evals[0])
                        break
                    if evals:
                        break

    def _judge(self, module: SourceModule, event: Event) -> Iterator[At | Unsure]:
        layers = sensitive_layers(module, event.receiver) if event.receiver is not None else None
        if layers is None:
            yield At(event.node, "eval() is called in the training loop, and train() never after it.", RISK)
        elif layers:
            names = ", ".join(sorted(layers))
            yield At(
                event.node,
                f"eval() is called in the training loop, and train() never after it; the model has {names}.",
                BUG,
            )


def _trained(trace: Trace, loop: TrainingLoop, event: Event) -> bool:
    """A teacher or a frozen part may stay in eval mode: only what the loop applies counts."""
    applied = {each.subject for each in loop.of("forward")}
    first = loop.of("forward", "backward")
    early = (
        bool(first) and trace.events.index(event) < trace.events.index(first[0]) and event.inside(loop.path)
    )
    return event.subject in applied and not early

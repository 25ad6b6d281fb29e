# SPDX-License-Identifier: Apache-2.0
"""Training that goes on in eval mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck, Unsure
from truestep.doctor.finding import Place
from truestep.doctor.runtime.tensor_queries import watched_sensitive_layers as layers_in_mode
from truestep.doctor.source.counters import is_model_made_anew
from truestep.doctor.source.evaluations import TrainedModels, sensitive_layers
from truestep.doctor.source.events import Path, Trace, TraceEvent, TrainingLoop
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, before, event_at, receiver_text_at
from truestep.doctor.source.training_actions import TRAIN
from truestep.doctor.source.value_origins import argument, constant
from truestep.doctor.watcher_base import Observation, Observations, Watcher

_FREEZES = re.compile(r"#.*\b(freez|froz)", re.IGNORECASE)

if TYPE_CHECKING:
    from torch import nn

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

_HOOKS = {
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "training_step",
    "on_train_batch_end",
}
_CALLBACK = re.compile(r"(pytorch_lightning|lightning)\..*Callback$")


class NeverBackToTrain(SourceCheck, Watcher):
    """eval() is called within the training loop, and train() never after it.

    Why: from the first evaluation on, the model trains without dropout and with frozen batch-norm statistics.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
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
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(3):
            net.train()
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                score = evaluate(net(x), y)

    Fix: net.train() after each evaluation, before the next batch is trained on.

    Evidence: corpus, 186 repositories, beds B, C, E, F, G, H, I, M, N, P, Q, R, S, T, U, V, W, X, Y: 38 true, 5
    debatable, 9 false.
    """

    code = "EVAL003"
    never = (TRAIN,)
    words = ("eval()", "train(False)")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report an eval() that shares a loop with training, in which nothing calls train()."""
        for trace in module.traces:
            for loop in trace.learning_loops():
                for path in (loop.path, *loop.outer_loops()):
                    evals = [
                        event
                        for event in trace.within(path, "eval")
                        if _is_model_trained_in_loop(module, trace, loop, event)
                    ]
                    if (
                        evals
                        and not trace.ever(path, "train")
                        and not _is_model_made_each_iteration(module, path, evals[0])
                    ):
                        yield from self._report_findings(module, evals[0].node, evals[0].receiver)
                    if evals:
                        break
        for call, model in _eval_calls_in_hooks(module):
            yield from self._report_findings(module, call, model)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Go back at the start of the loop."""
        _, event = event_at(module, node, "eval")
        loop = event.loops()[-1] if event.loops() else None
        if not isinstance(loop, (ast.For, ast.While)) or module.scope(loop) is not module.scope(node):
            raise SourceRewriteError
        return [before(module, loop.body[0], f"{receiver_text_at(module, node, event.receiver)}.train()")]

    def _report_findings(
        self, module: SourceModule, node: ast.AST, model: ast.expr | None
    ) -> Iterator[At | Unsure]:
        if _is_said_to_freeze(module, node):
            return
        layers = sensitive_layers(module, model) if model is not None else None
        if layers is None:
            yield At(node, "eval() is called in the training loop, and train() never after it.", RISK)
        elif layers:
            names = ", ".join(sorted(layers))
            yield At(
                node,
                f"eval() is called in the training loop, and train() never after it; the model has {names}.",
                BUG,
            )

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report a step of a model that was trained in training mode before, and is in eval mode now."""
        mine = {id(each) for each in record.parameters()}
        for model in list(history.models):
            if not any(id(each) in mine for each in model.parameters()):
                continue
            active, idle = layers_in_mode(model, training=True), layers_in_mode(model, training=False)
            before = self.trained.setdefault(id(model), bool(active))
            if before and idle and not active and record.num_backwards:
                text = f"Step {record.num_steps + 1} trains in eval mode: {', '.join(idle)}."
                yield Observation(
                    self.switched.get(id(model), place),
                    text,
                    BUG,
                    {"layers": idle, "step": record.num_steps + 1},
                )

    def __init__(self) -> None:
        self.switched: dict[int, Place] = {}
        self.trained: dict[int, bool] = {}  # by model: whether it first stepped in training mode

    def on_mode(self, history: WatchHistory, module: nn.Module, training: bool, place: Place) -> None:
        """Remember where each model was last put into eval mode."""
        if not training:
            self.switched[id(module)] = place


def _eval_calls_in_hooks(module: SourceModule) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield eval() of the whole model in hooks of Lightning's loop over batches, where nothing at all calls train()."""
    if any(_sets_mode(each, True) for each in module.program.called_anywhere("train")):
        return
    for call in module.method_calls("eval", "train"):
        hook = module.enclosing(call, ast.FunctionDef)
        owner = module.enclosing(hook, ast.ClassDef) if hook is not None and hook.name in _HOOKS else None
        if hook is None or owner is None or not _sets_mode(call, False):
            continue
        is_callback = any(_CALLBACK.match(module.qualify(each) or "") for each in owner.bases)
        is_module = owner in module.kinds.classes_of("lightning module")
        model = hook.args.args[2 if is_callback else 0 : 3][:1] if is_callback or is_module else []
        if model and isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) == model[0].arg:
            yield call, call.func.value


def _is_said_to_freeze(module: SourceModule, call: ast.AST) -> bool:
    """Tell an eval() over or beside which a comment says that it freezes something: its author means it."""
    line = getattr(call, "lineno", 0)
    lines = module.home(call).text.splitlines()[max(line - 2, 0) : line]
    return any(
        _FREEZES.search(each) for each in (*lines[:-1][: lines[0].lstrip().startswith("#")], *lines[-1:])
    )


def _sets_mode(call: ast.Call, training: bool) -> bool:
    """Tell a call that sets this mode, or may."""
    given = constant(argument(call, 0, "mode"))
    off = isinstance(call.func, ast.Attribute) and (call.func.attr == "eval" or given is False)
    return off is not training


def _is_model_made_each_iteration(module: SourceModule, path: Path, event: TraceEvent) -> bool:
    """Tell whether each iteration makes the model anew, which begins in training mode."""
    return event.receiver is not None and is_model_made_anew(module, path[-1].node, event.receiver)


def _is_model_trained_in_loop(
    module: SourceModule, trace: Trace, loop: TrainingLoop, event: TraceEvent
) -> bool:
    """A teacher or a frozen part may stay in eval mode: only what the loop applies, or its optimizer moves, counts."""
    if event not in TrainedModels(module, [loop]):
        return False
    first = loop.of("forward", "backward")[0]
    return not (trace.order[event] < trace.order[first] and event.inside(loop.path))

# SPDX-License-Identifier: Apache-2.0
"""An optimizer stepped on a loss that its model has no part in."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.behind import is_without_grad
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.flow import loses_graph
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import seen_through

_DATA = ("for", "with")


class SteppedWithoutAWay(SourceCheck):
    """A step follows the backward of a loss that no gradient leads from to the optimizer's model: its output was detached.

    Why: the optimizer finds no gradients, or those of another loss; a generator that is trained so stays as it is.

    Bad:
        critic, opt = nn.Linear(3, 1), torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            fake = net(x).detach()
            loss = -critic(fake).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()  # here

    Good:
        critic, opt = nn.Linear(3, 1), torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            fake = net(x)
            loss = -critic(fake).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()

    Fix: detach it where the other model is trained, and not here.
    """

    code = "GRAD060"
    words = ("detach", "no_grad")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a step between whose loss and model a detach() stands, where all models behind the loss are in sight."""
        told: set[ast.AST] = set()
        for trace in module.traces:
            for step in trace.of("step"):
                model = _model_of(module, step)
                loss = _loss_before(trace, step)
                if model is None or loss is None or step.node in told:
                    continue
                way = _Way(module)
                way.follow(loss, True, 0)
                if (
                    way.is_known
                    and model in way.cut
                    and not any(_is_part(model, each) for each in way.reached)
                ):
                    told.add(step.node)
                    text = f"What {model} gave this loss was detached: no gradient comes back to it."
                    yield At(step.node, text, RISK)


def _model_of(module: SourceModule, step: TraceEvent) -> str | None:
    """Return the model of `Adam(model.parameters())`, as its own place calls it."""
    call = seen_through(module, step.receiver)
    given = seen_through(module, call.args[0]) if isinstance(call, ast.Call) and call.args else None
    called = given.func if isinstance(given, ast.Call) else None
    is_all = isinstance(called, ast.Attribute) and called.attr == "parameters"
    return dotted(called.value) if is_all else None  # type: ignore[union-attr]


def _loss_before(trace: Trace, step: TraceEvent) -> ast.expr | None:
    """Return what went backward since the step before, if that is one loss."""
    found: list[TraceEvent] = []
    for each in reversed(trace.events[: trace.order[step]]):
        if each.kind in ("step", "zero_grad"):
            break
        if each.kind in ("backward", "grad", "unknown", "update"):
            found.append(each)
    return found[0].receiver if len(found) == 1 and found[0].kind == "backward" else None


def _is_part(model: str, reached: str) -> bool:
    return reached == model or reached.startswith(f"{model}.") or model.startswith(f"{reached}.")


class _Way:
    """The models behind a loss: those that a gradient reaches, and those that are cut off."""

    def __init__(self, module: SourceModule) -> None:
        self.module = module
        self.reached: set[str] = set()
        self.cut: set[str] = set()
        self.is_known = True
        self.seen: set[tuple[ast.AST, bool]] = set()

    def follow(self, node: ast.AST, has_graph: bool, depth: int) -> None:
        """Note the models that a value is computed with, here or behind arguments and names."""
        if (node, has_graph) in self.seen:
            return
        self.seen.add((node, has_graph))
        if depth > 4 * MAX_DEPTH:
            self.is_known = False
            return
        if isinstance(node, ast.Call):
            has_graph = self._call(node, has_graph)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self._name(node, has_graph, depth)
        for child in ast.iter_child_nodes(node):
            self.follow(child, has_graph, depth + 1)

    def _call(self, call: ast.Call, has_graph: bool) -> bool:
        """Note a model that is applied; tell whether what the call is made of keeps its gradient."""
        home = self.module.home(call)
        if loses_graph(call) or is_without_grad(home, call):
            has_graph = False
        kind = home.kind(call.func)
        name = dotted(call.func)
        if kind in ("module", "ddp") and name is not None:
            (self.reached if has_graph else self.cut).add(name)
        elif kind != "loss" and home.qualify(call.func) is None and not self._is_of_tensor(call):
            self.is_known = False
        return has_graph

    def _is_of_tensor(self, call: ast.Call) -> bool:
        """Tell a method of a value; a function of the program may apply a model."""
        return isinstance(call.func, ast.Attribute) and self.module.home(call).target(call) is None

    def _name(self, name: ast.Name, has_graph: bool, depth: int) -> None:
        module = self.module.home(name)
        if name.id == "self" or module.kind(name) in ("module", "ddp", "loss"):
            return
        for binding in module.resolver.reaching(name):
            graph = has_graph and not is_without_grad(module, binding.node)
            if binding.how == "parameter":
                self._parameter(name, graph, depth)
            elif binding.value is not None and binding.how not in _DATA:
                self.follow(binding.value, graph, depth + 1)
        if not module.resolver.reaching(name) and module.qualify(name) is None:
            self.is_known = False

    def _parameter(self, name: ast.Name, has_graph: bool, depth: int) -> None:
        """Follow what callers give; nothing is known of what nobody in sight gives."""
        given = self.module.definitions(name)
        self.is_known &= bool(given) and None not in given
        for each in given:
            if each is not None:
                self.follow(each, has_graph, depth + 1)

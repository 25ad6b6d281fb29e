# SPDX-License-Identifier: Apache-2.0
"""A target net or kept parameters that are the trained ones under another name."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, replaced, text_of
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import seen_through

_COPIES = re.compile(
    r"(^|_)(target|teacher|ema|old|ref|reference|momentum|shadow|frozen|anchor|prev|tgt)(_|$)", re.IGNORECASE
)


class ParametersComparedWithThemselves(SourceCheck):
    """A second net, or a list of parameters that is to stay as it is, is the trained net under another name.

    Why: every step changes both: a target net follows at once, and a distance to the old weights is always 0.

    Bad:
        net = nn.Linear(4, 2)
        target_net = net  # here
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(100):
            loss = F.mse_loss(net(x), target_net(x).detach())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                target_net.load_state_dict(net.state_dict())

    Good:
        net = nn.Linear(4, 2)
        target_net = copy.deepcopy(net)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(100):
            loss = F.mse_loss(net(x), target_net(x).detach())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                target_net.load_state_dict(net.state_dict())

    Fix: copy.deepcopy(net), and p.detach().clone() for each parameter.
    """

    code = "PARAM041"
    words = ("Module", "parameters")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an alias of a model that is updated from it, and parameters that are set against their own list."""
        for node in module.all(ast.Assign):
            name = dotted(node.targets[0]) if len(node.targets) == 1 else None
            if name is None:
                continue
            if isinstance(node.value, ast.Name | ast.Attribute) and _is_model(module, node.value):
                other = dotted(node.value) or ""
                if other != name and not _is_replaced(module, node, other, name):
                    if _is_updated_from(module, name, other):
                        yield At(node, f"{name} is {other} itself, and no copy of it.", BUG)
                    elif _COPIES.search(own_name(node.targets[0]) or "") and _is_trained(module, other):
                        yield At(node, f"{name} is {other} itself, and no copy of it.", RISK)
            elif (model := _listed(node.value)) is not None and _is_set_against(module, node, name, model):
                yield At(node, f"{name} holds the parameters of {model} themselves: they never differ.", BUG)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Copy the model, or each of the parameters."""
        if isinstance(node.value, ast.Call) or "copy" not in module.imported_names:
            raise SourceRewriteError
        return [replaced(module, node.value, f"copy.deepcopy({text_of(module, node.value)})")]


def _is_model(module: SourceModule, node: ast.expr) -> bool:
    return module.kind(node) in ("module", "ddp") and not module.is_guess(node)


def _is_replaced(module: SourceModule, node: ast.Assign, *names: str) -> bool:
    """Tell whether either name is given another model: `old = net`, and then `net = Net()`."""
    named: list[ast.Name | ast.Attribute] = [*module.all(ast.Name), *module.all(ast.Attribute)]
    stores = [each for each in named if isinstance(each.ctx, ast.Store)]
    places = [each for each in stores if dotted(each) in names and module.statement(each) is not node]
    first = [each for each in places if dotted(each) == names[0]]
    return len(first) > 1 or any(dotted(each) == names[1] or each.lineno > node.lineno for each in places)


def _is_updated_from(module: SourceModule, name: str, other: str) -> bool:
    """Tell `name.load_state_dict(other.state_dict())`."""
    for call in module.method_calls("load_state_dict"):
        assert isinstance(call.func, ast.Attribute)
        given = seen_through(module, call.args[0]) if call.args else None
        source = (
            given.func.value
            if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute)
            else None
        )
        if dotted(call.func.value) == name and source is not None and dotted(source) == other:
            return True
    return False


def _is_trained(module: SourceModule, name: str) -> bool:
    """Tell whether an optimizer is given the parameters of a model."""
    for call in module.method_calls("parameters"):
        assert isinstance(call.func, ast.Attribute)
        outer = [each for each in module.ancestors(call) if isinstance(each, ast.Call)]
        if dotted(call.func.value) == name and any(module.kind(each) == "optimizer" for each in outer):
            return True
    return False


def _listed(value: ast.expr) -> str | None:
    """Return the net of `list(net.parameters())`."""
    if not (isinstance(value, ast.Call) and dotted(value.func) in ("list", "tuple") and len(value.args) == 1):
        return None
    return _model_of(value.args[0])


def _model_of(value: ast.expr) -> str | None:
    is_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    if is_call and value.func.attr == "parameters":  # type: ignore[attr-defined]
        return dotted(value.func.value)  # type: ignore[attr-defined]
    return None


def _is_set_against(module: SourceModule, node: ast.Assign, name: str, model: str) -> bool:
    """Tell whether a loop pairs the list with the parameters of the same net, and takes a difference of the two."""
    for call in module.calls("zip"):
        given = call.args
        pair = len(given) == 2 and {dotted(each) or _model_of(each) for each in given} == {name, model}
        loop = module.parents[call]
        scope = loop if isinstance(loop, ast.For) else module.enclosing(call, ast.ListComp, ast.GeneratorExp)
        differs = scope is not None and any(
            isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) for each in walk(scope)
        )
        if pair and differs and module.scope(call) is module.scope(node):
            return True
    return False

# SPDX-License-Identifier: Apache-2.0
"""A loss whose tensors stay on the CPU."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, inserted_behind, text_of
from truestep.doctor.source.values import argument

MOVES = operations(numbers="moved")
REGISTERS = ("register_buffer", "register_parameter")


class CriterionLeftOnHost(SourceCheck):
    """A loss has tensors of its own (class weights, centres), and only the model is moved to the device.

    Why: on a GPU the loss raises; single numbers (a learned temperature) work, and wait for the CPU in
    every step.

    Bad:
        device = torch.device("cuda")
        net = net.to(device)
        criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 2.0]))  # here
        for x, y in loader:
            loss = criterion(net(x.to(device)), y.to(device))

    Good:
        device = torch.device("cuda")
        net = net.to(device)
        criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 2.0])).to(device)
        for x, y in loader:
            loss = criterion(net(x.to(device)), y.to(device))

    Fix: criterion.to(device), as for the model.
    """

    code = "LOSS025"
    words = ("Loss",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss with tensors that nothing moves, in a file that moves a model."""
        if not self._moves_a_model(module):
            return
        for statement in module.all(ast.Assign):
            name, call = dotted(statement.targets[0]), statement.value
            if name and isinstance(call, ast.Call) and self._holds_tensors(module, call):
                if not self._moved(module, name) and not _is_part(module, statement, name):
                    yield At(statement, f"{name!r} has tensors of its own, and nothing moves it.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Move it as the model is moved."""
        for call in module.method_calls(*sorted(MOVES)):
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else call
            if module.kind(receiver) in ("module", "ddp"):
                given = ", ".join(text_of(module, each) for each in call.args)
                method = call.func.attr if isinstance(call.func, ast.Attribute) else "to"
                return [inserted_behind(module, node.value, f".{method}({given})")]
        raise SourceRewriteError

    def _moves_a_model(self, module: SourceModule) -> bool:
        if "set_default_device" in module.text:
            return False
        moves = [call.func for call in module.method_calls(*sorted(MOVES)) if call.args or _is_cuda(call)]
        return any(
            isinstance(each, ast.Attribute) and module.kind(each.value) in ("module", "ddp") for each in moves
        )

    def _moved(self, module: SourceModule, name: str) -> bool:
        receivers = [
            call.func.value
            for call in module.method_calls(*sorted(MOVES))
            if isinstance(call.func, ast.Attribute)
        ]
        handed = [arg for call in module.method_calls("prepare", "setup") for arg in call.args]
        return any(dotted(each) == name for each in [*receivers, *handed])

    def _holds_tensors(self, module: SourceModule, call: ast.Call) -> bool:
        name = module.qualify(call.func) or ""
        if name.startswith("torch.nn.") and name.endswith("Loss"):
            given = [argument(call, None, word) for word in ("weight", "pos_weight")]
            return any(isinstance(each, ast.Call) and _made_on_host(module, each) for each in given)
        owner = module.class_named(call.func)
        if (
            owner is None
            or "loss" not in owner.name.lower()
            or module.class_kind(owner) not in ("module", "loss")
        ):
            return False
        inside = [each for each in walk(owner) if isinstance(each, ast.Call)]
        registered = [each for each in inside if getattr(each.func, "attr", "") in REGISTERS]
        made = [each for each in inside if module.qualify(each.func) == "torch.nn.Parameter"]
        return bool(registered or made) and "device" not in ast.unparse(call)


def _is_part(module: SourceModule, statement: ast.Assign, name: str) -> bool:
    """Tell a part of a module: it goes where that goes."""
    owner = module.enclosing(statement, ast.ClassDef)
    return name.startswith("self.") and owner is not None and module.class_kind(owner) in ("module", "loss")


def _is_cuda(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"


def _made_on_host(module: SourceModule, call: ast.Call) -> bool:
    name = module.qualify(call.func) or ""
    makes = name in {
        f"torch.{each}" for each in ("tensor", "ones", "full", "as_tensor", "Tensor", "FloatTensor")
    }
    return makes and argument(call, None, "device") is None

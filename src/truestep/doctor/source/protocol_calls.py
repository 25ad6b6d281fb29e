# SPDX-License-Identifier: Apache-2.0
"""Which calls make up a training loop, by the function called and by what it is called on."""

import ast
import builtins
from collections.abc import Iterator

from truestep.doctor.library.loops import NAMED_AS_THESE, TAKES_BACKWARD
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, given_to, last_part, walk
from truestep.doctor.source.value_origins import argument, value_origins

Found = tuple[str, ast.expr, ast.expr | None]  # kind, node, subject

_BY_NAME = {
    "torch.autograd.backward": "backward",
    "torch.autograd.grad": "grad",
    "torch.distributed.autograd.backward": "unknown",  # its gradients are no .grad, and nothing clears them
    "torch.nn.utils.clip_grad_norm_": "clip",
    "torch.nn.utils.clip_grad_value_": "clip",
    "torch.nn.utils.clip_grad_norm": "clip",
    "torch.set_grad_enabled": "grad_mode",
    "torch.load": "load",
    "torch.cuda.empty_cache": "empty_cache",
}

HARMLESS = (
    "torch.",
    "copy.",
    "logging.",
    "wandb.",
    "math.",
    "accelerate.Accelerator",
)  # what these are given they leave as it is
ANY = "any kind of object"

# method: {kind of the object it is called on: event}
_BY_METHOD: dict[str, dict[str | None, str]] = {
    "step": {"optimizer": "step", "scheduler": "schedule", "scaler": "scaler_step"},
    "zero_grad": dict.fromkeys(("optimizer", "module", "ddp", "lightning module", None), "zero_grad"),
    "unscale_": {"scaler": "unscale", None: "unscale"},
    "update": {"scaler": "scaler_update"},
    "train": {"module": "train", "ddp": "train", "lightning module": "train", None: "train"},
    "eval": {"module": "eval", "ddp": "eval", "lightning module": "eval", None: "eval"},
    "clip_grad_norm_": {ANY: "clip"},
    "set_epoch": {ANY: "set_epoch"},
    "load_state_dict": dict.fromkeys(("module", "ddp", "lightning module"), "load_state"),
}
# the methods of an object of these kinds that leave what they are given as it is, or do one thing to it
_OF_OWN_CLASS = {
    "lightning module": {
        "toggle_optimizer": None, "untoggle_optimizer": None, "log": None, "log_dict": None, "clip_gradients": "clip",
    },
}  # fmt: skip
_OWN_METHODS = frozenset().union(*_OF_OWN_CLASS.values())
_ZEROING = ("zero_", "fill_", "detach_")
_MOVES = ("sub_", "add_", "addcmul_", "addcdiv_", "copy_")
_NAMED = frozenset((ast.Name, ast.Attribute))
BUILTINS = frozenset(dir(builtins))
_BACKWARD = ("backward", "manual_backward")


class Protocol:
    """Recognises the calls of the protocol in one file."""

    def __init__(self, module: SourceModule) -> None:
        self.module = module
        self._found: dict[ast.Call, list[Found]] = {}
        self._assigned: dict[ast.Assign | ast.AugAssign, list[Found]] = {}

    def is_protocol(self, call: ast.Call) -> bool:
        """Tell whether the call itself is an event, whatever the file defines under that name."""
        return any(kind not in ("unknown", "forward") for kind, _, _ in self.call(call))

    def is_forward(self, call: ast.Call) -> bool:
        """Tell whether a module of the user's is applied."""
        return (
            self.module.kind(call.func) in ("module", "ddp") if not self._is_known_class(call.func) else False
        )

    def _is_known_class(self, node: ast.expr) -> bool:
        qualified = self.module.qualify(node)
        return bool(qualified and "." in qualified) or self.module.classes.named(node) is not None

    def closure(self, call: ast.Call) -> Function | None:
        """Return the function that an optimizer's step, or a learner's update, calls first."""
        if (loss := self.loss_given(call)) is not None:
            return self.module.functions.named(loss)
        given = _closures_given(call)
        return self.module.functions.named(given[0]) if len(given) == 1 else None

    def loss_given(self, call: ast.Call) -> ast.expr | None:
        """Return the loss, a function, that a learner of Truestep's is updated with."""
        if self.module.qualify(call.func) == "truestep.update":
            return argument(call, 1, "loss")
        if isinstance(call.func, ast.Attribute) and self._is_learner_update(call.func):
            return argument(call, 0, "loss")
        return None

    def _is_learner_update(self, function: ast.Attribute) -> bool:
        """Tell `learner.update`: what it is called on was made by `run.learner(...)`."""
        if function.attr != "update":
            return False
        made = [each for each in value_origins(self.module, function.value) if isinstance(each, ast.Call)]
        return bool(made) and all(self.module.classes.handled(each) is not None for each in made)

    def assignment(self, node: ast.Assign | ast.AugAssign) -> list[Found]:
        """Return what an assignment does to the protocol."""
        if node not in self._assigned:
            self._assigned[node] = list(self._recognise_assignment(node))
        return self._assigned[node]

    def _recognise_assignment(self, node: ast.Assign | ast.AugAssign) -> Iterator[Found]:
        """Recognise `p.grad = None`, and a step made by hand: `p.data -= rate * p.grad`."""
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            whole = _strip_data(target)
            if _is_gradient(whole):  # also `p.grad.data = ...`
                yield "zero_grad", target, None
            in_place = isinstance(node, ast.AugAssign) or whole is not target
            if in_place and (moved := _moved_by_gradient(target, [node.value])) is not None:
                yield "update", target, moved

    def call(self, call: ast.Call) -> list[Found]:
        """Return what a call does to the protocol; "unknown" where an optimizer or a net is handed on."""
        if call not in self._found:
            self._found[call] = list(self._recognise_call(call))
        return self._found[call]

    def _recognise_call(self, call: ast.Call) -> Iterator[Found]:
        name = self._called_name(call.func)
        if name == "truestep.update":
            several = argument(call, 0, "learners")
            for each in several.elts if isinstance(several, (ast.List, ast.Tuple)) else ():
                yield "learn", call, each
        elif name in _BY_NAME:
            yield _BY_NAME[name], call, call.args[0] if call.args else None
        elif (
            isinstance(call.func, ast.Attribute) and (own := self._events_of_own_class(call.func)) is not None
        ):
            yield from ((event, call, call.func.value) for event in own)
        elif isinstance(call.func, ast.Attribute) and (
            found := list(self._recognise_method(call, call.func))
        ):
            yield from found
        elif self.is_forward(call):
            yield "forward", call, call.func
        elif self._begins_schedule(call):
            return
        elif name is None or "." not in name:
            yield from self._unknown_events_of_handed_on(call, "optimizer", "module", "ddp")
        elif not name.startswith(HARMLESS):
            yield from self._unknown_events_of_handed_on(call, "optimizer")

    def _recognise_method(self, call: ast.Call, function: ast.Attribute) -> Iterator[Found]:
        method, receiver = function.attr, function.value
        if method in _BACKWARD:
            yield "backward", call, self.loss_taken(call)
        elif self._is_learner_update(function):
            yield "learn", call, receiver
        elif method in _BY_METHOD:
            yield from self._recognise_known_method(call, method, receiver)
        elif method in _ZEROING and _is_gradient(_strip_data(receiver)):
            yield "zero_grad", call, receiver
        elif method in _MOVES and (moved := _moved_by_gradient(receiver, call.args)) is not None:
            yield "update", call, moved

    def _events_of_own_class(self, function: ast.Attribute) -> tuple[str, ...] | None:
        """Return the events of a method that a class of the program has from a library; None for any other method."""
        if function.attr not in _OWN_METHODS:
            return None
        owner = self.module.classes.of(function.value)
        methods = _OF_OWN_CLASS.get(self.module.kinds.of_class(owner) or "", {}) if owner is not None else {}
        event = methods.get(function.attr, "")
        return None if event == "" else (event,) if event is not None else ()

    def loss_taken(self, call: ast.Call) -> ast.expr | None:
        """Return what goes backward: `loss` of `loss.backward()`, and of `accelerator.backward(loss)`."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _BACKWARD:
            return None
        handed = call.func.attr == "manual_backward" or self._is_delegated_backward(call, call.func.value)
        return call.args[0] if call.args and handed else call.func.value

    def scaled(self, node: ast.AST | None) -> ast.expr | None:
        """Return the loss of `scaler.scale(loss)`; None for anything else."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
            return None
        scales = node.func.attr == "scale" and self.module.kind(node.func.value) in ("scaler", None)
        return node.args[0] if scales else None

    def is_scaled(self, loss: ast.expr | None) -> bool:
        """Tell whether what goes backward is `scaler.scale(loss)`, written there or under a name."""
        found = list(value_origins(self.module, loss)) if loss is not None else []
        return bool(found) and all(self.scaled(each) is not None for each in found)

    def _is_delegated_backward(self, call: ast.Call, receiver: ast.expr) -> bool:
        """Tell `accelerator.backward(loss)` from `loss.backward(gradient)`: by what made it, else by its name."""
        made = self.module.classes.maker_of(call)
        return made in TAKES_BACKWARD or last_part(receiver) in NAMED_AS_THESE

    def _recognise_known_method(self, call: ast.Call, method: str, receiver: ast.expr) -> Iterator[Found]:
        kind = self.module.kind(receiver)
        event = _BY_METHOD[method].get(kind, _BY_METHOD[method].get(ANY))
        if event == "scaler_step":
            yield "scaler_step", call, receiver
            if call.args:
                yield "step", call, call.args[0]
        elif event == "unscale":
            yield event, call, call.args[0] if call.args else receiver
        elif event == "train" and (mode := _training_mode(call)) is not None:
            yield "train" if mode else "eval", call, receiver
        elif event == "train" and len(call.args) == 1 and isinstance(call.args[0], (ast.Name, ast.Attribute)):
            yield "train", call, receiver  # the mode that was before is set again
        elif event is not None and event != "train":
            if event == "step" and _closures_given(call) and self.closure(call) is None:
                yield "unknown", call, receiver  # a function that is not in sight goes backward
            yield event, call, receiver

    def _called_name(self, called: ast.expr) -> str | None:
        """Return the full name of what is called; of `torch.autocast("cpu")(function)` that of autocast."""
        name = self.module.qualify(called)
        if name is None and isinstance(called, ast.Call):
            above = self.module.qualify(called.func) or ""
            return above if above.startswith("torch.") else None
        return name

    def _begins_schedule(self, call: ast.Call) -> bool:
        """Tell `super().__init__(optimizer)` of a schedule over torch's, which does nothing else with it."""
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"):
            return False
        owner = self.module.enclosing(call, ast.ClassDef)
        is_above = isinstance(call.func.value, ast.Call) and last_part(call.func.value.func) == "super"
        return is_above and owner is not None and self.module.kinds.of_class(owner) == "scheduler"

    def _unknown_events_of_handed_on(self, call: ast.Call, *kinds: str) -> Iterator[Found]:
        given = given_to(call)
        named = [each for each in given if type(each) in _NAMED]
        # most calls are ruled out by what is called, which is asked for anyway
        if (
            named
            and self.module.qualify(call.func) not in BUILTINS
            and self.module.functions.target(call) is None
            # a method of torch's own object, `averaged.update_parameters(net)`: what trains was recognised before
            and not (self.module.classes.maker_of(call) or "").startswith(HARMLESS)
        ):
            yield from (("unknown", call, each) for each in named if self.module.kind(each) in kinds)


def _closures_given(call: ast.Call) -> list[ast.expr]:
    """Return what `optimizer.step(...)` is given: the function that it calls first."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return []
    return [*call.args, *(word.value for word in call.keywords if word.arg == "closure")]


def _is_gradient(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "grad"


def _strip_data(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _moved_by_gradient(target: ast.expr, values: list[ast.expr]) -> ast.expr | None:
    """Return p for a change of `p` or `p.data` that is computed from `p.grad`."""
    moved = _strip_data(target)
    gradient = f"{dotted_name(moved)}.grad"
    inside = [each for value in values for each in walk(value)]
    return moved if any(dotted_name(each) == gradient for each in inside) else None


def _training_mode(call: ast.Call) -> bool | None:
    """Return the mode that `net.train(...)` sets; None where the call can't be torch's."""
    if len(call.args) > 1 or any(word.arg != "mode" for word in call.keywords):
        return None
    given = call.args[0] if call.args else next((word.value for word in call.keywords), None)
    if given is None:
        return True
    return bool(given.value) if isinstance(given, ast.Constant) and isinstance(given.value, bool) else None


def is_count(node: ast.Assign | ast.AugAssign) -> bool:
    """Tell a number, or something computed, that is kept under one name."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    simple = isinstance(node.value, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Name))
    return simple and len(targets) == 1 and isinstance(targets[0], (ast.Name, ast.Attribute))

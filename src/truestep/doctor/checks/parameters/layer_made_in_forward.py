# SPDX-License-Identifier: Apache-2.0
"""A layer with weights that lives for one forward."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, dotted, walk
from truestep.doctor.source.once import each_once
from truestep.doctor.source.values import argument, literal

_LEARN = re.compile(
    r"^torch\.nn\.(Linear|Bilinear|(Lazy)?Conv(Transpose)?\dd|BatchNorm\dd|LayerNorm|GroupNorm|RMSNorm|"
    r"Embedding|EmbeddingBag|RNN|LSTM|GRU|RNNCell|LSTMCell|GRUCell|PReLU|MultiheadAttention|Transformer\w*)$"
)

_REGISTER = (
    "setattr",
    "__setattr__",
    "add_module",
    "register_module",
    "append",
    "update",
    "insert",
    "setdefault",
)
_NORM = re.compile(r"Norm(\dd)?$")


class LayerMadeInForward(SourceCheck):
    """A layer with weights is made within forward().

    Why: every call makes it anew, with other random weights, that no optimizer ever holds.

    Bad:
        class Net(nn.Module):
            def forward(self, x):
                return nn.Linear(4, 3)(x)  # here

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(4, 3)

            def forward(self, x):
                return self.out(x)

    Fix: make it in __init__ and keep it on self.

    Evidence: graykode/nlp-tutorial d05e31ec 5-2.BERT/BERT.py:114; bed C: 2 true, 0 false; 186 repositories:
    1 true, 1 debatable, 0 false.
    """

    code = "PARAM031"
    words = ("def forward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one that is neither kept on an object nor given weights by hand."""
        for owner in module.kinds.classes_of("module", "ddp"):
            for call in self._made(module, self._called(module, owner)):
                name = (module.qualify(call.func) or "").rsplit(".", 1)[-1]
                text = f"This {name} is made at every forward: its weights are random each time."
                if _NORM.search(name):  # they start at 1 and 0, so it normalises all the same
                    text = f"This {name} is made at every forward: its weights are never trained."
                yield At(call, text, RISK if _NORM.search(name) else BUG)

    def _called(self, module: SourceModule, owner: Class) -> list[Function]:
        """Return forward, and the methods that it calls."""
        found: list[Function] = []
        waiting = [method] if (method := module.classes.method(owner, "forward")) is not None else []
        while waiting:
            current = waiting.pop()
            if current in found:
                continue
            found.append(current)
            for call in module.inside(current, ast.Call):
                if ast.unparse(call.func).startswith("self."):
                    inner = module.functions.target(call)
                    waiting += [inner] if inner is not None else []
        return found

    def _made(self, module: SourceModule, functions: list[Function]) -> Iterator[ast.Call]:
        for function in functions:
            for call in module.inside(function, ast.Call):
                if (
                    _LEARN.match(module.qualify(call.func) or "")
                    and not self._without_weights(module, call)
                    and not self._kept(module, call, function)
                ):
                    yield call

    def _without_weights(self, module: SourceModule, call: ast.Call) -> bool:
        options = (
            "elementwise_affine",
            "affine",
            "track_running_stats",
        )  # the last: a mere function is meant
        plain = (literal(module, argument(call, None, name)) for name in options)
        return any(value is False for value in plain)

    def _kept(self, module: SourceModule, call: ast.Call, function: Function) -> bool:
        """It goes to an attribute, or its weights are set: `conv.weight = ...`, `conv.weight.data.copy_(...)`."""
        if _is_made_once(module, call):
            return True
        statement = module.statement(call)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(not isinstance(each, ast.Name) for each in targets) or isinstance(statement, ast.Return):
            return any(not isinstance(each, ast.Name | ast.Tuple) for each in targets)
        names = {each.id for each in targets if isinstance(each, ast.Name)}
        return any(
            isinstance(node, ast.Attribute)
            and node.attr in ("weight", "load_state_dict", "parameters", "add_module")
            and isinstance(node.value, ast.Name)
            and node.value.id in names
            for node in walk(function)
        )


def _is_made_once(module: SourceModule, layer: ast.expr) -> bool:
    """Tell a layer that is made under a test, or behind a way out, and registered: with the first input, say."""
    ways = list(each_once([layer], lambda each: [*_places_given(module, each), *_calls_around(module, each)]))
    return any(_is_guarded(module, each) for each in ways) and any(_registers(module, each) for each in ways)


def _places_given(module: SourceModule, value: ast.expr) -> list[ast.expr]:
    """Return where the name that a value is given is read as a whole."""
    node: ast.AST = value
    while (
        isinstance(above := module.parents[node], ast.expr | ast.keyword)
        and getattr(above, "func", None) is not node
    ):
        node = above
    targets = above.targets if isinstance(above, ast.Assign) else []
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    scope = module.scope(value)
    return [each for name in names for each in module.reads(name) if module.scope(each) is scope]


def _calls_around(module: SourceModule, value: ast.expr) -> list[ast.expr]:
    """Return the calls of the method in which a layer is made, but for forward's: they may give it away, or be guarded."""
    function = module.scope(value)
    is_forward = getattr(function, "name", "forward") == "forward"
    return [] if is_forward or not isinstance(function, Function) else [*module.functions.callers(function)]


def _is_guarded(module: SourceModule, node: ast.expr) -> bool:
    """Tell what stands under an `if`, or behind one by which its function is left."""
    function = module.scope(node)
    if any(isinstance(each, ast.If) and module.scope(each) is function for each in module.ancestors(node)):
        return True
    body = function.body if isinstance(function, ast.FunctionDef) else []
    return any(
        isinstance(each, ast.If) and each.lineno < node.lineno and isinstance(each.body[-1], ast.Return)
        for each in body
    )


def _registers(module: SourceModule, node: ast.expr) -> bool:
    """Tell `setattr(self, name, layer)`, `self.add_module(name, layer)` and what is stored or appended on an object."""
    for above in module.ancestors(node):
        if isinstance(above, ast.Call):
            name = dotted(above.func) or ""
            if above.func is node or name.rpartition(".")[2] not in _REGISTER:
                continue
            return name == "setattr" or "." in name
        if isinstance(above, ast.stmt):
            targets = above.targets if isinstance(above, ast.Assign) else []
            is_called = isinstance(above, ast.Assign) and _is_applied(module, node)
            return not is_called and any(isinstance(each, ast.Attribute | ast.Subscript) for each in targets)
    return False


def _is_applied(module: SourceModule, node: ast.expr) -> bool:
    above = module.parents[node]
    return isinstance(above, ast.Call) and above.func is node

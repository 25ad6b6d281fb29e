# SPDX-License-Identifier: Apache-2.0
"""A layer with weights that lives for one forward."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, walk
from truestep.doctor.source.values import argument, literal

_LEARN = re.compile(
    r"^torch\.nn\.(Linear|Bilinear|(Lazy)?Conv(Transpose)?\dd|BatchNorm\dd|LayerNorm|GroupNorm|RMSNorm|"
    r"Embedding|EmbeddingBag|RNN|LSTM|GRU|RNNCell|LSTMCell|GRUCell|PReLU|MultiheadAttention|Transformer\w*)$"
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
        for owner in module.classes_of_kind("module", "ddp"):
            for call in self._made(module, self._called(module, owner)):
                name = (module.qualify(call.func) or "").rsplit(".", 1)[-1]
                text = f"This {name} is made at every forward: its weights are random each time."
                if _NORM.search(name):  # they start at 1 and 0, so it normalises all the same
                    text = f"This {name} is made at every forward: its weights are never trained."
                yield At(call, text, RISK if _NORM.search(name) else BUG)

    def _called(self, module: SourceModule, owner: Class) -> list[Function]:
        """Return forward, and the methods that it calls."""
        found: list[Function] = []
        waiting = [method] if (method := module.method(owner, "forward")) is not None else []
        while waiting:
            current = waiting.pop()
            if current in found:
                continue
            found.append(current)
            for call in module.inside(current, ast.Call):
                if ast.unparse(call.func).startswith("self."):
                    inner = module.target(call)
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

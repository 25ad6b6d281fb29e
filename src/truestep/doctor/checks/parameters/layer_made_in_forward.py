# SPDX-License-Identifier: Apache-2.0
"""A layer with weights that lives for one forward."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, BUG, RISK, At, SourceCheck
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, dotted_name, is_none, last_part, walk
from truestep.doctor.source.value_origins import argument, literal

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
_WITHOUT_WEIGHTS = ("generate_square_subsequent_mask",)
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

    Evidence: graykode/nlp-tutorial d05e31ec 5-2.BERT/BERT.py:114; 186 repositories, beds C, E, F, G, H, I, K,
    M, Q, R, T, V: 21 true, 3 debatable, 6 false.
    """

    code = "PARAM031"
    words = ("def forward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one that is neither kept on an object nor given weights by hand."""
        for owner in module.kinds.classes_of("module", "ddp"):
            for call in self._weighted_layers_made(module, self._forward_and_called_methods(module, owner)):
                name = (module.qualify(call.func) or "").rsplit(".", 1)[-1]
                text = f"This {name} is made at every forward: its weights are random each time."
                if _NORM.search(name):  # they start at 1 and 0, so it normalises all the same
                    text = f"This {name} is made at every forward: its weights are never trained."
                severity = RISK if _NORM.search(name) else BUG
                yield At(call, text, ADVICE if _is_layer_unread(module, call) else severity)

    def _forward_and_called_methods(self, module: SourceModule, owner: Class) -> list[Function]:
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

    def _weighted_layers_made(self, module: SourceModule, functions: list[Function]) -> Iterator[ast.Call]:
        for function in functions:
            for call in module.inside(function, ast.Call):
                if (
                    _LEARN.match(module.qualify(call.func) or "")
                    and not self._is_layer_without_weights(module, call)
                    and not self._is_layer_kept_or_initialised(module, call, function)
                ):
                    yield call

    def _is_layer_without_weights(self, module: SourceModule, call: ast.Call) -> bool:
        options = (
            "elementwise_affine",
            "affine",
            "track_running_stats",
        )  # the last: a mere function is meant
        plain = (literal(module, argument(call, None, name)) for name in options)
        return any(value is False for value in plain)

    def _is_layer_kept_or_initialised(self, module: SourceModule, call: ast.Call, function: Function) -> bool:
        """It goes to an attribute, its weights are set (`conv.weight = ...`), or it only makes a mask."""
        if (
            _is_only_weightless_method_read(module, call)
            or _is_created_once_and_registered(module, call)
            or _is_fallback_for_missing_layer(module, call, function)
        ):
            return True
        statement = module.statement(call)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(not isinstance(each, ast.Name) for each in targets) or isinstance(statement, ast.Return):
            return any(not isinstance(each, (ast.Name, ast.Tuple)) for each in targets)
        names = {each.id for each in targets if isinstance(each, ast.Name)}
        return any(
            isinstance(node, ast.Attribute)
            and node.attr in ("weight", "load_state_dict", "parameters", "add_module")
            and isinstance(node.value, ast.Name)
            and node.value.id in names
            for node in walk(function)
        )


def _is_layer_unread(module: SourceModule, layer: ast.Call) -> bool:
    """Tell a layer that is given a name which nothing reads: what is computed lacks it anyway."""
    above = module.parents[layer]
    target = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    return isinstance(target, ast.Name) and not _reads_of_assigned_name(module, layer)


def _is_only_weightless_method_read(module: SourceModule, layer: ast.Call) -> bool:
    """Tell a layer of which all that is read is a method that reads no weight: `nn.Transformer().NAME(5)`."""
    above = module.parents[layer]
    reads: list[ast.expr] = (
        [layer] if isinstance(above, ast.Attribute) else _reads_of_assigned_name(module, layer)
    )
    kept = isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name)
    if not reads or not (kept or isinstance(above, ast.Attribute)):
        return False
    asked = [module.parents[each] for each in reads]
    return all(isinstance(each, ast.Attribute) and each.attr in _WITHOUT_WEIGHTS for each in asked)


def _is_created_once_and_registered(module: SourceModule, layer: ast.expr) -> bool:
    """Tell a layer that is made under a test, or behind a way out, and registered: with the first input, say."""
    ways = list(
        walk_each_once(
            [layer],
            lambda each: [*_reads_of_assigned_name(module, each), *_calls_of_enclosing_method(module, each)],
        )
    )
    return any(_is_conditional(module, each) for each in ways) and any(
        _registers_module(module, each) for each in ways
    )


def _is_fallback_for_missing_layer(module: SourceModule, layer: ast.Call, function: Function) -> bool:
    """Tell a layer that is made only where the object has none of its own, which another method gives it."""
    owner = module.enclosing(function, ast.ClassDef)
    inner: ast.AST = layer
    for above in module.ancestors(layer):
        if above is function or owner is None:
            return False
        name = _attribute_missing_in_branch(above, inner)
        if name is not None and _is_attribute_set_elsewhere(module, owner, name, function):
            return True
        inner = above
    return False


def _attribute_missing_in_branch(above: ast.AST, inner: ast.AST) -> str | None:
    """Return the attribute of self that is not there where a part of an `if`, or of a `getattr`, is reached."""
    match above:
        case ast.Call(func=ast.Name("getattr"), args=[ast.Name("self"), ast.Constant(str(name)), default]):
            return name if inner is default else None
        case ast.If(test=test, body=body, orelse=orelse):
            is_else = inner in orelse
            return _attribute_tested_missing(test, is_else) if is_else or inner in body else None
        case ast.IfExp(test=test, body=whole, orelse=other) if inner in (whole, other):
            return _attribute_tested_missing(test, inner is other)
    return None


def _attribute_tested_missing(test: ast.expr, is_else: bool) -> str | None:
    """Return NAME of `hasattr(self, NAME)` in its `else`, and of `not hasattr(...)` or `self.NAME is None` where it holds."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _attribute_tested_missing(inner, not is_else)
        case ast.Call(func=ast.Name("hasattr"), args=[ast.Name("self"), ast.Constant(str(name))]) if is_else:
            return name
        case ast.Compare(
            left=ast.Attribute(ast.Name("self"), name), ops=[ast.Is()], comparators=[ast.Constant(None)]
        ):
            return name if not is_else else None
        case ast.Compare(
            left=ast.Attribute(ast.Name("self"), name), ops=[ast.IsNot()], comparators=[ast.Constant(None)]
        ):
            return name if is_else else None
    return None


def _is_attribute_set_elsewhere(module: SourceModule, owner: Class, name: str, function: Function) -> bool:
    """Tell whether another method, or code outside, gives an object an attribute that is not None."""
    bindings = module.resolver.attribute_bindings(owner, name)
    if any(not is_none(each.value) and module.scope(each.node) is not function for each in bindings):
        return True
    calls = [each for each in module.inside(owner, ast.Call) if module.scope(each) is not function]
    return any(
        last_part(each.func) in ("setattr", "add_module", "register_module")
        and any(isinstance(part, ast.Constant) and part.value == name for part in each.args)
        for each in calls
    )


def _reads_of_assigned_name(module: SourceModule, value: ast.expr) -> list[ast.expr]:
    """Return where the name that a value is given is read as a whole."""
    node: ast.AST = value
    while (
        isinstance(above := module.parents[node], (ast.expr, ast.keyword))
        and getattr(above, "func", None) is not node
    ):
        node = above
    targets = above.targets if isinstance(above, ast.Assign) else []
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    scope = module.scope(value)
    return [each for name in names for each in module.reads(name) if module.scope(each) is scope]


def _calls_of_enclosing_method(module: SourceModule, value: ast.expr) -> list[ast.expr]:
    """Return the calls of the method in which a layer is made, but for forward's: they may give it away, or be guarded."""
    function = module.scope(value)
    is_forward = getattr(function, "name", "forward") == "forward"
    return [] if is_forward or not isinstance(function, Function) else [*module.functions.callers(function)]


def _is_conditional(module: SourceModule, node: ast.expr) -> bool:
    """Tell what stands under an `if`, or behind one by which its function is left."""
    function = module.scope(node)
    if any(isinstance(each, ast.If) and module.scope(each) is function for each in module.ancestors(node)):
        return True
    body = function.body if isinstance(function, ast.FunctionDef) else []
    return any(
        isinstance(each, ast.If) and each.lineno < node.lineno and isinstance(each.body[-1], ast.Return)
        for each in body
    )


def _registers_module(module: SourceModule, node: ast.expr) -> bool:
    """Tell `setattr(self, name, layer)`, `self.add_module(name, layer)` and what is stored or appended on an object."""
    for above in module.ancestors(node):
        if isinstance(above, ast.Call):
            name = dotted_name(above.func) or ""
            if above.func is node or name.rpartition(".")[2] not in _REGISTER:
                continue
            return name == "setattr" or "." in name
        if isinstance(above, ast.stmt):
            targets = above.targets if isinstance(above, ast.Assign) else []
            is_called = isinstance(above, ast.Assign) and _is_called(module, node)
            return not is_called and any(isinstance(each, (ast.Attribute, ast.Subscript)) for each in targets)
    return False


def _is_called(module: SourceModule, node: ast.expr) -> bool:
    above = module.parents[node]
    return isinstance(above, ast.Call) and above.func is node

# SPDX-License-Identifier: Apache-2.0
"""A value computed and read by nothing."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, QUESTION, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted, walk
from truestep.doctor.source.uses import is_in_comment, names_read, places_read, uses_of

# what measures a tensor, for a log that is gone, and what no tensor comes from
_ASKS = operations(numbers="measured averaged reduced chosen") | operations(shape="gone")
_SHAPES = operations(numbers="kept", shape="same other")
_BUILTINS = ("dict", "list", "tuple", "int", "float", "str", "hasattr", "getattr", "len", "isinstance")
# methods that change a module where it is, or only where a tensor lies: to drop what they give is no mistake of training
_MOVES = operations(numbers="kept itself home moved rounded", shape="same")
_WRAPPINGS = operations(numbers="copied") | {"array", "Variable"}
_TO_DEVICE = ("cuda", "cpu", "to")
_JOINS = operations(numbers="joined") | {"concatenate"}
_DOES_NOTHING = re.compile(r"Norm|\.Identity$")  # what changes no number, or hardly
_CHANGES = re.compile("Norm|Dropout|RNN|LSTM|GRU|Spectral|RReLU")  # layers that draw, or move with each call
_TRAINED_WITH = ("forward", "training_step", "__getitem__")


class ResultNeverUsed(SourceCheck):
    """A tensor is computed from another, and then the first is used again instead of the result.

    Why: the masking, reshaping or normalising has no effect on the loss.

    Bad:
        class Attention(nn.Module):
            def forward(self, query, key, value, mask):
                scores = query @ key.transpose(1, 2)
                weights = scores.softmax(-1)
                scores = scores.masked_fill(mask, 0.0)  # here
                return weights @ value

    Good:
        class Attention(nn.Module):
            def forward(self, query, key, value, mask):
                scores = query @ key.transpose(1, 2)
                scores = scores.masked_fill(mask, float("-inf"))
                weights = scores.softmax(-1)
                return weights @ value

    Fix: use the result, or delete the line.

    Evidence: 186 repositories, beds A, B, C, D, E, F, G, H, I, K, L, M, N, O, P: 11 true, 43 debatable, 5
    false.
    """

    code = "VALUE001"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report assignments read on no way, where a new value of a name or a copy of what is used later is lost."""
        if "torch" not in module.text:
            return
        for function in module.named_functions:
            for node in uses_of(module, function).unread():
                name = node.targets[0]
                if (
                    isinstance(name, ast.Name)
                    and not name.id.startswith("_")
                    and _is_computation(module, node.value)
                ):
                    if (text := _lost(module, function, node, name.id)) is not None:
                        is_kept = isinstance(
                            node.value, ast.Name
                        )  # another name for a value that is used by its own
                        is_trained_with = not is_kept and _is_trained_with(module, function)
                        is_trained_with = is_trained_with and not _is_left_over(module, function, node)
                        yield At(node, text, QUESTION if is_trained_with else ADVICE)


def _is_trained_with(module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether what a function computes is trained with: it is, or serves, a forward, a loss or a data set."""
    if function.name in _TRAINED_WITH or any(module.scope(each) is function for each in losses_of(module)):
        return True
    if any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in walk(function)):
        return True
    owner = module.enclosing(function, ast.ClassDef)
    forward = module.classes.method(owner, "forward")
    return forward is not None and any(
        isinstance(each, ast.Attribute) and each.attr == function.name for each in walk(forward)
    )


def _is_left_over(module: SourceModule, function: Function, node: ast.Assign) -> bool:
    """Tell a value whose use is commented out, or that is made again, and a wrapping of what is used: nothing is missing."""
    lines = module.text.splitlines()[function.lineno - 1 : _end_of(module, function)]
    if is_in_comment("\n".join(lines), dotted(node.targets[0]) or ""):
        return True
    value = _before_moves(node.value)
    if not isinstance(value, ast.Call):
        return False
    library, _, name = (module.qualify(value.func) or "").rpartition(".")
    of_tensors = library in ("torch", "torch.autograd", "numpy")
    # `scores = torch.cat(scores)`: what was gathered for a figure that is gone
    joins = name in _JOINS and [ast.unparse(each) for each in value.args[:1]] == [dotted(node.targets[0])]
    return (of_tensors and (name in _WRAPPINGS or joins)) or _is_applied_again(module, function, value)


def _before_moves(value: ast.expr) -> ast.expr:
    """Return what is moved to a device: `torch.tensor(x)` of `torch.tensor(x).cuda()`."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _TO_DEVICE
    ):
        value = value.func.value
    return value


def _is_applied_again(module: SourceModule, function: Function, call: ast.Call) -> bool:
    """Tell whether a layer that neither draws nor moves is applied to the same values once more: only time is lost."""
    if _layer_of(module, call) is None or not _is_steady(module, call.func):
        return False
    text, given = ast.unparse(call), _reached_in(module, call)
    again = [
        each for each in module.inside(function, ast.Call) if each is not call and ast.unparse(each) == text
    ]
    return any(_reached_in(module, each) == given for each in again)


def _reached_in(module: SourceModule, call: ast.Call) -> list[list[ast.AST]]:
    names = [each for each in walk(call) if isinstance(each, ast.Name)]
    return [[binding.node for binding in module.resolver.reaching(each)] for each in names]


def _is_steady(module: SourceModule, layer: ast.expr) -> bool:
    """Tell a layer of torch's that gives the same for the same, and is as it was behind it; so are those in a Sequential."""
    made = [each for each in module.definitions(layer) if each is not None]
    calls = [part for each in made for part in walk(each) if isinstance(part, ast.Call)]
    names = [module.qualify(each.func) or "" for each in calls]
    return all(each.startswith("torch.nn.") and _CHANGES.search(each) is None for each in names)


def _end_of(module: SourceModule, function: Function) -> int:
    """Return the last line before what follows a function: comments at its end belong to it."""
    end = function.end_lineno or function.lineno
    lines = module.text.splitlines()
    while end < len(lines) and (not lines[end].strip() or lines[end].lstrip().startswith("#")):
        end += 1
    return end


def _lost(module: SourceModule, function: Function, node: ast.Assign, name: str) -> str | None:
    if isinstance(node.value, ast.Name) and node.value.id == name:
        return None  # `x = x`
    if name in names_read(node.value):
        return f"This new value of {name!r} is never used." if not _only_reshapes(node.value) else None
    read = names_read(function)
    if (layer := _layer_of(module, node.value)) is not None:
        return f"The output of {layer} is never used: {name!r} is given it in vain."
    if name in read:
        return None
    if isinstance(node.value, ast.Name):
        owner = module.enclosing(node, ast.ClassDef)
        is_layer = owner is not None and module.kinds.of_class(owner) == "module"
        return f"{name!r} keeps {node.value.id!r}, and nothing uses it." if is_layer else None
    for place in _made_from(module, node.value):
        last = place.rsplit(".", 1)[-1]
        if (last == name or name.startswith(f"{last}_")) and len(last) > 2:
            later = [each.lineno for each in places_read(function, place)]
            if any(line > (node.end_lineno or node.lineno) for line in later):
                return f"Nothing uses {name!r}: what follows uses {place!r}, from which it is made."
    return None


def _layer_of(module: SourceModule, value: ast.expr) -> str | None:
    """Return the layer `self.NAME` of a module that a call applies, if torch made it."""
    layer = value.func if isinstance(value, ast.Call) and value.args else None
    if not isinstance(layer, ast.Attribute) or dotted(layer.value) != "self":
        return None
    made = module.definitions(layer)
    kept = bool(made) and all(isinstance(each, ast.Call) for each in made)
    names = [module.qualify(each.func) or "" for each in made if isinstance(each, ast.Call)]
    own = kept and all(each.startswith("torch.nn.") and not _DOES_NOTHING.search(each) for each in names)
    return ast.unparse(layer) if own else None


def _only_reshapes(value: ast.expr) -> bool:
    """Tell `x = x.squeeze(1)` at an end: a shape that nobody asks for is tidied, and no number is lost."""
    return isinstance(value, ast.Call) and getattr(value.func, "attr", "") in _SHAPES


def _made_from(module: SourceModule, value: ast.expr) -> list[str]:
    """Return what `x.method(...)`, `f(x)` and `x[...]` are made from; a file that is imported holds no earlier value."""
    if isinstance(value, ast.Call):
        parts = [*value.args, *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
    else:
        parts = [value.value if isinstance(value, ast.Subscript) else value]
    return [place for each in parts if (place := dotted(each)) is not None and module.qualify(each) is None]


def _is_computation(module: SourceModule, value: ast.expr) -> bool:
    """Tell a computation from a conversion, a measure, or something made that is no tensor."""
    if module.kind(value) is not None:
        return False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        moved = isinstance(value.func.value, ast.Name) and value.func.attr in _MOVES
        return (
            not moved
            and value.func.attr not in _ASKS
            and (dotted(value.func) or "").partition(".")[0] != "os"
        )
    if isinstance(value, ast.IfExp):
        return _is_computation(module, value.body) and isinstance(value.body, ast.Call)
    converts = isinstance(value, ast.Call) and dotted(value.func) in _BUILTINS
    return isinstance(value, (ast.Call, ast.Subscript, ast.Name, ast.BinOp)) and not converts

# SPDX-License-Identifier: Apache-2.0
"""A value computed and read by nothing."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.live_variables import names_read, places_read, value_uses
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name

# what measures a tensor, for a log that is gone, and what no tensor comes from
_ASKS = operations(numbers="measured averaged reduced chosen") | operations(shape="gone")
_SHAPES = operations(numbers="kept", shape="same other")
_BUILTINS = ("dict", "list", "tuple", "int", "float", "str", "hasattr", "getattr", "len", "isinstance")
# methods that change a module where it is, or only where a tensor lies: to drop what they give is no mistake of training
_MOVES = operations(numbers="kept itself home moved rounded", shape="same")
_DOES_NOTHING = re.compile(r"Norm|\.Identity$")  # what changes no number, or hardly


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

    Evidence: 186 repositories, beds A, B, C, D, E, F, G, H, I, K, L, M, N, O, P, Q: 12 true, 43 debatable, 6
    false.
    """

    code = "VALUE001"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report assignments read on no way, where a new value of a name or a copy of what is used later is lost."""
        if "torch" not in module.text:
            return
        for function in module.named_functions:
            for node in value_uses(module, function).unread_assignments():
                name = node.targets[0]
                if (
                    isinstance(name, ast.Name)
                    and _is_checkpoint_dict(node.value)
                    and name.id not in names_read(function)
                ):
                    yield At(
                        node, f"Nothing saves {name.id!r}, which holds the state of an object.", QUESTION
                    )
                    continue
                if (
                    isinstance(name, ast.Name)
                    and not name.id.startswith("_")
                    and _is_tensor_computation(module, node.value)
                    and (text := _unused_result_message(module, function, node, name.id)) is not None
                ):
                    yield At(node, text, QUESTION)


def _unused_result_message(
    module: SourceModule, function: Function, node: ast.Assign, name: str
) -> str | None:
    if isinstance(node.value, ast.Name) and node.value.id == name:
        return None  # `x = x`
    if name in names_read(node.value):
        return f"This new value of {name!r} is never used." if not _is_only_reshape(node.value) else None
    read = names_read(function)
    if (layer := _applied_torch_layer(module, node.value)) is not None:
        return f"The output of {layer} is never used: {name!r} is given it in vain."
    if name in read:
        return None
    if isinstance(node.value, ast.Name):
        owner = module.enclosing(node, ast.ClassDef)
        is_layer = owner is not None and module.kinds.of_class(owner) == "module"
        return f"{name!r} keeps {node.value.id!r}, and nothing uses it." if is_layer else None
    for place in _source_names(module, node.value):
        last = place.rsplit(".", 1)[-1]
        if (last == name or name.startswith(f"{last}_")) and len(last) > 2:
            later = [each.lineno for each in places_read(function, place)]
            if any(line > (node.end_lineno or node.lineno) for line in later):
                return f"Nothing uses {name!r}: what follows uses {place!r}, from which it is made."
    return None


def _is_checkpoint_dict(value: ast.expr) -> bool:
    """Tell what is put together for a checkpoint: `{"net": net.state_dict()}`, `dict(net=net.state_dict())`."""
    parts: list[ast.expr | None] = []
    if isinstance(value, ast.Dict):
        parts = [*value.values]
    elif isinstance(value, ast.Call) and dotted_name(value.func) == "dict":
        parts = [each.value for each in value.keywords]
    return any(
        isinstance(each, ast.Call) and getattr(each.func, "attr", "") == "state_dict" for each in parts
    )


def _applied_torch_layer(module: SourceModule, value: ast.expr) -> str | None:
    """Return the layer `self.NAME` of a module that a call applies, if torch made it."""
    layer = value.func if isinstance(value, ast.Call) and value.args else None
    if not isinstance(layer, ast.Attribute) or dotted_name(layer.value) != "self":
        return None
    made = module.definitions(layer)
    kept = bool(made) and all(isinstance(each, ast.Call) for each in made)
    names = [module.qualify(each.func) or "" for each in made if isinstance(each, ast.Call)]
    own = kept and all(each.startswith("torch.nn.") and not _DOES_NOTHING.search(each) for each in names)
    return ast.unparse(layer) if own else None


def _is_only_reshape(value: ast.expr) -> bool:
    """Tell `x = x.squeeze(1)` at an end: a shape that nobody asks for is tidied, and no number is lost."""
    return isinstance(value, ast.Call) and getattr(value.func, "attr", "") in _SHAPES


def _source_names(module: SourceModule, value: ast.expr) -> list[str]:
    """Return what `x.method(...)`, `f(x)` and `x[...]` are made from; a file that is imported holds no earlier value."""
    if isinstance(value, ast.Call):
        parts = [*value.args, *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
    else:
        parts = [value.value if isinstance(value, ast.Subscript) else value]
    return [
        place for each in parts if (place := dotted_name(each)) is not None and module.qualify(each) is None
    ]


def _is_tensor_computation(module: SourceModule, value: ast.expr) -> bool:
    """Tell a computation from a conversion, a measure, or something made that is no tensor."""
    if module.kind(value) is not None:
        return False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        moved = isinstance(value.func.value, ast.Name) and value.func.attr in _MOVES
        return (
            not moved
            and value.func.attr not in _ASKS
            and (dotted_name(value.func) or "").partition(".")[0] != "os"
        )
    if isinstance(value, ast.IfExp):
        return _is_tensor_computation(module, value.body) and isinstance(value.body, ast.Call)
    converts = isinstance(value, ast.Call) and dotted_name(value.func) in _BUILTINS
    return isinstance(value, (ast.Call, ast.Subscript, ast.Name, ast.BinOp)) and not converts

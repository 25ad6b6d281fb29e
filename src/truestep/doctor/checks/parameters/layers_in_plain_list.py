# SPDX-License-Identifier: Apache-2.0
"""Layers in a Python list or dict."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, QUESTION, RISK, At, SourceCheck
from truestep.doctor.library.layers import LAYERS_WITHOUT_WEIGHTS
from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, local_name_of, wrap_in_call
from truestep.doctor.source.value_origins import argument, has_star_args, literal

# layers without weights whose mode matters
_WITH_MODE = re.compile(r"^torch\.nn\.(\w*Dropout\dd|\w*Dropout|RReLU)$")
_NORMS = re.compile(r"^torch\.nn\.(?:Lazy)?(InstanceNorm|BatchNorm|LayerNorm|RMSNorm|GroupNorm)(?:\dd)?$")
# by kind: the options that give it weights or statistics, where they stand, and whether they are on
_OPTIONS_OF_NORMS = {
    "InstanceNorm": (("affine", 3, False), ("track_running_stats", 4, False)),
    "BatchNorm": (("affine", 3, True), ("track_running_stats", 4, True)),
    "LayerNorm": (("elementwise_affine", 2, True),),
    "RMSNorm": (("elementwise_affine", 2, True),),
    "GroupNorm": (("affine", 3, True),),
}
_HOLDERS = ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
_ASKS_FOR_WEIGHTS = re.compile(
    r"^((named_)?parameters|(load_)?state_dict|save|to|cuda|backward|train|eval|fit|optim|modules|children)$"
)
_REGISTERING = ("add_module", "register_module", "setattr", "__setattr__")


class LayersInPlainList(SourceCheck):
    """A module keeps layers in a Python list, tuple or dict.

    Why: parameters(), state_dict() and .to() don't see them: they are never trained, saved or moved.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Linear(3, 3) for _ in range(4)]  # here

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])

    Fix: nn.ModuleList, nn.ModuleDict, or nn.ParameterList for parameters.

    Evidence: corpus, 186 repositories, beds B, E, F, G, H, I, K, P, Q, R, T, U, V, W, X, Y: 39 true, 3
    debatable, 9 false.
    """

    code = "PARAM001"
    words = ("Module",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an attribute that is a display of modules, unless it is registered elsewhere."""
        for owner in module.kinds.classes_of("module"):
            for name, bindings in module.classes.attributes(owner).items():
                for binding in bindings:
                    if (
                        binding.value is None
                        or binding.how != "assign"
                        or isinstance(module.parents[binding.node], ast.ClassDef)
                    ):
                        continue
                    held = _layer_calls_in_container(module, binding.value) or _appended_modules(
                        module, owner, name, binding.value
                    )
                    if (
                        not held
                        or _is_registered_elsewhere(module, owner, name)
                        or _is_moved_by_itself(module, owner, name)
                    ):
                        continue
                    kind = _container_type_name(binding.value)
                    if any(_makes_stateful_module(module, each, modes=False) for each in held):
                        text = f"self.{name} is a plain {kind}: parameters() misses its layers."
                        quiet = _is_model_only_applied(module, owner) or _has_unfinished_forward(
                            module, owner
                        )
                        yield At(binding.node, text, QUESTION if quiet else BUG)
                    else:
                        text = f"self.{name} is a plain {kind}: train() and eval() miss its layers."
                        yield At(binding.node, text, RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Register the layers."""
        if not isinstance(node, ast.Assign) or not isinstance(node.value, (ast.List, ast.ListComp)):
            raise SourceRewriteError
        return wrap_in_call(module, node.value, f"{local_name_of(module, 'torch.nn')}.ModuleList")


def _is_model_only_applied(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell a program that makes such a model, and asks no model for its weights: no training, copy or file lacks any."""
    made = any(
        file.classes.named(each.func) is owner
        for file in module.program.linked
        for each in file.all(ast.Call)
    )
    return (
        made
        and not module.program.is_imported()
        and not any(map(_ASKS_FOR_WEIGHTS.match, module.program.identifiers))
    )


def _is_moved_by_itself(module: SourceModule, owner: ast.ClassDef, name: str) -> bool:
    """Tell a list whose members the class's own `to` or `cuda` moves, and whose owner nobody asks for its weights."""
    moves = [module.classes.method(owner, each) for each in ("to", "cuda")]
    if not any(
        move in owner.body and any(each.attr == name for each in module.inside(move, ast.Attribute))
        for move in moves
        if move is not None
    ):
        return False
    made = {each for file in module.program.linked for each in file.method_calls("parameters", "state_dict")}
    asked = [each.func.value for each in made if isinstance(each.func, ast.Attribute)]
    return not any(owner in module.classes.lineage(module.home(each).classes.of(each)) for each in asked)


def _has_unfinished_forward(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell a module whose own forward does nothing yet."""
    forwards = [each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "forward"]
    return any(
        all(_is_placeholder_statement(line) for line in each.body) for each in forwards
    ) and not module.classes.subclasses_of(owner)


def _is_placeholder_statement(line: ast.stmt) -> bool:
    return isinstance(line, (ast.Pass, ast.Raise)) or (
        isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    )


def _layer_calls_in_container(module: SourceModule, value: ast.expr) -> list[ast.Call]:
    """Return the calls that make layers which a display holds, where all that it holds are layers or functions of torch's."""
    parts = list(_elements_of_container(value))
    made = [
        call
        for each in parts
        if (call := _constructor_call(each)) is not None and _makes_stateful_module(module, call)
    ]
    others = [each for each in parts if _constructor_call(each) not in made]
    return made if all(_is_weightless_layer_or_function(module, each) for each in others) else []


def _elements_of_container(value: ast.expr) -> Iterator[ast.expr]:
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
            yield from parts
        case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.DictComp(value=part):
            yield part
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _elements_of_container(left)
            yield from _elements_of_container(right)
        case ast.BinOp(left=left, op=ast.Mult()):
            yield from _elements_of_container(left)


def _constructor_call(part: ast.expr) -> ast.Call | None:
    """Return the call that makes a value; `.to(device)` and its like return what they are called on."""
    match part:
        case ast.Call(func=ast.Attribute(value=ast.Call() as made, attr=name)) if name in SAME_NUMBERS:
            return _constructor_call(made)
        case ast.Call():
            return part
    return None


def _is_weightless_layer_or_function(module: SourceModule, part: ast.expr) -> bool:
    """Tell a layer without weights, or a function, that stands between layers."""
    made = _constructor_call(part)
    name = module.qualify(part if made is None else made.func) or ""
    if made is None:
        return name.startswith("torch.")
    return name in LAYERS_WITHOUT_WEIGHTS


def _makes_stateful_module(module: SourceModule, call: ast.Call, modes: bool = True) -> bool:
    """Tell a call that makes a module with weights or buffers, or, with `modes`, one that knows whether it is trained."""
    name = module.qualify(call.func) or ""
    if (made := module.classes.named(call.func)) is not None:
        return module.kinds.of_class(made) == "module" and _has_state(module, made, modes, set())
    if name.rpartition(".")[2] in _HOLDERS and (held := _calls_in_holder(call)):
        # a layer of a library out of sight, as einops' Rearrange, may have no weights
        return any(_makes_stateful_module(module, each, modes) for each in held)
    return _is_stateful_torch_layer(name, modes) and not _is_norm_without_state(module, call)


def _calls_in_holder(call: ast.Call) -> list[ast.Call]:
    """Return the calls that make what a Sequential or its like holds; none where something else is among it."""
    parts = [
        each
        for given in call.args
        for each in (_elements_of_container(given) if _is_display(given) else [given])
    ]
    made = [each for each in parts if isinstance(each, ast.Call)]
    return made if len(made) == len(parts) else []


def _is_display(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp))


def _is_norm_without_state(module: SourceModule, call: ast.Call) -> bool:
    """Tell a norm that is made without weights and without running statistics: nothing to train, to save or to move."""
    norm = _NORMS.match(module.qualify(call.func) or "")
    if norm is None or has_star_args(call):
        return False
    options = _OPTIONS_OF_NORMS[norm[1]]
    given = [(argument(call, at, name), default) for name, at, default in options]
    return all(
        not (default if each is None else literal(module, each) is not False) for each, default in given
    )


def _is_stateful_torch_layer(name: str, modes: bool) -> bool:
    """Tell a layer of torch's with weights or, with `modes`, with a mode."""
    if not (name.startswith("torch.nn.") and name.count(".") == 2 and name[9:10].isupper()):
        return False
    if name in LAYERS_WITHOUT_WEIGHTS or name.endswith(("Loss", ".Module")):
        return modes and bool(_WITH_MODE.match(name))
    return True


def _has_state(module: SourceModule, owner: ast.ClassDef, modes: bool, seen: set[ast.ClassDef]) -> bool:
    """Tell whether a module of the program has weights or buffers, or a mode; what can't be seen of it counts as such."""
    seen.add(owner)
    lineage = module.classes.lineage(owner)
    bases = [each for one in lineage for each in one.bases if module.classes.named(each) not in lineage]
    if any(module.qualify(each) != "torch.nn.Module" for each in bases):
        return True
    if modes and any(
        isinstance(each, ast.Attribute) and ast.unparse(each) == "self.training"
        for one in lineage
        for each in walk(one)
    ):
        return True
    for call in (each for one in lineage for each in walk(one) if isinstance(each, ast.Call)):
        made, name = module.classes.named(call.func), module.qualify(call.func) or ""
        if made is not None and made not in seen and module.kinds.of_class(made) is not None:
            if _has_state(module, made, modes, seen):
                return True
        registers = getattr(call.func, "attr", "") in ("register_buffer", "register_parameter", "add_module")
        if registers or (_is_stateful_torch_layer(name, modes) and not _is_norm_without_state(module, call)):
            return True
        if (
            made is None
            and module.functions.named(call.func) is not None
            and _is_assigned_to_attribute(module, call)
        ):
            return True
    return False


def _is_assigned_to_attribute(module: SourceModule, call: ast.Call) -> bool:
    statement = module.statement(call)
    return isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute)


def _appended_modules(
    module: SourceModule, owner: ast.ClassDef, name: str, value: ast.expr
) -> list[ast.Call]:
    if not (isinstance(value, ast.List) and not value.elts):
        return []
    added = [
        call.args[0]
        for call in module.method_calls("append")
        if isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) == f"self.{name}"
        and module.enclosing(call, ast.ClassDef) is owner
        and call.args
    ]
    return [made for each in added if (made := _call_making_module(module, each)) is not None]


def _call_making_module(module: SourceModule, given: ast.expr) -> ast.Call | None:
    """Return the call of a module that is made where it is put into the list, or before under a name that keeps it nowhere else."""
    if isinstance(given, ast.Call):
        return given if _makes_stateful_module(module, given) else None
    values = module.definitions(given) if isinstance(given, ast.Name) else []
    if (
        len(values) != 1
        or not isinstance(values[0], ast.Call)
        or not _makes_stateful_module(module, values[0])
    ):
        return None
    assert isinstance(given, ast.Name)
    others = [each for each in module.reads(given.id) if module.scope(each) is module.scope(given)]
    kept = any(_is_held_elsewhere(module, each, given) for each in others if each is not given)
    return None if kept else values[0]


def _is_held_elsewhere(module: SourceModule, name: ast.expr, given: ast.expr) -> bool:
    """Tell whether an attribute, another list or another module holds it too, whenever the list does."""
    always = set(module.ancestors(module.statement(given)))
    branches = [each for each in module.ancestors(name) if isinstance(each, ast.If)]
    if not all(each in always for each in branches):
        return False
    above = module.parents[name]
    if isinstance(above, ast.Attribute):  # its own attributes and methods
        return False
    return isinstance(module.statement(name), (ast.Assign, ast.Return)) or isinstance(
        above, (ast.Call, ast.keyword)
    )


def _is_registered_elsewhere(module: SourceModule, owner: ast.ClassDef, name: str) -> bool:
    """Layers that also go into a Sequential, a ModuleList, add_module or an own parameters() are seen after all."""
    own = module.classes.method(owner, "parameters")
    if own is not None and any(each.attr == name for each in module.inside(own, ast.Attribute)):
        return True
    for node in walk(owner):
        if isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node) == f"self.{name}":
            calls = [each for each in module.ancestors(node) if isinstance(each, ast.Call)]
            if any(_is_registering_call(module, each) for each in calls if each.func is not node):
                return True
    return any(_last_name(each.func) in _REGISTERING for each in walk(owner) if isinstance(each, ast.Call))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_registering_call(module: SourceModule, call: ast.Call) -> bool:
    """Tell a call that registers the layers it is given: a holder of torch's, or a class or function of the program around one."""
    if (module.qualify(call.func) or ast.unparse(call.func)).endswith(_HOLDERS):
        return True
    made = module.classes.named(call.func)
    if made is None:
        function = module.functions.target(call)
        return function is not None and function.args.args != [] and _has_registering_call(module, function)
    lineage = module.classes.lineage(made)
    bases = [module.qualify(base) or "" for each in lineage for base in each.bases]
    return any(each.endswith(_HOLDERS) for each in bases) or any(
        _has_registering_call(module, each) for each in lineage
    )


def _has_registering_call(module: SourceModule, node: ast.AST) -> bool:
    calls = [each for each in walk(node) if isinstance(each, ast.Call)]
    names = [module.home(node).qualify(each.func) or ast.unparse(each.func) for each in calls]
    return any(each.endswith(_HOLDERS) or each.rpartition(".")[2] in _REGISTERING for each in names)


def _container_type_name(value: ast.expr) -> str:
    kinds = {ast.Dict: "dict", ast.DictComp: "dict", ast.Tuple: "tuple", ast.Set: "set", ast.SetComp: "set"}
    return kinds.get(type(value), "list")

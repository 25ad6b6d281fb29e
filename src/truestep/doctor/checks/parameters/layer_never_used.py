# SPDX-License-Identifier: Apache-2.0
"""A layer that no method reads."""

import ast
from collections.abc import Callable, Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.library.layers import LAYERS_WITHOUT_WEIGHTS
from truestep.doctor.source.live_variables import is_in_comment
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, method_of, names_in, walk
from truestep.doctor.source.unreached_code import scopes_of_trainings
from truestep.doctor.source.value_origins import argument, literal, resolve_expression

DYNAMIC = {"_modules", "getattr", "__getattr__", "vars", "__dict__"}
GOING_THROUGH = ("children", "named_children", "modules", "named_modules")
_HOLDERS = ("torch.nn.Sequential", "torch.nn.ModuleList")
_DROPOUTS = {
    f"torch.nn.{name}" for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout")
}


def layers_never_used(module: SourceModule, owner: ast.ClassDef) -> Iterator[tuple[str, ast.AST]]:
    """Yield the layers with parameters that a class makes and that nothing in the file reads."""
    yield from _unread_attributes(module, owner, _is_layer_call)


def _unread_attributes(
    module: SourceModule, owner: ast.ClassDef, makes: Callable[[SourceModule, ast.expr | None], bool]
) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a class makes of a kind, and nothing reads."""
    if module.classes.method(owner, "forward") is None or module.program.identifiers & DYNAMIC:
        return
    for name, bindings in module.classes.attributes(owner).items():
        made = [each for each in bindings if each.how == "assign" and makes(module, each.value)]
        is_unread = bool(made) and len(made) == len(bindings) and not is_attribute_read(module, name)
        if is_unread and not _applies_any_of_layers(
            module, {_layer_class_name(module, each.value) for each in made}
        ):
            yield name, made[0].node


def _applies_any_of_layers(module: SourceModule, layers: set[str]) -> bool:
    """Tell whether one of these kinds of layers may be applied by going through all: by a loop that calls none it is not."""
    calls = [call for name in GOING_THROUGH for call in module.index.calls.get(name, ())]
    return any(_can_apply_layers(module, each, layers) for each in calls if module.home(each) is module)


def _can_apply_layers(module: SourceModule, through: ast.Call, layers: set[str]) -> bool:
    loop = module.parents.get(through)
    if isinstance(loop, ast.comprehension):
        return not any(_is_isinstance_of_other_layers(module, test, loop, layers) for test in loop.ifs)
    if not isinstance(loop, ast.For) or loop.iter is not through:
        return True
    names = {each.id for each in walk(loop.target) if isinstance(each, ast.Name)}
    return any(
        isinstance(each.func, ast.Name) and each.func.id in names for each in module.inside(loop, ast.Call)
    )


def _is_isinstance_of_other_layers(
    module: SourceModule, test: ast.expr, loop: ast.comprehension, layers: set[str]
) -> bool:
    """Tell `isinstance(each, (nn.Linear, nn.Conv2d))` of an item, where none of these layers is of those classes."""
    if not isinstance(test, ast.Call) or dotted_name(test.func) != "isinstance" or len(test.args) != 2:
        return False
    classes = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
    names = {(module.qualify(each) or "").rsplit(".", 1)[-1] for each in classes}
    known = all((module.qualify(each) or "").startswith("torch.nn.") for each in classes)
    is_item = isinstance(loop.target, ast.Name) and dotted_name(test.args[0]) == loop.target.id
    return is_item and known and "Module" not in names and names.isdisjoint(layers)


def _layer_class_name(module: SourceModule, value: ast.expr | None) -> str:
    name = module.qualify(value.func) if isinstance(value, ast.Call) else None
    return (name or "").rsplit(".", 1)[-1]


def _is_dropout_layer_call(module: SourceModule, value: ast.expr | None) -> bool:
    """Tell a layer that drops something: without it the model is another one, though no weight is left over."""
    name = module.qualify(value.func) or "" if isinstance(value, ast.Call) else ""
    dropped = argument(value, 0, "p") if isinstance(value, ast.Call) else None
    return name in _DROPOUTS and literal(module, dropped) not in (0, 0.0)


def is_attribute_read(module: SourceModule, name: str) -> bool:
    """Tell whether anything reads an attribute of this name, or has it as a text."""
    return name in module.program.attributes_read or name in module.program.texts


def _is_layer_call(module: SourceModule, value: ast.expr | None) -> bool:
    name = module.qualify(value.func) or "" if isinstance(value, ast.Call) else ""
    if (
        isinstance(value, ast.Call)
        and not value.keywords
        and all(_is_empty_container(each) for each in value.args)
    ):
        return False  # a holder that stays empty has nothing to train
    if isinstance(value, ast.Call) and literal(module, argument(value, 1, "requires_grad")) is False:
        return False  # a number of the model that is not to be trained
    short = name.rsplit(".", 1)[-1]
    return name == f"torch.nn.{short}" and short[:1].isupper() and not _is_without_weights(module, value)


def _is_empty_container(given: ast.expr) -> bool:
    """Tell `[]`, `()`, `{}`, `list()`."""
    match given:
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name("list" | "dict" | "tuple" | "OrderedDict"), args=[], keywords=[]):
            return True
    return False


def _is_without_weights(module: SourceModule, value: ast.expr | None) -> bool:
    """Tell a layer with nothing to train, or a holder of such layers alone: left over, but harmless."""
    name = module.qualify(value.func) or "" if isinstance(value, ast.Call) else ""
    if isinstance(value, ast.Call) and name in _HOLDERS:
        parts = [
            part for each in value.args for part in (each.elts if isinstance(each, ast.List) else [each])
        ]
        return bool(parts) and all(_is_without_weights(module, each) for each in parts)
    if isinstance(value, ast.Call) and name.startswith("torch.nn.InstanceNorm"):
        return literal(module, argument(value, 3, "affine")) in (None, False) and len(value.args) < 4
    return name in LAYERS_WITHOUT_WEIGHTS or name.endswith("Loss")


def _has_only_loaded_instances(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell a class whose every instance in sight takes its weights from a file, and that no training comes by."""
    made = [
        each for each in module.index.calls.get(owner.name, ()) if module.classes.named(each.func) is owner
    ]
    if not made or not all(_has_weights_loaded(module.home(each), each) for each in made):
        return False
    return module.classes.method(owner, "forward") not in module.program.answer(scopes_of_trainings)


def _has_weights_loaded(module: SourceModule, made: ast.Call) -> bool:
    statement = module.statement(made)
    if not isinstance(statement, ast.Assign) or made not in walk(statement.value):
        return False
    places = {dotted_name(each) for each in statement.targets} - {None}
    for load in module.method_calls("load_state_dict"):
        owner = load.func.value if isinstance(load.func, ast.Attribute) else load.func
        given = resolve_expression(module, argument(load, 0, "state_dict"))
        is_copy = isinstance(given, ast.Call) and method_of(given) == "state_dict"
        strict = literal(module, argument(load, 1, "strict")) is not False
        if (
            dotted_name(owner) in places
            and module.scope(load) is module.scope(made)
            and strict
            and not is_copy
        ):
            return True
    return False


def _is_list_of_held_layers(module: SourceModule, owner: ast.ClassDef, name: str) -> bool:
    """Tell a ModuleList of layers that other attributes hold, which are read: it is there to register them."""
    bindings = module.classes.attributes(owner)
    made = [each.value for each in bindings.get(name, []) if each.value is not None]
    names = {
        part
        for each in made
        if isinstance(each, ast.Call) and module.qualify(each.func) in _HOLDERS
        for given in each.args
        for part in names_in(given)
    }
    held = {
        each.value.id
        for other, stored in bindings.items()
        for each in stored
        if other != name and isinstance(each.value, ast.Name) and is_attribute_read(module, other)
    }
    return bool(names) and names <= held


def _makes_layers_in_forward(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell a forward that makes layers with weights, or of a class of the program: they replace what was left."""
    forward = module.classes.method(owner, "forward")
    calls = module.inside(forward, ast.Call) if forward is not None else []
    classes = [module.classes.named(each.func) for each in calls]
    own = [
        each for each in classes if each is not None and module.classes.method(each, "forward") is not None
    ]
    return bool(own) or any(_is_layer_call(module, each) for each in calls)


class LayerNeverUsed(SourceCheck):
    """A module makes a layer that nothing in the file uses.

    Why: it is saved, counted and decayed, but never trained; often forward uses another one by mistake. Of a dropout that
    nothing applies, nothing is dropped.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Linear(4, 4)  # here

            def forward(self, x):
                return self.first(self.first(x).relu())

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.second(self.first(x).relu())

    Fix: use it in forward, or delete it.

    Evidence: found in the wild (docs/wild.md); eriklindernoren/PyTorch-GAN 36d3c77e
    implementations/sgan/sgan.py:50; corpus, 186 repositories, beds A, C, E, F, G, H, I, M, P, Q, R, S, T, U, V,
    W, X, Y: 36 true, 26 debatable, 11 false.
    """

    code = "PARAM021"
    words = ("Module",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such layers of the modules of this file that have a forward."""
        for owner in module.kinds.classes_of("module"):
            unused = list(layers_never_used(module, owner))
            if unused and _has_only_loaded_instances(module, owner):
                continue  # the keys of a checkpoint ask for it
            for name, node in unused:
                if _is_list_of_held_layers(module, owner, name):
                    continue
                # its use was taken out, and it was left
                meant = is_in_comment(module.text, f"self.{name}") or _makes_layers_in_forward(module, owner)
                text = f"Nothing uses self.{name}: its parameters are never trained."
                yield At(node, text, ADVICE if meant else RISK)
            for name, node in _unread_attributes(module, owner, _is_dropout_layer_call):
                yield At(node, f"Nothing uses self.{name}: nothing is dropped.", ADVICE)

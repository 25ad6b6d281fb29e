# SPDX-License-Identifier: Apache-2.0
"""What sort of thing an expression is: an optimizer, a module, a loader, a loss; and whether only its name says so."""

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from truestep.doctor.source import kinds
from truestep.doctor.source.cached_questions import imported_names
from truestep.doctor.source.classes import MAX_DEPTH
from truestep.doctor.source.loop_items import iterated_items
from truestep.doctor.source.names import Class, common_answer, dotted_name, is_none
from truestep.doctor.source.program_settings import is_setting

if TYPE_CHECKING:
    from truestep.doctor.source.module import SourceModule

_SWITCHES = ("no_grad", "enable_grad", "requires_grad", "zero_grad")


class ExpressionKinds:
    """The kinds of the expressions of one file; what one file was told holds in all files of the program."""

    def __init__(self, module: "SourceModule") -> None:
        self.module = module
        self.resolver = module.resolver
        self.classes = module.classes

    def of(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return what sort of thing an expression is: optimizer, module, loader, loss, ..."""
        place, kinds_of_places = self.resolver.place(node), self.resolver.kinds
        if place not in kinds_of_places:
            kinds_of_places[place] = None
            kinds_of_places[place] = self._find_kind(node, depth)
        return kinds_of_places[place]

    def _find_kind(self, node: ast.expr, depth: int) -> str | None:
        if isinstance(node, ast.Call):
            return self._call_kind(node, depth)
        if depth > MAX_DEPTH:
            return None
        found = [each for each in self.resolver.definitions(node) if not is_none(each)]
        known = kinds.agreed_kinds({self.of(each, depth + 1) for each in found if each is not None})
        if len(known) == 1 and None not in found and (kind := known.pop()) is not None:
            return kind
        if found and None not in found and all(self._is_in_sight(each) for each in found if each is not None):
            return None
        if isinstance(node, ast.Name) and (hint := self.classes.annotation(node)) is not None:
            declared = self.module.qualify(hint) or ""
            if kind := kinds.kind_of_constructor(declared) or kinds.kind_of_subclass(declared):
                return kind
        if (part := self._kind_of_part(node) or self._kind_of_items(node, depth)) is not None:
            return part
        place = dotted_name(node)
        named = kinds.kind_suggested_by_name(place.rpartition(".")[2]) if place else None
        if (
            named is None
            or is_setting(self.resolver, node)
            or self.module.home(node).kinds.is_of_other_framework
        ):
            return None
        if not self._is_unbound(node):
            self.resolver.guessed.add(self.resolver.place(node))
        return named

    def _kind_of_items(self, node: ast.expr, depth: int) -> str | None:
        """`for model, optimizer in zip(models, optimizers)`."""
        return common_answer(self.of(each, depth + 1) for each in iterated_items(self.resolver, node))

    def _kind_of_part(self, node: ast.expr) -> str | None:
        """`first, second = self.optimizers()`."""
        places = self.resolver.unpacked(node) if isinstance(node, ast.Name) else None
        values = [value for value, _ in places or ()]
        return common_answer(
            self.given_by_library(each) if isinstance(each, ast.Call) else None for each in values
        )

    def given_by_library(self, call: ast.Call) -> str | None:
        """Return what a library's method gives on an object of a class of the program."""
        if not isinstance(call.func, ast.Attribute) or not kinds.is_known_method(call.func.attr):
            return None
        owner = self.classes.of(call.func.value)
        kind = (
            kinds.kind_given_by_method(self.of_class(owner) or "", call.func.attr)
            if owner is not None
            else None
        )
        return kind if kind is not None and self.resolver.functions.target(call) is None else None

    def _is_unbound(self, node: ast.expr) -> bool:
        """Tell a name that nothing in sight binds, as in a cell whose imports stand in another."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id != "self" and not self.resolver.names.bindings(root)

    def is_guess(self, node: ast.expr) -> bool:
        """Tell whether what a name stands for is guessed from the name, and no use of it says the same."""
        kind = self.of(node)
        seen: set[ast.expr] = set()
        waiting: list[ast.expr | None] = [node]
        while waiting:
            current = waiting.pop()
            if current is None or current in seen:
                continue
            seen.add(current)
            self.of(current)
            if self.resolver.place(current) in self.resolver.guessed:
                return not self.is_used_as(node, kind)
            if isinstance(current, (ast.Name, ast.Attribute)):
                waiting += self.resolver.definitions(current)
        return False

    def is_used_as(self, node: ast.expr, kind: str | None) -> bool:
        """Tell whether a method that only such objects have is called on it, or an attribute of theirs is read."""
        wanted = kinds.USES.get(kind or "", ())
        place, home = dotted_name(node), self.module.home(node)
        scope = home.scope(node)
        owner = home.enclosing(node, ast.ClassDef)
        for each in home.all(ast.Attribute):
            bare = isinstance(home.parents[each], ast.Expr)  # `net.eval`: what is not called tells nothing
            if each.attr in wanted and not bare and dotted_name(each.value) == place:
                shared = (place or "").startswith("self.") and home.enclosing(each, ast.ClassDef) is owner
                if shared or home.scope(each) is scope:
                    return True
        return False

    def _is_in_sight(self, value: ast.expr) -> bool:
        """Tell whether what a value is made by can be seen: no name says more of it then."""
        if isinstance(value, ast.Call):
            name = self.module.qualify(value.func) or ""
            home = name.partition(".")[0]
            return self.classes.named(value.func) is not None or home == "torch" or home in kinds.FOREIGN
        return isinstance(value, (ast.Constant, ast.BinOp, ast.Dict, ast.List, ast.Tuple, ast.JoinedStr))

    def _call_kind(self, call: ast.Call, depth: int) -> str | None:
        if (made := self.classes.named(call.func)) is not None:
            behind = self.classes.behind(made, call)
            return self.of_class(made) or (self.of(behind, depth + 1) if behind is not None else None)
        if (name := self.module.qualify(call.func)) and (kind := kinds.kind_of_constructor(name)):
            return kind
        if (given := self.given_by_library(call)) is not None:
            return given
        inner = self.classes.unwrapped(call)
        return self.of(inner, depth + 1) if inner is not None else None

    def of_class(self, owner: Class) -> str | None:
        """Return what an instance of a class of the program is."""
        bases = (self.module.qualify(base) for each in self.classes.lineage(owner) for base in each.bases)
        kind = next(filter(None, (kinds.kind_of_subclass(base) for base in bases if base)), None)
        return None if kind == "optimizer" and _reads_no_gradient(self.module, owner) else kind

    def classes_of(self, *wanted: str) -> list[Class]:
        """Return the classes of this file whose instances are of these kinds; a LightningModule is a module, too."""
        kinds = {*wanted, "lightning module"} if "module" in wanted else {*wanted}
        return [each for each in self.module.named_classes if self.of_class(each) in kinds]

    @cached_property
    def is_of_other_framework(self) -> bool:
        """Whether this file trains with another framework than torch: then no name means one of torch's objects."""
        homes = {each.partition(".")[0] for each in imported_names(self.module)}
        return bool(homes & kinds.FRAMEWORKS) and "torch" not in homes


def _reads_no_gradient(module: "SourceModule", owner: Class) -> bool:
    """Tell a class that has a step of its own, which neither reads a gradient nor lets another step: it keeps averages, say."""
    if module.classes.method(owner, "step") is None:
        return False
    read = (
        each.attr for part in module.classes.lineage(owner) for each in module.inside(part, ast.Attribute)
    )
    return not any(
        attr == "step" or (attr.endswith(("grad", "grads")) and attr not in _SWITCHES) for attr in read
    )

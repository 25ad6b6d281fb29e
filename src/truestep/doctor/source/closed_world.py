# SPDX-License-Identifier: Apache-2.0
"""Whether a program is closed about an action: is every call that could do it followed?

A check that says that something does not happen may say so of a closed world alone. What could do it is looked up from
the action's side: each place of the program that does it, or that hands it on, stands in a function that runs only by
calls which were followed, or else nobody knows when it runs.
"""

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from truestep.doctor.source.decorators import has_transparent_decorators, wrappers_of
from truestep.doctor.source.elided_code import is_elision
from truestep.doctor.source.loop_items import iterated_items
from truestep.doctor.source.memoized_walk import WITHOUT_END, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, Scope, dotted_name, given_to, is_read, is_self, walk
from truestep.doctor.source.protocol_calls import BUILTINS, HARMLESS, Protocol
from truestep.doctor.source.resolving import Resolver
from truestep.doctor.source.signatures import only_raises
from truestep.doctor.source.training_actions import BACKWARD, STEP, Action
from truestep.doctor.source.unfollowed_calls import UnseenFunctions
from truestep.doctor.source.value_origins import value_origins

_BY_TEXT = ("getattr", "attrgetter", "methodcaller", "setattr")
_CUT = ("item", "detach", "tolist", "numpy", "parameters", "state_dict")
_KEEPS = frozenset(("write", "print", "log", "info", *dir(list), *dir(dict), *dir(set), *dir(str)))
MAX_DEPTH = 6  # from a variable back to the text that it holds
_CODE = ("eval", "exec")
_KNOWN_BASES = ("torch.", "object", "abc.", "typing.", "lightning.", "pytorch_lightning.", "enum.")


class ClosedWorld:
    """What of a program, all its linked files together, runs by calls that nobody followed."""

    def __init__(self, modules: list[SourceModule]) -> None:
        self.modules = modules
        self.resolver = modules[0].resolver
        self.index = modules[0].index
        self.protocol = Protocol(modules[0])
        self._steppers = SteppersOutOfSight(modules[0])
        self._unseen: dict[frozenset[Scope], UnseenFunctions] = {}
        self._doers: dict[Action, list[ast.AST]] = {}
        for each in modules:
            each.program.followed  # noqa: B018 - what was entered from where is known once all was followed

    def opening(self, action: Action, node: ast.AST) -> ast.AST | None:
        """Return a place that may do it to what a finding is about, at times that are not known; None in a closed world."""
        around = self._running_scopes(node)
        if around not in self._unseen:
            self._unseen[around] = UnseenFunctions(self.modules, around)
        unseen = self._unseen[around]
        for doer in self.places_that_do(action):
            scope = self.index.scope_of[doer]
            is_handed_on = self._is_handed_on(doer) and unseen.may_run(doer)
            if is_handed_on or (scope not in around and self._is_unseen_doer(unseen, scope, action)):
                return doer
        return (
            next(self._open_calls(around), None)
            or next(self._elided_lines(node, around), None)
            or (next(self._steppers.calls_in(around), None) if action is STEP else None)
            or (next(losses_handed_on(self.modules[0], around), None) if action is BACKWARD else None)
        )

    def _elided_lines(self, node: ast.AST, around: frozenset[Scope]) -> Iterator[ast.AST]:
        """Yield where the file of a finding leaves lines out: around it, and in what it may call."""
        home = self.modules[0].home(node)
        for each in home.all(ast.Expr):
            scope = self.index.scope_of[each]
            if (scope in around or isinstance(scope, Function)) and is_elision(home, each):
                yield each

    def _is_unseen_doer(self, unseen: UnseenFunctions, scope: Scope, action: Action) -> bool:
        """Tell so; what is no event of the protocol is seen by nobody within a decorator's wrapper either."""
        is_wrapped = not action.kinds and scope in wrappers_of(self.resolver)
        return is_wrapped or self._is_method_looked_up(scope) or unseen.runs(scope)

    def _is_method_looked_up(self, scope: Scope) -> bool:
        """Tell `getattr(callback, "after_step")()`: who runs the methods of that name is not known."""
        is_method = isinstance(self.index.parents.get(scope), ast.ClassDef)
        return is_method and getattr(scope, "name", "") in self._names_looked_up

    # ── what could do it ──────────────────────────────────────────────────────────────────────

    def places_that_do(self, action: Action) -> list[ast.AST]:
        """Return each place of the program that does it, or names what does it."""
        if action not in self._doers:
            self._doers[action] = [each for module in self.modules for each in self._doers_in(module, action)]
        return self._doers[action]

    def _doers_in(self, module: SourceModule, action: Action) -> Iterator[ast.AST]:
        calls = [each for each in module.all(ast.Call) if not self._is_block_of_its_own(each)]
        yield from (each for each in calls if self._has_kind(self.protocol.call(each), action))
        yield from (each for each in module.stores if self._has_kind(self.protocol.assignment(each), action))
        for name in sorted(action.names):
            yield from (
                each for each in module.read_under(name) if self._is_name_of_action(module, each, action)
            )
        code = _action_pattern(action)
        is_dynamic = not self._dynamic_functions.isdisjoint(_CODE)
        for text in module.all(ast.Constant):
            if isinstance(text.value, str):
                named = text.value in action.names and text in self._lookup_texts
                if named or (is_dynamic and code.search(text.value)):
                    yield text

    def _has_kind(self, found: "list[tuple[str, ast.expr, ast.expr | None]]", action: Action) -> bool:
        return any(kind in action.kinds for kind, _, _ in found)

    def _is_name_of_action(self, module: SourceModule, node: ast.expr, action: Action) -> bool:
        """Tell what an action's name stands for: the method of an object of its kinds, or a function of that name."""
        if isinstance(node, ast.Name):
            return self.resolver.functions.named(node) is None and bool(module.qualify(node))
        if not isinstance(node, ast.Attribute):
            return False
        if self.index.is_called(node):
            return not action.kinds and not self._is_block_of_its_own(self.index.parents[node])
        return action.receivers is not None and module.kind(node.value) in action.receivers

    def _is_block_of_its_own(self, call: ast.AST) -> bool:
        """Tell `with no_grad():` over a block, or `@no_grad()` over a function, that runs nothing it was given.

        It holds there and nowhere else.
        """
        above = self.index.parents.get(call)
        block = self.index.parents.get(above) if isinstance(above, ast.withitem) else above
        is_decorated = isinstance(block, ast.FunctionDef) and call in block.decorator_list
        if not isinstance(block, ast.With) and not is_decorated:
            return False
        assert block is not None
        home = self.modules[0].home(block)
        named = [each.func for each in home.inside(block, ast.Call) if isinstance(each.func, ast.Name)]
        given = any(each.how == "parameter" for name in named for each in self.resolver.reaching(name))
        return not given and not home.inside(block, ast.Yield)

    @cached_property
    def _dynamic_functions(self) -> set[str]:
        """The functions by which a program runs texts or looks names up."""
        return self.modules[0].program.identifiers & {*_BY_TEXT, *_CODE}

    @cached_property
    def _lookup_texts(self) -> set[ast.AST]:
        """The texts by which the program looks something up: `getattr(opt, "zero_grad")`, be it by a variable."""
        calls = (call for name in _BY_TEXT for call in self.index.calls.get(name, ()))
        given = [each for call in calls for each in call.args]
        return {text for each in given for text in self._possible_texts(each)}

    @cached_property
    def _names_looked_up(self) -> set[object]:
        """What the texts say by which the program looks something up."""
        return {text.value for text in self._lookup_texts if isinstance(text, ast.Constant)}

    def _possible_texts(self, node: ast.expr) -> Iterator[ast.AST]:
        """Yield the constants that an expression may stand for; of a loop's variable those that the loop goes over."""
        found = walk_each_once([node], self._sources_of_text, MAX_DEPTH)
        return (each for each in found if isinstance(each, ast.Constant))

    def _sources_of_text(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return node.elts
        bindings = self.resolver.reaching(node) if isinstance(node, ast.Name) else []
        sources = [each.value for each in bindings if each.how == "for"]
        return [each for each in [*sources, *self.resolver.definitions(node)] if each is not None]

    def _is_handed_on(self, doer: ast.AST) -> bool:
        """Tell `callbacks.append(opt.zero_grad)`: who calls it is not known. A text is run who knows where."""
        if isinstance(doer, ast.Constant):
            return True
        return (
            isinstance(doer, (ast.Attribute, ast.Name)) and not self.index.is_called(doer) and is_read(doer)
        )

    # ── calls of what was handed in ───────────────────────────────────────────────────────────

    def _running_scopes(self, node: ast.AST) -> frozenset[Scope]:
        """Return the functions that run while what stands at a node does: its own, and those that call it."""

        def calling_scopes(scope: Scope) -> list[Scope]:
            if not isinstance(scope, Function):
                return []
            followed = self.modules[0].program.entered_from(scope)
            return [
                self.index.scope_of[each] for each in (*self.resolver.functions.callers(scope), *followed)
            ]

        return frozenset(walk_each_once([self.index.scope_of[node]], calling_scopes, WITHOUT_END))

    def _open_calls(self, scopes: frozenset[Scope]) -> Iterator[ast.AST]:
        """Yield the calls of which nobody can say what they run."""
        for scope in sorted(scopes, key=lambda each: each.number):  # type: ignore[union-attr]
            home = self.modules[0].home(scope)
            yield from (each for each in home.directly_in(scope, ast.Call) if self._is_open_call(home, each))

    def _is_open_call(self, home: SourceModule, call: ast.Call) -> bool:
        """Tell a call for its effect of what came from out of sight, of what is left open here, of what is decorated so."""
        is_for_effect = isinstance(self.index.parents.get(call), ast.Expr)
        target = self.resolver.functions.target(call)
        if target is None:
            return is_for_effect and (
                self._is_looked_up_by_variable(call.func)
                or self._is_inherited_out_of_sight(call.func)
                or (isinstance(call.func, ast.Name) and self._comes_from_outside(call.func))
                or self._is_given_trainer_itself(call)
            )
        if isinstance(target, ast.Lambda):
            return False
        if not has_transparent_decorators(self.resolver, target):
            return home.loop(call) is not None
        if is_for_effect and only_raises(target) and not home.program.entered_by(call) - {target}:
            return True
        inside = self.modules[0].home(target).directly_in(target, ast.Call)
        return any(self._is_looked_up_by_variable(each.func) for each in inside)

    def _is_looked_up_by_variable(self, node: ast.expr) -> bool:
        """Tell `getattr(self, name)` of a name that nobody knows, be it kept in a variable."""
        found = [node, *(self.resolver.definitions(node) if isinstance(node, ast.Name) else [])]
        calls = [each for each in found if isinstance(each, ast.Call) and dotted_name(each.func) == "getattr"]
        names = [name for each in calls for name in each.args[1:2]]
        return any(next(self._possible_texts(name), None) is None for name in names)

    def _is_inherited_out_of_sight(self, node: ast.expr) -> bool:
        """Tell `self.after_step` of a class whose base is out of sight, which alone can have it."""
        if (
            not isinstance(node, ast.Attribute)
            or not isinstance(node.value, ast.Name)
            or node.value.id != "self"
        ):
            return False
        classes = self.resolver.classes
        owner = classes.of(node.value)
        has_it = any(node.attr in classes.attributes(each) for each in classes.lineage(owner))
        return not has_it and _has_base_out_of_sight(self.resolver, owner)

    def _is_given_trainer_itself(self, call: ast.Call) -> bool:
        """Tell `hooks.fire(self)`: a call out of sight that is given the object itself which trains."""
        name = self.modules[0].qualify(call.func) or ""
        given = given_to(call)
        gives_itself = any(map(is_self, given))
        is_known = name in BUILTINS or name.startswith(HARMLESS)
        return gives_itself and not is_known and not self.modules[0].program.entered_by(call)

    def _comes_from_outside(self, name: ast.Name) -> bool:
        bindings = self.resolver.reaching(name)
        ways = {each.how for each in bindings}
        if not ways or not ways <= {"for", "parameter"} or self.modules[0].kind(name) is not None:
            return False
        if ways == {"parameter"}:
            return None in self.resolver.definitions(name)
        sources = [each.value for each in bindings if each.value is not None]
        known = [self.resolver.definitions(each) for each in sources if not _is_display(each)]
        return any(not found or any(not _is_display(each) for each in found) for found in known)


class SteppersOutOfSight:
    """Knows what may step an optimizer out of sight: a schedule or a trainer of another folder that was given it."""

    def __init__(self, module: SourceModule) -> None:
        self.module = module
        self.resolver = module.resolver

    def calls_in(self, scopes: frozenset[Scope]) -> Iterator[ast.AST]:
        """Yield the calls on such objects in some functions."""
        for scope in sorted(scopes, key=lambda each: each.number):  # type: ignore[union-attr]
            home = self.module.home(scope)
            for call in home.directly_in(scope, ast.Call):
                if isinstance(call.func, ast.Attribute) and self._was_given_optimizer(home, call.func.value):
                    yield call

    def _was_given_optimizer(self, home: SourceModule, receiver: ast.expr) -> bool:
        """Tell so of an object, or of what it is a part of, that a call out of sight made."""
        while True:
            made = [each for each in self._maker_calls(home, receiver) if self._is_made_elsewhere(home, each)]
            if made and any(
                self._holds_optimizer(home, each)
                for each in (*made, *self._values_given_later(home, receiver))
            ):
                return True
            if not isinstance(receiver, ast.Attribute):
                return False
            receiver = receiver.value

    def _maker_calls(self, home: SourceModule, held: ast.expr) -> list[ast.Call]:
        items = iterated_items(self.resolver, held)
        origins = [each for item in items or [held] for each in value_origins(home, item)]
        return [each for each in origins if isinstance(each, ast.Call)]

    def _is_made_elsewhere(self, home: SourceModule, call: ast.Call) -> bool:
        name = home.qualify(call.func) or ""
        owner = self.resolver.classes.named(call.func)
        if _has_base_out_of_sight(self.resolver, owner):
            return True
        is_in_sight = self.resolver.functions.target(call) or owner
        return (
            is_in_sight is None
            and name not in BUILTINS
            and not name.startswith(HARMLESS)
            and home.kind(call) is None
        )

    def _values_given_later(self, home: SourceModule, held: ast.expr) -> Iterator[ast.expr]:
        """Yield what an object is given by its other methods and by assignments: `trainer.optimizer = opt`."""
        place = dotted_name(held)
        if not place:
            return
        for call in home.all(ast.Call):
            if isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) == place:
                yield call
        for store in home.all(ast.Assign):
            parts = [each for each in store.targets if isinstance(each, ast.Attribute)]
            if any(dotted_name(each.value) == place for each in parts):
                yield store.value

    def _holds_optimizer(self, home: SourceModule, given: ast.expr) -> bool:
        parts = [
            part
            for each in (given_to(given) if isinstance(given, ast.Call) else [given])
            for part in walk(each)
        ]
        named = [each for each in parts if isinstance(each, (ast.Name, ast.Attribute))]
        return any(home.kind(each) == "optimizer" for each in named)


def losses_handed_on(module: SourceModule, scopes: frozenset[Scope]) -> Iterator[ast.AST]:
    """Yield the calls of what is out of sight that are given a model, or what one has computed: they may go backward."""
    for scope in sorted(scopes, key=lambda each: each.number):  # type: ignore[union-attr]
        home = module.home(scope)
        for call in home.directly_in(scope, ast.Call):
            if _is_out_of_sight(home, call) and any(_can_have_graph(home, each) for each in given_to(call)):
                yield call


def _is_out_of_sight(home: SourceModule, call: ast.Call) -> bool:
    """Tell a call whose function nobody has read, and that is no library's which is known to leave gradients alone."""
    name, functions = home.qualify(call.func) or "", home.functions
    is_known = name in BUILTINS or name.startswith(HARMLESS) or home.classes.named(call.func) is not None
    if is_known or home.kind(call) is not None or home.kind(call.func) is not None:
        return False
    if isinstance(call.func, ast.Attribute) and (call.func.attr in _KEEPS or home.kind(call.func.value)):
        return False
    is_applied = isinstance(call.func, ast.Name) and not name  # `criterion(out, y)`, whatever it is
    return not is_applied and functions.target(call) is None and functions.applied(call) is None


def _can_have_graph(home: SourceModule, given: ast.expr) -> bool:
    """Tell a model, and a value that a model was applied for, be it through further operations."""
    if home.kind(given) in ("module", "ddp"):
        return True

    def values_behind(node: ast.expr) -> list[ast.expr]:
        values = [each for each in home.definitions(node) if each is not None]
        bound = home.names.bindings(node) if isinstance(node, ast.Name) else []
        values += [each.value for each in bound if each.value is not None]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CUT:
            return []
        parts = given_to(node) if isinstance(node, ast.Call) else []
        parts += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        return [*parts, *values]

    protocol = Protocol(home)
    return any(
        isinstance(each, ast.Call) and protocol.is_forward(each)
        for each in walk_each_once([given], values_behind)
    )


def _has_base_out_of_sight(resolver: Resolver, owner: ast.ClassDef | None) -> bool:
    """Tell whether a class is made from one that nobody knows."""
    return any(not each.startswith(_KNOWN_BASES) for each in resolver.classes.bases_out_of_sight(owner))


def _is_display(node: ast.expr | None) -> bool:
    return isinstance(node, (ast.List, ast.Tuple, ast.Set))


def _action_pattern(action: Action) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(sorted(action.names))})\s*\(")

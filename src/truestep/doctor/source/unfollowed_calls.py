# SPDX-License-Identifier: Apache-2.0
"""Which functions of a program may run, while some others do, by calls that nobody followed."""

import ast
from collections.abc import Iterator
from functools import cached_property

from truestep.doctor.source.decorators import has_transparent_decorators, wrappers_of
from truestep.doctor.source.linking import imported_files
from truestep.doctor.source.memoized_walk import WITHOUT_END, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, Scope

_HARMLESS_PARTS = ("__name__", "__doc__", "__module__", "__qualname__", "cache_clear")
_OBJECTS = ("optimizer", "module", "ddp", "scheduler", "scaler")


class UnseenFunctions:
    """Knows of each function whether it is handed on, driven by the language or a library, or called by a name alone."""

    def __init__(self, modules: list[SourceModule], around: frozenset[Scope]) -> None:
        self.modules = modules
        self.resolver, self.index = modules[0].resolver, modules[0].index
        self._known: dict[Scope, bool] = {}
        self.methods: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        for each in [each for module in modules for each in module.named_functions]:
            if isinstance(self.index.parents.get(each), ast.ClassDef):
                self.methods.setdefault(each.name, []).append(each)
        self.files = self._with_imported_files({self.index.tree_of(each) for each in around})
        self.around = around

    def _with_imported_files(self, trees: set[ast.Module]) -> set[ast.Module]:
        """Return some files and all that their imports reach: whose tops run before."""

        def files_imported_by(tree: ast.Module) -> set[ast.Module]:
            home = self.modules[0].home(tree)
            nodes: list[ast.Import | ast.ImportFrom] = [*home.all(ast.Import), *home.all(ast.ImportFrom)]
            return imported_files(self.resolver.names.find_module, tree, nodes)

        return {*walk_each_once(trees, files_imported_by, WITHOUT_END)}

    @cached_property
    def region(self) -> set[Scope]:
        """What may run meanwhile: what calls lead to, by their target or by a method's name, from all of these files."""
        trees = {self.index.tree_of(each) for each in self.around}
        handed = [
            each
            for module in self.modules
            if module.tree in trees
            for each in self._functions_handed_on(module)
        ]

        def scopes_run_by(scope: Scope) -> Iterator[Scope]:
            for call in self.modules[0].home(scope).directly_in(scope, ast.Call):
                yield from self._functions_run_by(call)

        return {*walk_each_once([*self.around, *handed], scopes_run_by, WITHOUT_END)}

    def _functions_handed_on(self, module: SourceModule) -> list[Scope]:
        """Return the functions of a file that stand there without being called, and its lambdas."""
        named = {each.id for each in module.all(ast.Name) if not self.index.is_called(each)}
        return [*module.all(ast.Lambda), *(each for each in module.named_functions if each.name in named)]

    def _functions_run_by(self, call: ast.Call) -> list[Scope]:
        known = self.resolver.functions.all_called(call)
        found: list[Scope] = [*known, *self.modules[0].program.entered_by(call)]
        if not found and isinstance(call.func, ast.Attribute):
            found += [
                each
                for each in self.methods.get(call.func.attr, ())
                if self._can_mean_function(each, call.func)
            ]
        return found

    def runs(self, scope: Scope) -> bool:
        """Tell whether something other than a call that was followed may run a function."""
        if isinstance(scope, ast.Module):
            return False
        if scope not in self._known:
            self._known[scope] = False  # a cycle ends here
            self._known[scope] = self._is_run_unseen(scope)
        return self._known[scope]

    def _is_run_unseen(self, function: Function) -> bool:
        if isinstance(function, ast.Lambda):
            return not self._was_entered(function)
        if not has_transparent_decorators(self.resolver, function):
            return not self._was_entered(function)  # what an engine's decorator registers was, by its run
        if self._is_run_by_library(function):
            owner = self.index.parents.get(function)
            named = owner.name if isinstance(owner, ast.ClassDef) else function.name
            return any(self.may_run(each) for module in self.modules for each in module.read_under(named))
        if (decorated := wrappers_of(self.resolver).get(function)) is not None:
            return any(self.runs(each) for each in decorated)
        return any(self._is_escaping_reference(function, each) for each in self._references(function)) or any(
            self.runs(self.index.scope_of[call]) for call in self.resolver.functions.callers(function)
        )

    def _was_entered(self, function: Function) -> bool:
        return bool(self.modules[0].program.entered_from(function))

    def _is_run_by_library(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Tell what a library or the language runs: code behind yield, `__next__`, a method over one of a library's."""
        if any(self.index.scope_of.get(each) is function for each in self._yield_nodes(function)):
            return not self._was_entered_as_manager(function)
        owner = self.index.parents.get(function)
        if not isinstance(owner, ast.ClassDef):
            return False
        if function.name.startswith("__") and function.name != "__init__":
            return not self._was_entered(function)
        return self._has_library_base(owner, function)

    def _yield_nodes(self, function: Function) -> list[ast.AST]:
        module = self.modules[0]
        return [*module.inside(function, ast.Yield), *module.inside(function, ast.YieldFrom)]

    def _was_entered_as_manager(self, function: Function) -> bool:
        calls = self.resolver.functions.callers(function)
        return bool(calls) and all(isinstance(self.index.parents.get(each), ast.withitem) for each in calls)

    def _has_library_base(
        self, owner: ast.ClassDef, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> bool:
        """Tell whether a class is made from one that is not in sight, and the method may be called by that."""
        is_of_torch = function.name in ("train", "eval", "zero_grad")
        known = {"object"} if is_of_torch else {"object", "torch.nn.Module"}
        return not self._was_entered(function) and bool(
            self.resolver.classes.bases_out_of_sight(owner) - known
        )

    def _references(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
        for module in self.modules:
            yield from module.read_under(function.name)

    def _is_escaping_reference(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.expr
    ) -> bool:
        """Tell whether a name hands a function on, or calls it where nobody followed."""
        parent = self.index.parents.get(node)
        is_plain = isinstance(parent, ast.Attribute) and parent.attr in _HARMLESS_PARTS
        if is_plain or not self.may_run(node) or not self._can_mean_function(function, node):
            return False
        if not self.index.is_called(node):
            return not (self._is_decorator_use(function, node) or self._is_followed_into(function, parent))
        assert isinstance(parent, ast.Call)
        if self.index.scope_of[parent] not in self.region:
            return False
        run = self.resolver.functions.called(parent)
        entered = self.modules[0].program.entered_by(parent)
        return run is not function and function not in entered and not (entered and run is None)

    def _is_followed_into(self, function: Function, given_to: ast.AST | None) -> bool:
        """Tell `optimizer.step(closure)`: a call that runs what it is given, and was followed."""
        call = self.index.parents.get(given_to) if isinstance(given_to, ast.keyword) else given_to
        return isinstance(call, ast.Call) and function in self.modules[0].program.entered_by(call)

    def may_run(self, node: ast.AST) -> bool:
        """Tell whether what stands at a node runs before or meanwhile: at the top of a file, or where calls lead to."""
        scope = self.index.scope_of[node]
        return scope in self.files or scope in self.region

    def _is_decorator_use(self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.expr) -> bool:
        """Tell `@function` from handing it on."""
        owner = self.index.parents.get(node)
        return node in getattr(owner, "decorator_list", ())

    def _can_mean_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.expr) -> bool:
        owner = self.index.parents.get(function)
        if isinstance(node, ast.Name):
            return any(each.node is function for each in self.resolver.names.local_bindings(node))
        assert isinstance(node, ast.Attribute)
        tree = self.resolver.names.module_named(node.value)
        if tree is not None:
            return any(each.node is function for each in self.resolver.names.exported(tree, node.attr))
        if not isinstance(owner, ast.ClassDef) or "." in (self.modules[0].qualify(node) or ""):
            return False
        held = self.resolver.classes.of(node.value)
        if held is not None:
            is_own = self.resolver.classes.method(held, function.name) is function
            return is_own or owner in self.resolver.classes.subclasses_of(held)
        named = self.resolver.classes.named(node.value)
        if named is not None:
            return self.resolver.classes.method(named, function.name) is function
        return self.modules[0].kind(node.value) not in _OBJECTS

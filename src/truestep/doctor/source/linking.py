# SPDX-License-Identifier: Apache-2.0
"""What a name stands for, in whatever file: its bindings, its full name, and the definition behind imports."""

import ast
from collections.abc import Callable

from truestep.doctor.source.names import (
    Binding,
    Index,
    Scope,
    ScopeNames,
    dotted_name,
    imported_full_name,
    public_source_name,
)

# What a star import of these, or a cell without its imports, is taken to mean.
_USUAL = {"nn": "torch.nn", "F": "torch.nn.functional", "optim": "torch.optim", "np": "numpy"}
MAX_IMPORTS = 12  # how many files a name is followed through
BENEATH = -1  # instead of a number of dots: a file beneath the folder of a package
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
Variable = tuple[Scope | None, ast.Module, str]  # the scope that owns it, the file, its name
_NAMED = (ast.Name, ast.Attribute)
FindModule = Callable[[ast.Module, str, int], ast.Module | None]  # importing file, name, dots before it


class SourceLinker:
    """Follows names through scopes, aliases and the imports between the files of an index."""

    def __init__(self, index: Index, find_module: FindModule) -> None:
        self.index = index
        self.find_module = find_module
        self._qualified: dict[ast.AST, str | None] = {}
        self._names: dict[Variable, str | None] = {}  # of variables, as `_qualified`
        self._owners: dict[tuple[Scope, str], Scope | None] = {}
        self._local: dict[tuple[Scope, str], list[Binding]] = {}
        self._modules_named: dict[ast.AST, ast.Module | None] = {}
        self._variables_of_modules: dict[Variable, ast.Module | None] = {}
        self._defined: dict[ast.AST, Definition | None] = {}
        self._starred: dict[tuple[ast.Module, str], list[Binding]] = {}  # while one name is looked for
        self._passing: set[tuple[ast.Module, str]] = set()  # files that import a name from one another

    # ── scopes ────────────────────────────────────────────────────────────────────────────────

    def bindings(self, name: ast.Name) -> list[Binding]:
        """Return the places that bind this name in the scope that owns it."""
        scope = self.owner(name.id, self.index.scope_of[name])
        return self.index.names[scope].bindings[name.id] if scope is not None else []

    def owner(self, name: str, scope: Scope) -> Scope | None:
        """Return the innermost scope around that binds a name."""
        place = (scope, name)
        if place not in self._owners:
            names: ScopeNames | None = self.index.names[scope]
            while names is not None and (name not in names.bindings or name in names.declared_outside):
                names = names.outer
            self._owners[place] = names.scope if names is not None else None
        return self._owners[place]

    # ── what is local ─────────────────────────────────────────────────────────────────────────

    def exported(self, tree: ast.Module, name: str, depth: int = 0) -> list[Binding]:
        """Return what binds a name at the top of a file, behind the imports that only pass it on."""
        if depth > MAX_IMPORTS:
            return []
        found: list[Binding] = []
        for binding in self.index.names[tree].bindings.get(name, []):
            if binding.how != "import":
                found.append(binding)
            elif isinstance(binding.node, ast.ImportFrom):
                found += self._bindings_behind_import(tree, binding.node, name, depth)
        if found or name in self.index.names[tree].bindings:
            return found
        return self._bindings_behind_stars(tree, name, depth)

    def _bindings_behind_stars(self, tree: ast.Module, name: str, depth: int) -> list[Binding]:
        """Return what `from ... import *` brings under a name; files that so import one another are asked once."""
        place, is_first = (tree, name), not self._starred
        if place not in self._starred:
            self._starred[place] = []
            for star in reversed(_star_imports(self.index, tree)):
                source = self._imported_file(tree, star)
                if source is None or not _is_star_imported(self.index, source, name):
                    continue
                if found := self.exported(source, name, depth + 1):
                    self._starred[place] = found
                    break
        found = self._starred[place]
        if is_first:
            self._starred.clear()
        return found

    def _bindings_behind_import(
        self, tree: ast.Module, node: ast.ImportFrom, name: str, depth: int
    ) -> list[Binding]:
        source = self._imported_file(tree, node)
        return self.exported(source, _original_name(node, name), depth + 1) if source is not None else []

    def _imported_file(self, tree: ast.Module, node: ast.ImportFrom) -> ast.Module | None:
        """Return the file of the program that an import takes names from."""
        return self.find_module(tree, node.module or "", node.level)

    def local_bindings(self, name: ast.Name) -> list[Binding]:
        """Return the bindings of a name, those of an imported one in the file where it is made."""
        scope = self.owner(name.id, self.index.scope_of[name])
        if scope is None:
            return self.exported(self.index.tree_of(name), name.id)
        if (scope, name.id) not in self._local:
            self._local[scope, name.id] = self._find_local_bindings(name)
        return self._local[scope, name.id]

    def _find_local_bindings(self, name: ast.Name) -> list[Binding]:
        found: list[Binding] = []
        tree = self.index.tree_of(name)
        for binding in self.bindings(name):
            if isinstance(binding.node, ast.ImportFrom):
                found += self._bindings_behind_import(tree, binding.node, name.id, 0) or [binding]
            else:
                found.append(binding)
        return found

    def module_named(self, node: ast.expr) -> ast.Module | None:
        """Return the local file that a name stands for (`import utils`, `from pkg import model`)."""
        if not isinstance(node, _NAMED):
            return None
        if node not in self._modules_named:
            self._modules_named[node] = self._find_named_module(node)
        return self._modules_named[node]

    def _find_named_module(self, node: ast.Name | ast.Attribute) -> ast.Module | None:
        if isinstance(node, ast.Attribute):
            inside = self.module_named(node.value)
            return self._submodule(inside, node.attr) if inside is not None else self._module_by_path(node)
        variable = self.variable(node)
        if variable not in self._variables_of_modules:
            self._variables_of_modules[variable] = self._module_of_variable(node)
        return self._variables_of_modules[variable]

    def _module_of_variable(self, node: ast.Name) -> ast.Module | None:
        tree = self.index.tree_of(node)
        bindings = self.bindings(node)
        for binding in bindings[:MAX_IMPORTS]:  # a name that is bound more often than that is no file
            path = imported_full_name(binding.node, node.id) or ""
            found = self.find_module(tree, path, getattr(binding.node, "level", 0)) if path else None
            if found is None and isinstance(binding.node, ast.ImportFrom):
                source = self._imported_file(tree, binding.node)
                found = self._submodule(source, _original_name(binding.node, node.id)) if source else None
            if found is not None:
                return found
        return None

    def _module_by_path(self, node: ast.Attribute) -> ast.Module | None:
        """`import pkg.model` binds pkg; `pkg.model` is the file although pkg may be no package."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and any(
            isinstance(each.node, ast.Import) for each in self.bindings(root)
        ):
            return self.find_module(self.index.tree_of(node), dotted_name(node) or "", 0)
        return None

    def _submodule(self, tree: ast.Module, name: str) -> ast.Module | None:
        for binding in self.index.names[tree].bindings.get(name, []):
            if isinstance(binding.node, ast.ImportFrom):
                path = imported_full_name(binding.node, name) or ""
                if found := self.find_module(tree, path, binding.node.level):
                    return found
        return self.find_module(tree, name, BENEATH)

    def defined(self, node: ast.expr, depth: int = 0) -> Definition | None:
        """Return the one class, function or file of the program that a name stands for."""
        if not isinstance(node, _NAMED):
            return None
        if node not in self._defined:
            self._defined[node] = None  # a cycle ends here
            if depth <= MAX_IMPORTS:
                found = self._agreed_definition(self.bindings_behind(node), depth)
                self._defined[node] = found or self.module_named(node)
        return self._defined[node]

    def bindings_behind(self, node: ast.Name | ast.Attribute) -> list[Binding]:
        """Return what binds a name, or a file's name, behind the imports."""
        if isinstance(node, ast.Name):
            # `class Module(Module)`: a class is not its own base, which is what had the name before
            return [each for each in self.local_bindings(node) if node not in getattr(each.node, "bases", ())]
        tree = self.module_named(node.value)
        return self.exported(tree, node.attr) if tree is not None else []

    def _agreed_definition(self, bindings: list[Binding], depth: int) -> Definition | None:
        """Return what all bindings agree on; of an import and its makeshift, the one that is here."""
        known = [each for each in bindings if each.how != "import"] or bindings
        if not known or len({each.node for each in known}) > 1:
            return None
        binding = known[-1]
        if isinstance(binding.node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            return binding.node
        if binding.how == "assign" and binding.value is not None:
            return self.defined(_function_of_partial(binding.value), depth + 1)
        return None

    # ── full names ────────────────────────────────────────────────────────────────────────────

    def qualify(self, node: ast.expr) -> str | None:
        """Return the full name of what an expression refers to, if it was imported or is a builtin."""
        if node not in self._qualified:
            self._qualified[node] = None
            self._qualified[node] = self._find_full_name(node)
        return self._qualified[node]

    def _find_full_name(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Attribute):
            tree = self.module_named(node.value)
            if tree is not None:
                return self._agreed_full_name(self.exported(tree, node.attr), tree, node.attr)
            base = self.qualify(node.value)
            return public_source_name(f"{base}.{node.attr}") if base else None
        if not isinstance(node, ast.Name):
            return None
        variable = self.variable(node)
        if variable not in self._names:
            self._names[variable] = self._qualify_name(node)
        return self._names[variable]

    def _qualify_name(self, node: ast.Name) -> str | None:
        bindings, tree = self.bindings(node), self.index.tree_of(node)
        if not bindings:
            if elsewhere := self.exported(tree, node.id):
                return self._agreed_full_name(elsewhere, tree, node.id)
            return _USUAL.get(node.id, node.id)  # a builtin, a star import, or a cell without its imports
        return self._agreed_full_name(bindings, tree, node.id)

    def variable(self, node: ast.Name) -> Variable:
        """Return what all names of one variable have in common: what owns it, the file, its name there."""
        scope = self.index.scope_of[node]
        return self.owner(node.id, scope), self.index.names[scope].tree, node.id

    def _agreed_full_name(self, bindings: list[Binding], tree: ast.Module, name: str) -> str | None:
        imports = [binding.node for binding in bindings if binding.how == "import"]
        if not bindings:
            return self._reexported_name(tree, name)
        if len(imports) != len(bindings):
            return self._aliased_name(bindings)
        # what is imported for want of something better comes last
        parents = self.index.parents
        imports.sort(key=lambda each: isinstance(parents[each], ast.ExceptHandler), reverse=True)
        for node in reversed(imports):
            if found := self._imported_name(node, name):
                return public_source_name(found)
        return None

    def _imported_name(self, node: ast.AST, name: str) -> str | None:
        """Return the full name behind an import; a local file passes on what it imported itself."""
        tree = self.index.tree_of(node)
        if isinstance(node, ast.ImportFrom):
            if (source := self._imported_file(tree, node)) is not None:
                return self._reexported_name(source, _original_name(node, name))
            if node.level:
                return None
        return imported_full_name(node, name)

    def _reexported_name(self, tree: ast.Module, name: str) -> str | None:
        """Return the full name that a local file gives a name, if it has it from a library."""
        bindings = self.index.names[tree].bindings.get(name, [])
        if not bindings or (tree, name) in self._passing:
            return None
        self._passing.add((tree, name))
        try:
            if all(each.how == "import" for each in bindings):
                return self._imported_name(bindings[-1].node, name)
            return self._aliased_name(bindings)
        finally:
            self._passing.discard((tree, name))

    def _aliased_name(self, bindings: list[Binding]) -> str | None:
        """Follow `Tensor = torch.cuda.FloatTensor`, where it is the only assignment."""
        values = [binding.value for binding in bindings if binding.how == "assign"]
        if len(values) == len(bindings) == 1 and values[0] is not None:
            return self.qualify(values[0]) if dotted_name(values[0]) else None
        return None


def _original_name(node: ast.ImportFrom, name: str) -> str:
    """Return what a name is called where an import takes it from."""
    return next((each.name for each in node.names if (each.asname or each.name) == name), name)


def _function_of_partial(value: ast.expr) -> ast.expr:
    """Return f of `functools.partial(f, ...)`."""
    if isinstance(value, ast.Call) and value.args:
        name = dotted_name(value.func) or ""
        if name in ("partial", "functools.partial"):
            return value.args[0]
    return value


def _is_star_imported(index: Index, tree: ast.Module, name: str) -> bool:
    """Tell whether a star import brings a name: one of `__all__`, where that is written out, else any public one."""
    said = index.names[tree].bindings.get("__all__", [])
    if len(said) != 1 or not isinstance(said[0].value, (ast.List, ast.Tuple)):
        return bool(said) or not name.startswith("_")
    given = [each.value for each in said[0].value.elts if isinstance(each, ast.Constant)]
    return name in given or len(given) < len(said[0].value.elts)


def _star_imports(index: Index, tree: ast.Module) -> list[ast.ImportFrom]:
    bound = index.names[tree].bindings.get("*", [])
    return [each.node for each in bound if isinstance(each.node, ast.ImportFrom)]


def imported_files(
    find: FindModule, tree: ast.Module, nodes: list[ast.Import | ast.ImportFrom]
) -> set[ast.Module]:
    """Return the files of the program that imports of one file bring."""
    found: set[ast.Module | None] = set()
    for node in nodes:
        home = (node.module or "", node.level) if isinstance(node, ast.ImportFrom) else ("", 0)
        names = [".".join(part for part in (home[0], alias.name) if part) for alias in node.names]
        found |= {find(tree, name, home[1]) for name in [home[0], *names] if name or home[1]}
    return {each for each in found if each is not None}

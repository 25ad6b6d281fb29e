# SPDX-License-Identifier: Apache-2.0
"""What no run in sight comes to: a file that stops at an import, and a function that a file's users leave alone."""

import ast
import re

from truestep.doctor.source.live_variables import is_behind_exit
from truestep.doctor.source.memoized_walk import WITHOUT_END, asked_once, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, Scope

_MADE_LATER = re.compile(r"version|_pb2|^_|_(ext|cuda|cpp|c)$", re.IGNORECASE)  # by a build
_WORD = re.compile(r"\w+")
_BY_TEXT = ("import_module", "instantiate", "attrgetter", "methodcaller")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_CALLED_BY_OTHERS = re.compile(r"^(test|main$|_?pytest|setup|__|on_)|_main$", re.IGNORECASE)


def is_never_run(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a file ends before a node, by `exit()` or an ImportError."""
    if is_behind_exit(module, node):
        return True
    missing = _missing_import(module, module.tree)
    return missing is not None and getattr(node, "lineno", 0) > missing.lineno


def unnamed_definition(module: SourceModule, node: ast.AST) -> str | None:
    """Return the name of the function or class around a node that nothing names of what runs in the program.

    None, too, where its users may be out of sight: in a file that nothing imports and that starts nothing, unless all
    files of its repository are read and none finds another by a text.
    """
    runs = module.program.is_imported() or any(map(_is_program_start, module.tree.body))
    if not runs and not module.program.has_users_in_sight():
        return None
    return module.program.answer(NamedDefinitions).lacking(node)


def is_apart_from_trainings(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether no training of a whole repository comes by a node, by calls that are followed."""
    if not module.program.is_of_repository():
        return False  # a file that is read alone is trained elsewhere
    around = [each for each in module.ancestors(node) if isinstance(each, Function)]
    return module.program.answer(scopes_of_trainings).isdisjoint(around or [module.tree])


def scopes_of_trainings(files: list[SourceModule]) -> set[Scope]:
    """Return the functions, and the tops of files, that run from where a program that trains is entered."""
    functions = files[0].functions
    entries = (trace for file in files for trace in file.program.followed if trace.learning_loops())
    roots = [each.root for each in entries if isinstance(each.root, (ast.Module, Function))]

    def scopes_run_with(scope: Scope) -> list[Scope]:
        calls = files[0].home(scope).directly_in(scope, ast.Call)
        return [files[0].index.tree_of(scope), *(run for call in calls for run in functions.all_called(call))]

    return {*walk_each_once(roots, scopes_run_with, WITHOUT_END)}


@asked_once(None)
def _missing_import(module: SourceModule, tree: ast.Module, depth: int = 0) -> ast.stmt | None:  # noqa: ARG001 - asked so
    """Return the first import of a file, outside of all tests and tries, of a module of this project that is not there."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            named = [each.name for each in node.names]
            is_made = any(
                _MADE_LATER.search(each) for each in [*named, *(getattr(node, "module", "") or "").split(".")]
            )
            if not is_made and module.program.lacks(node):
                return node
    return None


def _is_program_start(statement: ast.stmt) -> bool:
    """Tell a call at the top of a file, and `if __name__ == "__main__":`."""
    if isinstance(statement, ast.If):
        return "__name__" in ast.unparse(statement.test)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


class NamedDefinitions:
    """The functions, classes and methods that a program names at the top of a file, or in one that is named itself."""

    def __init__(self, files: list[SourceModule]) -> None:
        self.file, self.index = files[0], files[0].index
        asked = [call.args for call in self.index.calls.get("getattr", ()) if len(call.args) > 1]
        looked_up = [each[0] for each in asked if not isinstance(each[1], ast.Constant)]
        evaluated = [call for call in self.index.calls.get("eval", ()) if _is_lookup_in_object(call)]
        # `getattr(task, name)()`: what it gives is not known
        self._are_methods_open = bool(looked_up or evaluated)
        self.is_open = self._looks_up_by_text() or any(map(self._is_file_reference, looked_up))
        self._used: dict[ast.AST, set[str]] = {file.tree: _names_imported_from(file) for file in files}
        for file in () if self.is_open else files:
            for node in file.all(ast.Name, ast.Attribute, ast.Constant):
                self._used.setdefault(self._outermost_definition(node), set()).update(_names_or_words(node))
        # what a file that nothing imports defines is seen by itself alone
        self._alone = {
            file.tree
            for file in files
            if file.program.has_users_in_sight() and not file.program.is_imported()
        }
        self._names: dict[ast.Module | None, set[str]] = {None: set()}  # by file, and of all
        self.found: set[ast.AST] = set()
        own = [[*file.named_functions, *file.all(ast.ClassDef)] for file in files]
        self._find_named([each for found in own for each in found], files)

    def lacking(self, node: ast.AST) -> str | None:
        """Return the name of what is around a node, if nothing names it."""
        around = self._outermost_definition(node)
        if self.is_open or isinstance(around, ast.Module) or around in self.found:
            return None
        owner = self.index.parents[around]
        unnamed = owner if isinstance(owner, ast.ClassDef) and owner not in self.found else around
        return getattr(unnamed, "name", None)

    def _looks_up_by_text(self) -> bool:
        """Tell `globals()[name]`, `eval(name)`, `import_module(name)`."""
        calls = [call for name in ("globals", "eval", "exec") for call in self.index.calls.get(name, ())]
        code = [call.func for call in calls if not _is_lookup_in_object(call)]
        found = [call for name in _BY_TEXT for call in self.index.calls.get(name, ())]
        # `import_module(path).build(...)` finds a file, and names what it takes from it
        is_asked = any(not isinstance(self.index.parents[each], ast.Attribute) for each in found)
        return is_asked or any(isinstance(each, ast.Name) for each in code)

    def _is_file_reference(self, node: ast.expr) -> bool:
        """Tell `models` and `sys.modules[__name__]`."""
        is_own = "__name__" in ast.unparse(node) or self.file.names.module_named(node) is not None
        return is_own or self.file.qualify(node) is not None

    def _outermost_definition(self, node: ast.AST) -> ast.AST:
        """Return the outermost function or method around a node, else its class, else its file."""
        above = [each for each in self.index.ancestors(node) if isinstance(each, (*_FUNCTIONS, ast.ClassDef))]
        if not above:
            return self.index.tree_of(node)
        is_method = isinstance(above[-1], ast.ClassDef) and isinstance(above[-2:][0], _FUNCTIONS)
        return above[-2] if is_method else above[-1]

    def _find_named(self, definitions: list[_Definition], files: list[SourceModule]) -> None:
        new: list[ast.AST] = [file.tree for file in files]
        while new:
            self.found.update(new)
            for each in new:
                for whose in (None, self.index.tree_of(each)):
                    self._names.setdefault(whose, set()).update(self._used.get(each, ()))
            definitions = [each for each in definitions if each not in self.found]
            new = [each for each in definitions if self._is_named_definition(each)]

    def _is_named_definition(self, definition: _Definition) -> bool:
        owner = self.index.parents[definition]
        if isinstance(owner, ast.ClassDef) and owner not in self.found:
            return False
        name, tree = definition.name, self.index.tree_of(definition)
        # what a file that nothing imports defines is seen by itself alone
        if (
            name in self._names[tree if tree in self._alone else None]
            or definition.decorator_list
            or _CALLED_BY_OTHERS.search(name)
            or self._is_unittest_class(definition)
        ):
            return True
        if not isinstance(owner, ast.ClassDef):
            return False
        return self._are_methods_open or name == "forward" or self._has_library_base(owner)

    def _is_unittest_class(self, definition: _Definition) -> bool:
        """Tell a class of `unittest`, which is found by its base."""
        bases = definition.bases if isinstance(definition, ast.ClassDef) else []
        return any((self.file.qualify(each) or "").startswith("unittest.") for each in bases)

    def _has_library_base(self, owner: Class) -> bool:
        """Tell a class whose base is out of sight, which may call its methods; modules of torch call `forward`."""
        return bool(self.file.classes.bases_out_of_sight(owner) - {"torch.nn.Module", "object"})


def _is_lookup_in_object(call: ast.Call) -> bool:
    """Tell `eval("self.block" + str(i))` and `eval(f"self.block{i}")`: it finds what an object has, no definition."""
    text: ast.expr | None = call.args[0] if call.args else None
    while isinstance(text, ast.BinOp):
        text = text.left
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "format":
        text = text.func.value
    first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
    start = first.value if isinstance(first, ast.Constant) else None
    return isinstance(start, str) and start.startswith("self.")


def _names_imported_from(file: SourceModule) -> set[str]:
    return {alias.name for node in file.all(ast.ImportFrom) for alias in node.names}


def _names_or_words(node: ast.expr) -> list[str]:
    """Return a name that is read, or the words of a short text: a table may name what it is for."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            return [name.rpartition(".")[2]]
        case ast.Constant(value=str(text)) if len(text) < 200:
            return _WORD.findall(text)
    return []

# SPDX-License-Identifier: Apache-2.0
"""The names of programs, read without running them: what habits bind, and what a whole program reads that nothing binds."""

import ast
import builtins
import symtable
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from programs.compose import Program
from programs.habits import BLOCK, FRAME, INLINE, Habit, all_habits

# What every habit may bind anew: the parts of a program that the README names, and what a loss gives.
SHARED = {
    "data",
    "loader",
    "model",
    "optimizer",
    "scheduler",
    "batch",
    "loss",
    "epoch",
    "compute_loss",
    "x",
    "y",
}
SHARED |= {"out", "values", "given"}  # the last is written where a piece names another one
OWN_SCOPE = (
    ast.FunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.GeneratorExp,
    ast.DictComp,
    ast.SetComp,
)
OF_A_MODULE = {*dir(builtins), "__name__", "__file__", "__doc__"}

Clash = tuple[str, str, str]  # the name, and two habits


def parsed(text: str) -> ast.Module:
    """Return a piece as a tree, with something in the place of what it names; empty for a part of a line."""
    text = INLINE.sub("given", BLOCK.sub(r"\1pass", text))
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])


def bound(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that runs of a tree bind, outside its functions, and what it is bound to, in words."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            home = getattr(node, "module", "")
            yield from ((each.asname or each.name, f"{home} {each.name}") for each in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, ast.unparse(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, ast.unparse(tree)
        elif not isinstance(node, OWN_SCOPE):
            yield from bound(node)


def names_bound() -> dict[str, dict[Habit, set[str]]]:
    """Return, for each name, the habits that bind it, with what each binds it to."""
    found: dict[str, dict[Habit, set[str]]] = defaultdict(lambda: defaultdict(set))
    for habit in all_habits():
        for text in habit.pieces.values():
            for name, to in bound(parsed(text)):
                found[name][habit].add(to)
    return found


def clashes() -> list[Clash]:
    """Return each name that two habits of one program bind to different things, and that is not one they share."""
    return [
        (name, a.name, b.name)
        for name, habits in sorted(names_bound().items())
        for a, b in combinations(habits, 2)
        if name not in SHARED and a.slot != b.slot and habits[a] != habits[b] and a.suits(b)
    ]


def unbound(program: Program, given: dict[str, str] | None = None) -> set[str]:
    """Return the names that a program reads, and that no line of the file binds; of an owner, its attributes likewise."""
    owner = program.habit("shape").words.get("owner")
    found: set[str] = set()
    for name, text in program.files(given).items():
        table = symtable.symtable(text, name, "exec")
        of_module = {
            each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()
        }
        read = {
            each.get_name()
            for scope in scopes(table)
            for each in scope.get_symbols()
            if is_looked_up(each, scope)
        }
        found |= read - of_module - OF_A_MODULE
        found |= attributes_unbound(ast.parse(text), owner) if owner else set()
    return found


def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield a scope and those inside it."""
    yield table
    for child in table.get_children():
        yield from scopes(child)


def is_looked_up(symbol: symtable.Symbol, scope: symtable.SymbolTable) -> bool:
    """Tell whether a name is read from the module, or is a builtin one."""
    return symbol.is_referenced() and (scope.get_type() == "module" or symbol.is_global())


def attributes_unbound(tree: ast.Module, owner: str) -> set[str]:
    """Return what is read of an owner in the class that holds the training, and that no line of that class gives it."""
    found = set()
    for node in tree.body:
        methods = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)]
        if (
            isinstance(node, ast.ClassDef)
            and not node.bases
            and any(owner_of(each) == owner for each in methods)
        ):
            used = [each for each in ast.walk(node) if is_of(each, owner)]
            given = {each.attr for each in used if isinstance(each.ctx, ast.Store)}
            given |= {each.name for each in methods} | {name for name, _ in bound(node)}
            found |= {f"{owner}.{each.attr}" for each in used if each.attr not in given}
    return found


def owner_of(method: ast.FunctionDef) -> str:
    """Return what a method calls its object."""
    return method.args.args[0].arg if method.args.args else ""


def is_of(node: ast.AST, owner: str) -> bool:
    """Tell an attribute of the owner."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner


def doubled() -> list[Clash]:
    """Return each piece that stands within a line and that two habits of one program give: one text behind the other."""
    texts = [text for habit in all_habits() for text in (*habit.pieces.values(), *FRAME.values())]
    inline = {name for text in texts for name in INLINE.findall(BLOCK.sub("", text))}
    giving = {
        name: [each for each in all_habits() if any(is_whole(each, name, end) for end in ("", " truestep"))]
        for name in sorted(inline)
    }
    return [
        (name, a.name, b.name)
        for name, habits in giving.items()
        for a, b in combinations(habits, 2)
        if a.slot != b.slot and a.suits(b)
    ]


def is_whole(habit: Habit, name: str, end: str) -> bool:
    """Tell whether a habit gives a piece that is more than arguments that follow others."""
    text = habit.pieces.get(name + end, "")
    return bool(text) and not text.startswith((",", "."))

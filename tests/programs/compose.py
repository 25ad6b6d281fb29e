# SPDX-License-Identifier: Apache-2.0
"""From one draw of habits: the files of a program as a stranger writes it, and of the same one with Truestep."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from programs.habits import Habit, named, text_of

PARTS = ("definitions", "build", "train", "finish")
INNER = "inner"  # the owner of a method in a class that stands within a method, whose `self` is the outer one


@dataclass(frozen=True)
class Program:
    """The habits of one draw; its text follows from them."""

    habits: tuple[Habit, ...]

    def __repr__(self) -> str:
        return f"program({', '.join(repr(habit.name) for habit in self.habits)})"

    def _repr_pretty_(self, printer, cycle) -> None:  # as hypothesis prints it
        printer.text(repr(self))

    def habit(self, slot: str) -> Habit:
        """Return what was drawn for a slot."""
        return next(habit for habit in self.habits if habit.slot == slot)

    def command(self) -> list[str]:
        """Return what `python` is given to run it."""
        module = self.habit("shape").words.get("module")
        return ["-m", module] if module else ["main.py"]

    def mistakes(self) -> set[str]:
        """Return the codes of the mistakes that some habits of it make together, each right where it stands alone."""
        names = {habit.name for habit in self.habits}
        words = (line for habit in self.habits for line in habit.words.items())
        together = {f"wrong with {name}" for name in names}
        return {code for word, codes in words if word in together for code in codes.split()}

    def with_framework(self, name: str) -> "Program":
        """Return the program with another framework around the same habits."""
        others = [habit for habit in self.habits if habit.slot != "framework"]
        return Program((named(name), *others))

    def with_habit(self, name: str) -> "Program":
        """Return the program with a habit in its slot in the place of the one that was drawn."""
        habit = named(name)
        return Program(tuple(habit if each.slot == habit.slot else each for each in self.habits))

    def files(self, given: dict[str, str] | None = None) -> dict[str, str]:
        """Return the text of each file; pieces that are given take the place of the habits'."""
        shape = self.habit("shape")
        parts = {name: text_of(self.habits, name, given) for name in PARTS}
        if "owner" in shape.words:
            parts |= of_owner(parts, shape.words["owner"])
        imports = once(text_of(self.habits, "imports", given).splitlines())
        helper = shape.pieces.get("helper", "")
        parts |= {"imports": imports, "defined": ", ".join([*defined(parts["definitions"]), helper])}
        found = {}
        for name in (name for habit in self.habits for name in habit.pieces if name.startswith("file ")):
            text = text_of(self.habits, name, (given or {}) | parts)
            found[name.removeprefix("file ")] = text.strip("\n") + "\n"
        return found


def program(*names: str) -> Program:
    """Return the program of habits by name; slots that none of them fills have their plainest."""
    from programs.draws import filled

    return filled([named(name) for name in names])


def once(lines: Iterable[str]) -> str:
    """Return lines without repetition, those for `__future__` first."""
    return "\n".join(sorted(dict.fromkeys(lines), key=lambda line: "__future__" not in line))


def defined(text: str) -> list[str]:
    """Return the names that definitions make."""
    found = []
    for statement in ast.parse(text).body:
        targets = getattr(statement, "targets", [])
        found += [target.id for target in targets if isinstance(target, ast.Name)]
        found += [statement.name] if isinstance(statement, ast.ClassDef | ast.FunctionDef) else []
    return found


class Owned(ast.NodeTransformer):
    """Turns names into attributes of an owner, where no function has them as names of its own."""

    def __init__(self, names: set[str], owner: str) -> None:
        self.names, self.owner = names, owner

    def visit_Name(self, node):
        owner = ast.Name(self.owner, ast.Load())
        return ast.Attribute(owner, node.id, node.ctx) if node.id in self.names else node

    def _function(self, node):
        for each in ast.walk(node) if self.owner in parameters(node) else ():  # a method of a class within
            if isinstance(each, ast.arg) and each.arg == self.owner:
                each.arg = INNER
            elif isinstance(each, ast.Name) and each.id == self.owner:
                each.id = INNER
        kept, self.names = self.names, self.names - parameters(node) - assigned(node)
        found = self.generic_visit(node)
        self.names = kept
        if isinstance(node, ast.FunctionDef) and node.name in self.names:
            return [found, *ast.parse(f"{self.owner}.{node.name} = {node.name}").body]
        return found

    visit_FunctionDef = visit_Lambda = _function


def parameters(node: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the names of a function's parameters."""
    return {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}


def assigned(node: ast.AST) -> set[str]:
    """Return the names that a function assigns, its own or a nested one's."""
    stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in stored if isinstance(each.ctx, ast.Store)}


def of_owner(parts: dict[str, str], owner: str) -> dict[str, str]:
    """Return the parts that run, with what is built held by an object."""
    names = set()
    for statement in ast.parse(parts["build"]).body:
        if isinstance(statement, ast.FunctionDef):
            names.add(statement.name)
        for target in getattr(statement, "targets", ()):
            names |= {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    found = {}
    for name in ("build", "train", "finish"):
        tree = Owned(set(names), owner).visit(ast.parse(parts[name]))
        found[name] = ast.unparse(ast.fix_missing_locations(tree))
    return found

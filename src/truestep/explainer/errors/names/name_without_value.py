# SPDX-License-Identifier: Apache-2.0
import ast

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.source import enclosing_scope_in_file, file_name_of_any_system

_HOLDERS = {
    ast.For: "a loop that never ran",
    ast.While: "a loop that never ran",
    ast.If: "a branch that was not taken",
}
_HOLDERS |= {ast.Try: "a try that failed", ast.With: "a with block"}


class NameWithoutValue(Explainer):
    """A variable is used before anything was assigned to it.

    Means: its only assignments stand in a loop that never ran (an empty loader) or in a branch that was not taken.

    Raises:
        def epoch(loader):
            for batch in loader:
                loss = batch.sum()
            return loss

        epoch([])

    Works:
        def epoch(loader):
            loss = None
            for batch in loader:
                loss = batch.sum()
            return loss

        epoch([])

    Fix: look at why the loop is empty: len(dataset), drop_last with fewer samples than a batch, an iterator that was used up. Give
    the name a value before, or raise in the else of the branches. A name that is assigned anywhere in a function is its own.

    Cases:
        otherwise: `{name}` gets its value in {holder}.
    """

    types = ("UnboundLocalError", "NameError")
    messages = (
        r"local variable '(?P<name>\w+)' referenced before assignment",
        r"cannot access local variable '(?P<name>\w+)' where it is not associated with a value",
        r"cannot access free variable '(?P<name>\w+)' where it is not associated with a value",
    )
    not_in_a_log = "which loop did not run, or which branch was not taken"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        user = crash.user
        found = (
            _statements_assigning_name(user.path, user.line, match["name"])
            if user is not None and crash.is_live
            else ""
        )
        return {"holder": found} if found else {}


def _statements_assigning_name(path: str, line: int, name: str) -> str:
    """Say in which statements of a function a name gets its value."""
    function = enclosing_scope_in_file(path, line, ast.FunctionDef)
    for holder in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
        words = _HOLDERS.get(type(holder))
        if words and any(
            isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            for node in ast.walk(holder)
        ):
            return f"{words}, {file_name_of_any_system(path)}:{getattr(holder, 'lineno', 0)}"
    return ""

# SPDX-License-Identifier: Apache-2.0
"""Writes names.inc, the list of public names at the top of the API page, when the documentation is built."""

import ast
import inspect
import operator
import re
from pathlib import Path

import truestep
from truestep import frameworks

LIST = Path(__file__).with_name("names.inc")


def docstring(name: str) -> str:
    """Return a name's docstring; what is of another library is read from its file, so that the library is not loaded."""
    module, _, piece = name.rpartition(".")
    file = Path(frameworks.__file__).parent / f"{module}.py"
    if module and file.is_file():
        classes = ast.parse(file.read_text("utf-8")).body
        return next(
            ast.get_docstring(each) or ""
            for each in classes
            if getattr(each, "name", "") == piece
        )
    return inspect.getdoc(operator.attrgetter(name)(truestep)) or ""


def summary(name: str) -> str:
    """Return the first sentence of a name's docstring, fit for a cell of a table."""
    first = docstring(name).partition("\n\n")[0]
    sentence = re.split(r"(?<=\.)(?<!al\.)\s", " ".join(first.split()))[0].replace(
        "|", "\\|"
    )
    if not sentence:
        raise ValueError(f"truestep.{name} has no docstring")
    return sentence


def names() -> list[str]:
    """Return every public name but those of modules, whose names stand with them."""
    modules = [
        name for name in truestep.__all__ if inspect.ismodule(getattr(truestep, name))
    ]
    pieces = [
        f"{module}.{name}"
        for module in modules
        for name in getattr(truestep, module).__all__
    ]
    return sorted({*truestep.__all__, *pieces} - {*modules}, key=str.lower)


def text() -> str:
    """Return the list, each name leading to its part of the page."""
    rows = [
        f"| {{py:obj}}`ts.{name} <truestep.{name}>` | {summary(name)} |"
        for name in names()
    ]
    return "\n".join(["| name | what it is |", "|---|---|", *rows, ""])


def write() -> None:
    """Write the list where it is not as it should be: a build takes what has not changed from its cache."""
    wanted = text()
    if not LIST.exists() or LIST.read_text("utf-8") != wanted:
        LIST.write_text(wanted, "utf-8")

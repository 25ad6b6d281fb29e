# SPDX-License-Identifier: Apache-2.0
"""Which recipes there are, and what a recipe's text says without running it."""

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

from truestep.core.errors import OptionError, names_hint
from truestep.core.os_specific import is_path_with_folder

FOLDER = Path(__file__).parents[1]

WHAT_TO_WRITE = """A recipe needs these two:

    @dataclass(frozen=True)
    class Config:
        lr: float = 1e-3  # learning rate

    def train(run, config):
        ...
"""


def recipes() -> dict[str, Path]:
    """Return the recipes that come with the package, by name: a hyphen where the file has an underscore."""
    return {
        path.stem.replace("_", "-"): path
        for path in sorted(FOLDER.glob("*.py"))
        if not path.stem.startswith("_")
    }


def recipe_name(path: Path) -> str:
    """Return what a recipe's runs are called by."""
    known = {its_path: name for name, its_path in recipes().items()}
    return known.get(path, path.stem)


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given by name or as the path of a Python file."""
    known = recipes()
    if name in known:
        return known[name]
    if not (name.endswith(".py") or is_path_with_folder(name)):
        raise OptionError(f"There is no recipe {name!r}. {names_hint(name, known)} A file ends in .py.")
    path = Path(name)
    if not path.is_file():
        raise OptionError(f"There is no file {name} in {Path.cwd()}. {_similar_recipes_hint(path, known)}")
    return path


def read_recipe_docstring(path: Path) -> str:
    """Return the docstring of a recipe's file; a file without Config or train is refused before it runs."""
    try:
        with tokenize.open(path) as file:
            tree = ast.parse(file.read(), filename=str(path))
    except SyntaxError as error:
        raise OptionError(f"{path}, line {error.lineno}: {error.msg}. It is not valid Python.") from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise OptionError(f"{path} can't be read: {error}.") from error
    missing = [name for name in ("Config", "train") if name not in set(_top_level_names(tree))]
    if missing:
        raise OptionError(
            f"{path} has no {' and no '.join(missing)}. {WHAT_TO_WRITE}\nA script that trains by itself is run by python {path}"
        )
    return ast.get_docstring(tree) or ""


def _similar_recipes_hint(path: Path, known: dict[str, Path]) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"There is no folder {folder} either."
    names = {file.name for file in folder.glob("*.py")}
    return names_hint(path.name, names) if names else f"Recipes of Truestep's own: {', '.join(known)}."


def _top_level_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))

# SPDX-License-Identifier: Apache-2.0
"""What a recipe's text says, without running it: its summary, and the options that its Config makes.

Help for an option is, in this order: `field(metadata={"help": ...})`, a string after the attribute, a
comment behind it, comments above it.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from truestep.errors import OptionError

WHAT_TO_WRITE = """A recipe needs these two:

    @dataclass(frozen=True)
    class Config:
        lr: float = 1e-3  # learning rate

    def train(run, config):
        ...
"""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A field of a Config as an option of the command line; its default is the text in the file."""

    name: str
    annotation: str
    default: str | None
    help: str = ""
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """As it is written: --batch-size."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether it is given as --flag or --no-flag, without a value."""
        kinds = self.annotation.replace("Optional[", "").replace("]", "").replace(" ", "").split("|")
        return "bool" in kinds and set(kinds) <= {"bool", "None"}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe as its text tells it; `options` is None where only importing it would tell."""

    path: Path
    description: str
    options: tuple[Option, ...] | None

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.description.partition("\n")[0]


def read_recipe(path: Path) -> Recipe:
    """Read a recipe's file; one that has no Config or no train is refused with what to write."""
    text = _text(path)
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise OptionError(
            f"{path}, line {error.lineno}: {error.msg}. The file is no valid Python."
        ) from error
    missing = [name for name in ("Config", "train") if name not in set(_bound_names(tree))]
    if missing:
        raise OptionError(f"{path} has no {' and no '.join(missing)}. {WHAT_TO_WRITE}")
    options = _options(tree, "Config", _comments(text))
    return Recipe(path=path, description=ast.get_docstring(tree) or "", options=options)


def options_in(path: Path, class_name: str) -> tuple[Option, ...]:
    """Return the options that one class of a file makes by itself, without what it inherits."""
    text = _text(path)
    classes = _classes(ast.parse(text))
    node = classes.get(class_name)
    return tuple(_own_options(node, classes, _comments(text))) if node else ()


def _text(path: Path) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} can't be read: {error}.") from error


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _options(tree: ast.Module, name: str, comments: dict[int, str]) -> tuple[Option, ...] | None:
    """Return the options of a class and its bases; None when one of them is not in this file."""
    classes = _classes(tree)
    if name not in classes:
        return None
    found: dict[str, Option] = {}
    for base in classes[name].bases:
        inherited = _options(tree, ast.unparse(base), comments)
        if inherited is None:
            return None
        found |= {option.name: option for option in inherited}
    found |= {option.name: option for option in _own_options(classes[name], classes, comments)}
    return tuple(found.values())


def _own_options(
    node: ast.ClassDef, classes: dict[str, ast.ClassDef], comments: dict[int, str]
) -> Iterator[Option]:
    following = [*node.body[1:], None]
    for statement, after in zip(node.body, following, strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        annotation, settings = ast.unparse(statement.annotation), _field_settings(statement.value)
        if annotation.startswith(("ClassVar", "typing.ClassVar")) or settings.get("init") == "False":
            continue
        yield Option(
            name=statement.target.id,
            annotation=annotation,
            default=_default(statement.value, settings),
            help=_help(statement, settings, after, comments),
            choices=_choices(statement.annotation, classes),
        )


def _field_settings(value: ast.expr | None) -> dict[str, str]:
    """Return the arguments of a call of `field`, as text; `help` out of its metadata."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func).rpartition(".")[2] != "field":
        return {}
    settings = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords if keyword.arg}
    for keyword in value.keywords:
        if keyword.arg == "metadata" and isinstance(keyword.value, ast.Dict):
            for key, text in zip(keyword.value.keys, keyword.value.values, strict=True):
                if ast.unparse(key or text) == "'help'" and isinstance(text, ast.Constant):
                    settings["help"] = str(text.value)
    return settings | {"is_field": "True"}


def _default(value: ast.expr | None, settings: dict[str, str]) -> str | None:
    if "is_field" not in settings:
        return None if value is None else ast.unparse(value)
    factory = settings.get("default_factory")
    return settings.get("default", f"{factory}()" if factory else None)


def _help(
    statement: ast.AnnAssign, settings: dict[str, str], after: ast.stmt | None, comments: dict[int, str]
) -> str:
    if "help" in settings:
        return settings["help"]
    if (
        isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    ):
        return " ".join(after.value.value.split())
    behind = comments.get(statement.end_lineno or statement.lineno)
    if behind is not None:
        return behind
    above: list[str] = []
    line = statement.lineno - 1
    while -line in comments:  # comments that have a line to themselves are under its negative
        above.insert(0, comments[-line])
        line -= 1
    return " ".join(above)


def _comments(text: str) -> dict[int, str]:
    """Return comments by line; those with a line to themselves by the line's negative."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            found[-token.start[0] if alone else token.start[0]] = token.string.lstrip("#").strip()
    return found


def _choices(annotation: ast.expr, classes: dict[str, ast.ClassDef]) -> tuple[str, ...]:
    """Return what a Literal or an Enum of the same file allows, also beside None."""
    if isinstance(annotation, ast.BinOp):
        return _choices(annotation.left, classes) + _choices(annotation.right, classes)
    if isinstance(annotation, ast.Subscript):
        inside = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        name = ast.unparse(annotation.value).rpartition(".")[2]
        if name == "Literal":
            return tuple(str(each.value) for each in inside if isinstance(each, ast.Constant))
        return _choices(inside[0], classes) if name == "Optional" else ()
    node = classes.get(ast.unparse(annotation))
    if node is None or not any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases):
        return ()
    names = [target for each in node.body if isinstance(each, ast.Assign) for target in each.targets]
    return tuple(name.id for name in names if isinstance(name, ast.Name))

# SPDX-License-Identifier: Apache-2.0
"""The help of `truestep train`, in general and of one recipe, written from the recipe's text."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from truestep.recipes.loading import Option, Recipe, read_recipe, recipes
from truestep.recipes.loading.start import RUN_OPTIONS, load, options_of

PLACEHOLDERS = {"int": "INTEGER", "float": "NUMBER", "str": "TEXT", "Path": "PATH", "bool": ""}


def print_general_help() -> None:
    """Print what `truestep train` does, the recipes and the options that all of them have."""
    console = Console(highlight=False)
    console.print(Text("\n Usage: truestep train NAME|FILE.py [OPTIONS]\n", style="bold"))
    _print_paragraphs(
        console,
        "Train a recipe: one of those below, or a file of yours that has a Config data class and a "
        "function train(run, config). The fields of Config are options.",
    )
    found = [read_recipe(path) for path in recipes().values()]
    _print_panel(console, "Recipes", [(recipe.name, "", Text(recipe.summary)) for recipe in found])
    _print_panel(console, "Options of every recipe", _rows(RUN_OPTIONS))
    console.print(Text(" truestep train NAME --help shows a recipe's own options.\n", style="dim"))


def print_recipe_help(recipe: Recipe, name: str) -> None:
    """Print what a recipe does and its options."""
    console = Console(highlight=False)
    console.print(Text(f"\n Usage: truestep train {name} [OPTIONS]\n", style="bold"))
    _print_paragraphs(console, recipe.description)
    own = recipe.options if recipe.options is not None else options_of(load(recipe.path).Config)
    if own:
        _print_panel(console, "Options of this recipe", _rows(own))
    _print_panel(console, "Options of every recipe", _rows(RUN_OPTIONS))


def _print_paragraphs(console: Console, text: str) -> None:
    """Print text that was broken at some other width; indented lines stay as they are."""
    for paragraph in filter(None, text.split("\n\n")):
        is_code = any(line.startswith(" ") for line in paragraph.splitlines())
        words = paragraph if is_code else " ".join(paragraph.split())
        console.print(Padding(Text(words), (0, 1, 1, 1)))


def _rows(options: Sequence[Option]) -> Iterator[tuple[str, str, Text]]:
    for option in options:
        flag = f"{option.flag}/--no-{option.flag[2:]}" if option.is_switch else option.flag
        yield flag, _placeholder(option), _help(option)


def _placeholder(option: Option) -> str:
    if option.choices:
        return "|".join(option.choices)
    if option.is_switch:
        return ""
    kinds = [kind for kind in option.annotation.replace(" ", "").split("|") if kind != "None"]
    return "|".join(PLACEHOLDERS.get(kind.rpartition(".")[2], kind) for kind in kinds)


def _help(option: Option) -> Text:
    text = Text(option.help)
    if option.default is None:
        return text.append("  [required]" if text else "[required]", style="red")
    if option.default != "None":
        text.append(f"{'  ' if text else ''}[default={_shown_default(option)}]", style="dim")
    return text


def _shown_default(option: Option) -> str:
    """Return the default as one would type it."""
    text = option.default or ""
    if option.is_switch:
        return option.flag if text == "True" else f"--no-{option.flag[2:]}"
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    if option.annotation.startswith(("tuple", "list")):
        return text.strip("()[]").replace(" ", "").rstrip(",")
    return text


def _print_panel(
    console: Console, title: str, rows: Iterator[tuple[str, str, Text]] | list[tuple[str, str, Text]]
) -> None:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(style="yellow", overflow="fold")
    table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    console.print(Panel(table, title=title, title_align="left", border_style="dim"))

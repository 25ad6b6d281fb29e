# SPDX-License-Identifier: Apache-2.0
"""The fields of a recipe's Config as options of the command line; tyro reads types, defaults and help."""

import dataclasses
import importlib.util
import math
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

import tyro

from truestep.core.errors import OptionError, names_hint
from truestep.core.guidance import option_by_other_name
from truestep.recipes.loading.find import FOLDER, read_recipe_docstring, recipe_name
from truestep.run.options import Resume


@dataclass(frozen=True, kw_only=True)
class CommonRecipeOptions:
    """What every recipe can be told."""

    out: Path | None = None  # the run's folder; without it a new one under runs/
    # go on with the run that the folder holds; "anew" starts one beside it, "edited" goes on with what was changed
    resume: Resume = "auto"
    precision: str = "float32"  # of every learner: float32, float64, bf16-mixed, fp16-mixed, ...
    device: str = "auto"  # cpu, cuda, cuda:1, mps
    seed: int = 0  # of weights, order and augmentation
    save_every: int | None = None  # steps between saves, beside those by time and at the end of an epoch
    mirror: str | None = None  # an object store that keeps the checkpoints, too: s3://bucket/runs/x


@dataclass(frozen=True, kw_only=True)
class ParsedRecipe:
    """A recipe with everything that was said about it."""

    name: str
    module: ModuleType
    config: Any
    options: CommonRecipeOptions


def parse_recipe(path: Path, arguments: Sequence[str], *, name: str) -> ParsedRecipe:
    """Import a recipe and make its Config of the words after its name.

    Raises OptionError for words that are no options; SystemExit, after tyro's message, for `--help` and for what is no value.
    """
    description = read_recipe_docstring(path)
    module = load_recipe(path)
    options = _combined_options_class(module.Config, path)
    both, unknown = tyro.cli(
        options,
        args=list(arguments),
        prog=f"truestep train {name}",
        description=_wrap_paragraphs(description),
        config=(tyro.conf.OmitArgPrefixes,),
        registry=_scientific_integer_registry(),
        return_unknown_args=True,
    )
    if unknown:
        raise OptionError(
            _unknown_option_message(f"truestep train {name}", unknown[0], [*_option_field_names(options)])
        )
    if both.options.resume == "must" and both.options.out is None:
        raise OptionError("--resume must needs --out FOLDER: a new folder has no run in it.")
    return ParsedRecipe(name=recipe_name(path), module=module, config=both.config, options=both.options)


def _combined_options_class(config_class: Any, path: Path) -> type[Any]:
    """Return a data class of the recipe's options and those of every recipe."""
    if not (isinstance(config_class, type) and dataclasses.is_dataclass(config_class)):
        raise OptionError(f"{path}: Config is no data class. Write @dataclass above class Config.")
    own = {field.name for field in dataclasses.fields(config_class) if field.init}
    if taken := own & {field.name for field in dataclasses.fields(CommonRecipeOptions)}:
        raise OptionError(
            f"{path}: Config.{' and Config.'.join(sorted(taken))} would be an option that every recipe has "
            "already. Leave it out of Config; the run has it."
        )
    return dataclasses.make_dataclass(
        "Both",
        [
            ("config", Annotated[config_class, tyro.conf.arg(name="")]),
            ("options", Annotated[CommonRecipeOptions, tyro.conf.arg(name="every recipe's")]),
        ],
    )


def _option_field_names(options: type[Any]) -> Iterator[str]:
    """Yield the fields that are options, those of data classes within it among them."""
    for field in dataclasses.fields(options):
        kind = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from _option_field_names(kind)
        elif field.init:
            yield field.name


def _unknown_option_message(command: str, word: str, known: list[str]) -> str:
    option, name = word.partition("=")[0], word.partition("=")[0].lstrip("-").replace("-", "_")
    if not word.startswith("-"):
        return f"{command} takes options alone, and {word!r} belongs to none: each is written --name value."
    said = f"{command} has no option {option}."
    if called := option_by_other_name(name, known):
        return f"{said} Here it is called {_option_flag(called)}."
    return f"{said} {names_hint(option, map(_option_flag, known))}"


def _option_flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _wrap_paragraphs(text: str) -> str:
    """Break paragraphs at the terminal's width; indented ones stay as they are."""
    width = min(shutil.get_terminal_size().columns, 100)
    paragraphs = text.split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else textwrap.fill(each, width) for each in paragraphs)


def _scientific_integer_registry() -> tyro.constructors.ConstructorRegistry:
    """Let whole numbers be written as 1e6 too."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def integer_rule(
        info: tyro.constructors.PrimitiveTypeInfo,
    ) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: _parse_scientific_integer(words[0]),
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def _parse_scientific_integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"{word} is not a whole number")
    return int(number)


def load_recipe(path: Path) -> ModuleType:
    """Import a recipe's file as running it would: its folder is where its imports are looked for."""
    if path.resolve().parent == FOLDER:
        return importlib.import_module(f"truestep.recipes.{path.stem}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem if _is_module_name_free(path) else f"recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # data classes look their module up
    spec.loader.exec_module(module)
    return module


def _is_module_name_free(path: Path) -> bool:
    """Whether importing the file under its own name hides no other module."""
    if path.stem in sys.modules:
        return False
    spec = importlib.util.find_spec(path.stem)
    return spec is not None and spec.origin == str(path.resolve())

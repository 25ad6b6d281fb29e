# SPDX-License-Identifier: Apache-2.0
"""Import a recipe, make its Config and train inside a run."""

import dataclasses
import enum
import importlib.util
import inspect
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_type_hints

import truestep
from truestep.errors import OptionError
from truestep.recipes.loading.convert import converted, split_arguments
from truestep.recipes.loading.source import Option, Recipe, options_in


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What every recipe can be told."""

    out: Path | None = None  # the run's folder; without it a new one under runs/
    resume: Literal["auto", "never", "must"] = "auto"  # go on with the run that the folder holds
    precision: str = "float32"  # of every learner: float32, float64, bf16-mixed, fp16-mixed, ...
    seed: int = 0  # of weights, order and augmentation


RUN_OPTIONS = options_in(Path(__file__), "RunOptions")


@dataclass(frozen=True, kw_only=True)
class Start:
    """A recipe with everything that was said about it."""

    recipe: Recipe
    module: ModuleType
    config: Any
    options: RunOptions


def parsed(recipe: Recipe, arguments: Sequence[str]) -> Start:
    """Convert the words after the recipe's name, importing it once they are known to be its options."""
    module = None if recipe.options is not None else load(recipe.path)
    own = recipe.options if module is None else options_of(module.Config)
    assert own is not None
    _refuse_doubles(recipe, own)
    given = split_arguments(arguments, [*own, *RUN_OPTIONS])
    missing = [option.flag for option in own if option.default is None and option.name not in given]
    if missing:
        raise OptionError(f"{recipe.name} needs {' and '.join(missing)}, which has no default.")
    options = RunOptions(**_typed(RunOptions, RUN_OPTIONS, given))
    if options.resume == "must" and options.out is None:
        raise OptionError(
            "--resume must needs --out FOLDER: without it a new folder is made, with no run in it."
        )
    module = module or load(recipe.path)
    config = module.Config(**_typed(module.Config, own, given))
    return Start(recipe=recipe, module=module, config=config, options=options)


def _refuse_doubles(recipe: Recipe, own: Sequence[Option]) -> None:
    taken = {option.name for option in own} & {option.name for option in RUN_OPTIONS}
    if taken:
        raise OptionError(
            f"{recipe.path}: Config.{' and Config.'.join(sorted(taken))} would be an option that every "
            "recipe has already. Leave it out of Config; the run has it."
        )


def _typed(config_class: type, options: Sequence[Option], given: Mapping[str, str | bool]) -> dict[str, Any]:
    kinds = get_type_hints(config_class)
    chosen = [option for option in options if option.name in given]
    return {option.name: converted(option, given[option.name], kinds[option.name]) for option in chosen}


def options_of(config_class: Any) -> tuple[Option, ...]:
    """Return the options of a Config that is imported, with help from wherever its classes are written."""
    if not (isinstance(config_class, type) and dataclasses.is_dataclass(config_class)):
        raise OptionError(f"{config_class!r} is no data class. Write @dataclass above class Config.")
    found: dict[str, Option] = {}
    for each in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(each):
            path = Path(inspect.getfile(each))
            found |= {option.name: option for option in options_in(path, each.__qualname__)}
    return tuple(found.values())


def load(path: Path) -> ModuleType:
    """Import a recipe's file as running it would: its folder is where its imports are looked for."""
    package_folder = Path(__file__).parents[1]
    if path.resolve().parent == package_folder:
        return importlib.import_module(f"truestep.recipes.{path.stem}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem if _is_free(path) else f"recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # data classes look their module up
    spec.loader.exec_module(module)
    return module


def _is_free(path: Path) -> bool:
    """Whether importing the file under its own name hides no other module."""
    if path.stem in sys.modules:
        return False
    spec = importlib.util.find_spec(path.stem)
    return spec is not None and spec.origin == str(path.resolve())


def start(prepared: Start) -> Path:
    """Train, and return the run's directory."""
    import torch

    options, recipe = prepared.options, prepared.recipe
    directory = options.out or new_directory(Path("runs") / recipe.name)
    config = {"recipe": recipe.name, **as_json(prepared.config)}
    torch.manual_seed(options.seed)  # of the weights, which a recipe makes with torch's own stream
    try:
        run = truestep.Run(
            directory, seed=options.seed, precision=options.precision, resume=options.resume, config=config
        )
    except truestep.TruestepError:
        with suppress(OSError):
            directory.rmdir()  # leaves it where anything is in it
        raise
    with run:
        prepared.module.train(run, prepared.config)
    return directory


def new_directory(parent: Path) -> Path:
    """Make a folder named after the time (UTC), which no other run has."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for number in count(1):
        path = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise AssertionError


def as_json(value: Any) -> Any:
    """Return a Config, or a value in it, as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

# SPDX-License-Identifier: Apache-2.0
"""A recipe's Config becomes options: from its text for the help, with its types for the run."""

import sys
import textwrap
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.errors import OptionError
from truestep.recipes.loading import Option, find, new_directory, parsed, read_recipe, recipes
from truestep.recipes.loading.convert import converted, split_arguments
from truestep.recipes.loading.start import as_json, load


@pytest.fixture
def imports(monkeypatch):
    """Put back what importing a recipe changes."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text), "utf-8")
    return path


EVERY_KIND = '''
    """My training.

    And more about it."""
    import enum
    from dataclasses import dataclass, field
    from pathlib import Path
    from typing import ClassVar, Literal, Optional

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    @dataclass(frozen=True)
    class Config:
        width: int = 64  # channels of the first layer
        lr: float = field(default=1e-3, metadata={"help": "learning rate"})
        # two lines
        # above it
        name: str = "x"
        deep: bool = False
        """whether there are more
        layers"""
        data: Path = Path("data")
        kind: Literal["small", "large"] = "small"
        colour: Colour = Colour.RED
        limit: Optional[int] = None
        betas: tuple[float, float] = (0.9, 0.999)
        sizes: tuple[int, ...] = (1, 2)
        tags: list[str] = field(default_factory=list)
        maybe: bool | None = None
        CONSTANT: ClassVar[int] = 3
        made: int = field(init=False, default=0)

    def train(run, config):
        run.append(config)
'''


def test_the_text_tells_names_types_defaults_choices_and_help(tmp_path):
    recipe = read_recipe(written(tmp_path, EVERY_KIND))
    assert recipe.summary == "My training."
    seen = {option.name: (option.annotation, option.default, option.help) for option in recipe.options}
    assert seen == {
        "width": ("int", "64", "channels of the first layer"),
        "lr": ("float", "0.001", "learning rate"),
        "name": ("str", "'x'", "two lines above it"),
        "deep": ("bool", "False", "whether there are more layers"),
        "data": ("Path", "Path('data')", ""),
        "kind": ("Literal['small', 'large']", "'small'", ""),
        "colour": ("Colour", "Colour.RED", ""),
        "limit": ("Optional[int]", "None", ""),
        "betas": ("tuple[float, float]", "(0.9, 0.999)", ""),
        "sizes": ("tuple[int, ...]", "(1, 2)", ""),
        "tags": ("list[str]", "list()", ""),
        "maybe": ("bool | None", "None", ""),
    }
    choices = {option.name: option.choices for option in recipe.options if option.choices}
    assert choices == {"kind": ("small", "large"), "colour": ("RED", "BLUE")}


@pytest.mark.usefixtures("imports")
def test_every_kind_arrives_as_its_type(tmp_path):
    recipe = read_recipe(written(tmp_path, EVERY_KIND))
    words = (
        "--width=1e3 --lr 3e-3 --name -x --deep --data /a/b --kind large --colour blue --limit none "
        "--betas 0.8,0.9 --sizes 4,5,6 --tags a,b --no-maybe --seed 7 --out somewhere"
    )
    prepared = parsed(recipe, words.split())
    config = prepared.config
    assert (config.width, config.lr, config.name, config.deep) == (1000, 0.003, "-x", True)
    assert (config.data, config.kind, config.colour.name) == (Path("/a/b"), "large", "BLUE")
    assert (config.limit, config.betas, config.sizes) == (None, (0.8, 0.9), (4, 5, 6))
    assert (config.tags, config.maybe) == (["a", "b"], False)
    assert (prepared.options.seed, prepared.options.out) == (7, Path("somewhere"))
    assert as_json(config)["colour"] == "BLUE"
    assert as_json(config)["data"] == "/a/b"


@pytest.mark.usefixtures("imports")
def test_nothing_given_means_the_defaults(tmp_path):
    prepared = parsed(read_recipe(written(tmp_path, EVERY_KIND)), [])
    assert prepared.config == prepared.module.Config()
    assert (prepared.options.seed, prepared.options.resume) == (0, "auto")


@pytest.mark.usefixtures("imports")
def test_a_config_that_inherits_from_another_file_has_all_options(tmp_path):
    written(
        tmp_path,
        """
        from dataclasses import dataclass
        @dataclass
        class Base:
            lr: float = 0.1  # how fast
        """,
        "shared_base.py",
    )
    path = written(
        tmp_path,
        """
        from dataclasses import dataclass
        from shared_base import Base
        @dataclass
        class Config(Base):
            width: int = 8  # how wide
        def train(run, config): ...
        """,
    )
    recipe = read_recipe(path)
    assert recipe.options is None
    assert parsed(recipe, ["--lr", "2", "--width", "3"]).config.lr == 2.0


def test_a_config_that_inherits_in_its_file_is_read_from_the_text(tmp_path):
    text = """
        from dataclasses import dataclass
        @dataclass
        class Base:
            lr: float = 0.1  # how fast
            width: int = 4
        @dataclass
        class Config(Base):
            width: int = 8  # how wide
        def train(run, config): ...
    """
    options = read_recipe(written(tmp_path, text)).options
    assert [(option.name, option.default) for option in options] == [("lr", "0.1"), ("width", "8")]


class Size(Enum):
    S = "small"
    L = "large"


CONVERSIONS = [
    ("3", int, 3), ("1e6", int, 10**6), ("10_000", int, 10_000), ("-2", int, -2), ("3", float, 3.0),
    ("inf", float, float("inf")), ("x", str, "x"), ("a/b", Path, Path("a/b")), ("None", int | None, None),
    ("4", None | int, 4), ("auto", int | Literal["auto"], "auto"), ("12", int | Literal["auto"], 12),
    ("2", Literal[1, 2], 2), ("l", Size, Size.L), ("large", Size, Size.L), ("1,2", tuple[int, int], (1, 2)),
    ("(1, 2)", tuple[int, ...], (1, 2)), ("", tuple[int, ...], ()), ("yes", bool, True), ("off", bool, False),
    ("true,no", list[bool], [True, False]), ("anything", Any, "anything"),
]  # fmt: skip


@pytest.mark.parametrize(("word", "annotation", "expected"), CONVERSIONS, ids=str)
def test_words_become_values(word, annotation, expected):
    value = converted(Option(name="x", annotation="", default=None), word, annotation)
    assert value == expected
    assert type(value) is type(expected)


REFUSALS = [
    ("3.5", int, "whole number"), ("many", int, "number is needed"), ("nan", int, "whole number"),
    ("inf", int, "whole number"), ("x", float, "number is needed"),
    ("smal", Literal["small"], "Did you mean 'small'"),
    ("3", tuple[int, int], "2 values are needed"), ("perhaps", bool, "true or false"),
    ("{}", dict, "can't make"),
    ("x", int | None, "number is needed"),
]  # fmt: skip


@pytest.mark.parametrize(("word", "annotation", "message"), REFUSALS, ids=str)
def test_words_that_do_not_fit_are_refused_with_what_does(word, annotation, message):
    with pytest.raises(OptionError, match=message):
        converted(Option(name="x", annotation="", default=None), word, annotation)


@given(st.integers())
def test_any_whole_number_arrives_as_it_was_written(value):
    assert converted(Option(name="x", annotation="int", default=None), str(value), int) == value


@given(st.floats(allow_nan=False))
def test_any_number_arrives_as_it_was_written(value):
    assert converted(Option(name="x", annotation="float", default=None), repr(value), float) == value


OPTIONS = (
    Option(name="batch_size", annotation="int", default="1"),
    Option(name="deep", annotation="bool", default="False"),
)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--batch-size", "3"], {"batch_size": "3"}),
        (["--batch_size=3", "--deep"], {"batch_size": "3", "deep": True}),
        (["--no-deep"], {"deep": False}),
        (["--deep=no"], {"deep": "no"}),
        (["--batch-size", "-3"], {"batch_size": "-3"}),
        (["--batch-size", "1", "--batch-size", "2"], {"batch_size": "2"}),
        (["--batch-size="], {"batch_size": ""}),
    ],
)
def test_options_are_written_as_one_is_used_to(words, given):
    assert split_arguments(words, OPTIONS) == given


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batchsize", "3"], "no option --batchsize. Did you mean '--batch-size'"),
        (["--batch-size"], "--batch-size needs a value"),
        (["--batch-size", "--deep"], "--batch-size needs a value"),
        (["3"], "'3' stands where an option should"),
        (["-b", "3"], "'-b' stands where an option should"),
    ],
)
def test_what_is_no_option_is_refused(words, message):
    with pytest.raises(OptionError, match=message):
        split_arguments(words, OPTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no Config and no train"),
        ("class Config: ...", "has no train"),
        ("def train(run, config): ...", "has no Config"),
        ("def train(:", "line 1: .* no valid Python"),
        ("class Config:\n    seed: int = 3\ndef train(run, config): ...", "Config.seed"),
        ("class Config:\n    path: str\ndef train(run, config): ...", "needs --path"),
        ("from dataclasses import dataclass as Config\ndef train(run, config): ...", "no data class"),
    ],
)
@pytest.mark.usefixtures("imports")
def test_a_file_that_is_no_recipe_is_refused_with_what_to_write(tmp_path, text, message):
    with pytest.raises(OptionError, match=message):
        parsed(read_recipe(written(tmp_path, text)), [])


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "mine.py").write_bytes(b"\xff\xfe\0")
    with pytest.raises(OptionError, match="can't be read"):
        read_recipe(tmp_path / "mine.py")


def test_resuming_what_nobody_named_is_refused(tmp_path):
    with pytest.raises(OptionError, match="--out FOLDER"):
        parsed(read_recipe(written(tmp_path, EVERY_KIND)), ["--resume", "must"])


@pytest.mark.usefixtures("imports")
def test_a_file_named_like_a_known_module_hides_nothing(tmp_path):
    path = written(tmp_path, "import json\nVALUE = json.dumps(1)\n", "json.py")
    standard = sys.modules["json"]
    assert load(path).VALUE == "1"
    assert sys.modules["json"] is standard


@pytest.mark.usefixtures("imports")
def test_a_file_imports_its_neighbours(tmp_path):
    written(tmp_path, "VALUE = 5", "neighbour_of_mine.py")
    assert load(written(tmp_path, "from neighbour_of_mine import VALUE", "some_recipe.py")).VALUE == 5


def test_recipes_are_found_by_name_and_by_file(tmp_path, monkeypatch):
    assert find("digits") == recipes()["digits"]
    written(tmp_path, EVERY_KIND)
    monkeypatch.chdir(tmp_path)
    assert find("mine.py") == Path("mine.py")
    with pytest.raises(OptionError, match="Did you mean 'digits'"):
        find("digit")
    with pytest.raises(OptionError, match=r"Did you mean 'mine.py'"):
        find("mien.py")
    with pytest.raises(OptionError, match="no folder nowhere either"):
        find("nowhere/mine.py")


def test_every_recipe_says_what_it_is_and_explains_each_option():
    for name, path in recipes().items():
        recipe = read_recipe(path)
        assert recipe.name == name
        assert recipe.summary
        assert recipe.options is not None
        assert [option.name for option in recipe.options if not option.help] == []


def test_two_runs_of_one_second_have_folders_of_their_own(tmp_path):
    folders = {new_directory(tmp_path / "runs" / "mine") for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.is_dir() for folder in folders)

# SPDX-License-Identifier: Apache-2.0
"""A recipe's Config becomes options: with its types, defaults and help."""

import re
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest

from truestep.core.errors import OptionError
from truestep.recipes.loading.find import find_recipe, read_recipe_docstring, recipes
from truestep.recipes.loading.parse import load_recipe, parse_recipe
from truestep.recipes.loading.start import make_timestamped_directory


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


SEEDED = """
from dataclasses import dataclass
@dataclass
class Config:
    seed: int = 3
def train(run, config): ...
"""

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


def config_of(path, *words):
    return parse_recipe(path, words, name=path.name).config


def refused(path, *words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_recipe(path, words, name=path.name)
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.usefixtures("imports")
def test_the_help_tells_names_types_defaults_choices_and_help(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse_recipe(written(tmp_path, EVERY_KIND), ["--help"], name="mine.py")
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "usage: truestep train mine.py [-h] [OPTIONS] My training. And more about it." in shown
    for words in (
        "--width INT channels of the first layer (default: 64)",
        "--lr FLOAT learning rate (default: 0.001)",
        "--name STR two lines above it (default: x)",
        "--deep, --no-deep whether there are more layers (default: False)",
        "--kind {small,large} (default: small)",
        "--colour {RED,BLUE} (default: RED)",
        "every recipe's options",
        "--out {None}|PATH the run's folder",
    ):
        assert words in shown
    assert "--made" not in shown
    assert "--CONSTANT" not in shown


@pytest.mark.usefixtures("imports")
def test_every_kind_arrives_as_its_type(tmp_path):
    words = (
        "--width=1e3 --lr 3e-3 --name=-x --deep --data /a/b --kind large --colour BLUE --limit None "
        "--betas 0.8 0.9 --sizes 4 5 6 --tags a b --maybe False --seed 7 --out somewhere"
    )
    prepared = parse_recipe(written(tmp_path, EVERY_KIND), words.split(), name="mine")
    config = prepared.config
    assert (config.width, config.lr, config.name, config.deep) == (1000, 0.003, "-x", True)
    assert (config.data, config.kind, config.colour.name) == (Path("/a/b"), "large", "BLUE")
    assert (config.limit, config.betas, config.sizes) == (None, (0.8, 0.9), (4, 5, 6))
    assert (config.tags, config.maybe) == (["a", "b"], False)
    assert (prepared.options.seed, prepared.options.out) == (7, Path("somewhere"))


@pytest.mark.usefixtures("imports")
def test_nothing_given_means_the_defaults(tmp_path):
    prepared = parse_recipe(written(tmp_path, EVERY_KIND), [], name="mine")
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
        from dataclasses import dataclass, field
        from shared_base import Base
        @dataclass
        class Inner:
            depth: int = 2
        @dataclass
        class Config(Base):
            width: int = 8  # how wide
            inner: Inner = field(default_factory=Inner)
        def train(run, config): ...
        """,
    )
    config = config_of(path, "--lr", "2", "--width", "3", "--depth", "5")
    assert (config.lr, config.width, config.inner.depth) == (2.0, 3, 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--width"], "--width"),
        (["--width", "3.5"], "width"),
        (["--width", "nan"], "width"),
        (["--kind", "huge"], "huge"),
        (["--betas", "1"], "--betas"),
    ],
)
@pytest.mark.usefixtures("imports")
def test_what_is_no_option_or_does_not_fit_is_refused(tmp_path, capsys, words, message):
    assert message in refused(written(tmp_path, EVERY_KIND), *words, capsys=capsys)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--widht", "has no option --widht. Did you mean '--width'"),
        ("--hidden-size=3", "has no option --hidden-size. Here it is called --width."),
        ("--output-dir", "Here it is called --out."),
        ("--zzz", "There are: --"),
        ("3", "'3' belongs to none"),
    ],
)
@pytest.mark.usefixtures("imports")
def test_a_word_that_is_no_option_is_answered_with_the_nearest_or_with_what_it_is_called_here(
    tmp_path, word, message
):
    with pytest.raises(OptionError) as raised:
        config_of(written(tmp_path, EVERY_KIND), word, *([] if "=" in word or word == "3" else ["3"]))
    assert message in str(raised.value)


def test_options_of_data_classes_within_the_config_are_named_too(tmp_path):
    path = written(
        tmp_path,
        """
        from dataclasses import dataclass, field
        @dataclass
        class Inner:
            depth: int = 2
        @dataclass
        class Config:
            inner: Inner = field(default_factory=Inner)
        def train(run, config): ...
        """,
    )
    with pytest.raises(OptionError, match="Did you mean '--depth'"):
        config_of(path, "--dept", "3")


@pytest.mark.usefixtures("imports")
def test_a_field_without_default_is_required(tmp_path, capsys):
    text = """
        from dataclasses import dataclass
        @dataclass
        class Config:
            path: str
        def train(run, config): ...
    """
    assert "--path STR" in refused(written(tmp_path, text), capsys=capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no Config and no train"),
        ("class Config: ...", "has no train"),
        ("def train(run, config): ...", "has no Config"),
        ("def train(:", "line 1: .* not valid Python"),
        (SEEDED, "Config.seed"),
        ("class Config: ...\ndef train(run, config): ...", "no data class"),
    ],
)
@pytest.mark.usefixtures("imports")
def test_a_file_that_is_no_recipe_is_refused_with_what_to_write(tmp_path, text, message):
    with pytest.raises(OptionError, match=message):
        config_of(written(tmp_path, text))


def test_a_file_that_is_no_recipe_is_not_run(tmp_path):
    with pytest.raises(OptionError, match="has no Config"):
        config_of(written(tmp_path, "raise SystemExit('it was run')"))


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "mine.py").write_bytes(b"\xff\xfe\0")
    with pytest.raises(OptionError, match=r"can't be read|not valid"):
        config_of(tmp_path / "mine.py")


@pytest.mark.usefixtures("imports")
def test_resuming_what_nobody_named_is_refused(tmp_path):
    with pytest.raises(OptionError, match="--out FOLDER"):
        config_of(written(tmp_path, EVERY_KIND), "--resume", "must")


@pytest.mark.usefixtures("imports")
def test_a_file_named_like_a_known_module_hides_nothing(tmp_path):
    path = written(tmp_path, "import json\nVALUE = json.dumps(1)\n", "json.py")
    standard = sys.modules["json"]
    assert load_recipe(path).VALUE == "1"
    assert sys.modules["json"] is standard


@pytest.mark.usefixtures("imports")
def test_a_file_imports_its_neighbours(tmp_path):
    written(tmp_path, "VALUE = 5", "neighbour_of_mine.py")
    assert load_recipe(written(tmp_path, "from neighbour_of_mine import VALUE", "some_recipe.py")).VALUE == 5


def test_recipes_are_found_by_name_and_by_file(tmp_path, monkeypatch):
    assert find_recipe("digits") == recipes()["digits"]
    written(tmp_path, EVERY_KIND)
    monkeypatch.chdir(tmp_path)
    assert find_recipe("mine.py") == Path("mine.py")
    with pytest.raises(OptionError, match="Did you mean 'digits'"):
        find_recipe("digit")
    with pytest.raises(OptionError, match=r"Did you mean 'mine.py'"):
        find_recipe("mien.py")
    with pytest.raises(OptionError, match="no folder nowhere either"):
        find_recipe("nowhere/mine.py")


def test_every_recipe_says_what_it_is_and_explains_each_option(capsys):
    for name, path in recipes().items():
        assert read_recipe_docstring(path)
        with pytest.raises(SystemExit):
            parse_recipe(path, ["--help"], name=name)
        shown = capsys.readouterr().out
        lines = [line.strip("│ ") for line in shown.splitlines()]
        joined = [f"{one} {other}" for one, other in pairwise(lines)]
        unexplained = [line for line in joined if re.match(r"--[\w-]+ \S+ +\(default", line)]
        assert unexplained == []


def test_two_runs_of_one_second_have_folders_of_their_own(tmp_path):
    folders = {make_timestamped_directory(tmp_path / "runs" / "mine") for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.is_dir() for folder in folders)

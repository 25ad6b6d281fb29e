# SPDX-License-Identifier: Apache-2.0
"""`truestep train` and `truestep recipes` as one types them."""

import json
import subprocess
import sys
from typing import get_args, get_type_hints

import pytest
from support import warm

import truestep as ts
from truestep.cli.train import split_processes_option
from truestep.recipes.loading.parse import CommonRecipeOptions
from truestep.run.options import RESUME


def truestep(*arguments, cwd=None):
    return warm.run("-m", "truestep", *arguments, cwd=cwd)


def test_recipes_are_listed_with_their_lines():
    result = truestep("recipes")
    assert result.returncode == 0
    names = [line.split("  ")[0] for line in result.stdout.splitlines()]
    assert names == ["charlm", "digits", "multitask", "vocoder", "wgan-gp"]


def test_recipes_as_json_are_one_document():
    document = json.loads(truestep("recipes", "--json").stdout)
    assert document["schema_version"] == 1
    assert "digits" in [recipe["name"] for recipe in document["recipes"]]


@pytest.mark.parametrize("arguments", [["--help"], ["digits", "--help"], ["digits", "--lr", "3", "-h"]])
def test_help_goes_to_stdout_and_names_the_options_of_every_recipe(arguments):
    result = truestep("train", *arguments)
    assert result.returncode == 0
    assert result.stderr == ""
    for word in ("--out", "--resume", "--precision", "--seed"):
        assert word in result.stdout


def test_help_of_a_recipe_shows_its_options_with_defaults():
    text = " ".join(truestep("train", "digits", "--help").stdout.split())
    assert "--lr FLOAT highest learning rate" in text
    assert "0.003" in text


@pytest.mark.parametrize(
    "arguments",
    [["recipes"], ["train", "--help"], ["train", "digit"], ["train", "setup.py"]],
)
def test_lists_and_names_need_no_torch(arguments):
    code = f"""
import sys
from truestep.cli.main import main
sys.argv = ["truestep", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digit"], "no recipe 'digit'. Did you mean 'digits'?"),
        (["digits", "--epoch", "3"], "has no option --epoch. Did you mean '--epochs'"),
        (["wgan-gp", "--lamda", "10"], "Here it is called --penalty."),
        (["wgan-gp", "--n-critic", "5"], "Here it is called --critic-updates."),
        (["digits", "--epochs", "three"], "three is not a whole number"),
        (["digits", "--epochs", "-1"], "This training was given: --epochs -1."),
        (["--lr", "3", "digits"], "The recipe comes first"),
        (["nothing.py"], "no file nothing.py"),
        (["mine.py"], "has no Config and no train. A recipe needs these two:"),
    ],
)
def test_a_mistake_is_one_message_on_stderr_and_status_2(tmp_path, arguments, message):
    (tmp_path / "mine.py").write_text("")
    result = truestep("train", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_train_alone_shows_how_it_is_used():
    result = truestep("train")
    assert result.returncode == 2
    assert "truestep train NAME" in result.stdout


def test_a_recipe_whose_package_is_missing_names_the_extra_and_exits_3(tmp_path):
    code = """
import sys
sys.modules["sklearn"] = None
from truestep.cli.main import main
sys.argv = ["truestep", "train", "digits", "--out", "run"]
main()
"""
    result = warm.run("-c", code, cwd=tmp_path)
    assert result.returncode == 3
    assert "pip install 'truestep[recipes]'" in result.stderr
    assert "Traceback" not in result.stderr


RECIPE = """
\"\"\"A line.\"\"\"
from dataclasses import dataclass
import torch
import truestep as ts

@dataclass
class Config:
    steps: int = 3

def train(run, config):
    net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.ones(4 * config.steps, 2), batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            net.update(lambda rows: net(rows)[:, 0], batch)
    if run.is_main:
        print("of", run.world_size, "after", run.step)
"""


@pytest.mark.parametrize("way", RESUME)
def test_the_command_offers_each_way_to_go_on_that_a_run_advises(way):
    assert CommonRecipeOptions(resume=way)
    assert way in get_args(get_type_hints(CommonRecipeOptions)["resume"])


def test_what_a_run_advises_works_as_an_option_and_the_report_named_is_the_new_run_s(tmp_path):
    (tmp_path / "small.py").write_text(RECIPE)
    words = ["train", "small.py", "--out", "run", "--device", "cpu"]
    assert truestep(*words, cwd=tmp_path).returncode == 0
    again = truestep(*words, "--resume", "anew", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "Report: " in again.stdout
    assert "run-2" in again.stdout.partition("Report: ")[2]


def test_json_is_one_document_about_the_run_at_its_end(tmp_path):
    (tmp_path / "small.py").write_text(RECIPE)
    result = truestep("train", "small.py", "--json", "--steps", "5", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (run,) = json.loads(result.stdout)["runs"]
    assert (run["state"], run["step"]) == ("finished", 5)
    assert "of 1 after 5" in result.stderr


@pytest.mark.slow
def test_a_recipe_trains_in_several_processes_in_one_folder(tmp_path):
    (tmp_path / "small.py").write_text(RECIPE)
    result = truestep("train", "small.py", "--steps", "5", "--processes", "2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "of 2 after 5" in result.stdout
    (folder,) = (tmp_path / "runs" / "small").iterdir()
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--lr", "3"], (None, ["--lr", "3"])),
        (["--processes", "4", "--lr", "3"], (4, ["--lr", "3"])),
        (["--lr", "3", "--processes=2"], (2, ["--lr", "3"])),
    ],
)
def test_the_number_of_processes_is_taken_out_of_the_words(words, found):
    assert split_processes_option(words) == found


@pytest.mark.parametrize("words", [["--processes", "0"], ["--processes=x"], ["--processes"]])
def test_a_wrong_number_of_processes_is_refused(words):
    with pytest.raises(ts.OptionError, match="give how many"):
        split_processes_option(words)

# SPDX-License-Identifier: Apache-2.0
"""The doctor's own options behind the script: the script gets them, and the report says what would have the doctor take them."""

import json
import shlex
import sys
from unittest import mock

import pytest
import typer
import typer.testing
from hypothesis import given
from hypothesis import strategies as st
from support import warm

from truestep.cli import doctor, launch
from truestep.cli.script_options import OptionsBehindFile

COMMAND = typer.main.get_command(doctor.app)
OWN = [
    ("--steps", "50"),
    ("--steps=7",),
    ("--select", "GRAD,LOSS"),
    ("--ignore=LOSS001",),
    ("--fail-on", "risk"),
    ("--output", "sarif"),
    ("--report", "a b.txt"),
    ("--json",),
    ("--thorough",),
    ("--no-probe",),
]
OF_THE_SCRIPT = [
    ("--lr", "0.1"),
    ("-x",),
    ("data set",),
    ("--steps", "1e4"),
    ("--output", "runs/a"),
    ("--help",),
    ("--stepsize=3",),
    ("-m", "note"),
]
FILES = [["train.py"], ["-m", "package.train"]]


def looked_at(words):
    """Return the doctor's context for a command line, its script's arguments, and what it says of them."""
    with mock.patch.object(sys, "argv", ["truestep", "doctor", *words]):
        context = COMMAND.make_context("doctor", list(words))
        given = context.params
        rest = [
            *([given["script"]] if given["module"] and given["script"] else []),
            *(given["arguments"] or []),
        ]
        file = ["-m", given["module"]] if given["module"] else [given["script"]]
        return context, rest, OptionsBehindFile.among(context, file, rest)


def param_of(option):
    """Return the doctor's option of a name."""
    name = option[0].partition("=")[0]
    return next(each for each in COMMAND.params if name in (*each.opts, *each.secondary_opts))


@given(
    before=st.lists(st.sampled_from(OWN), max_size=2),
    file=st.sampled_from(FILES),
    behind=st.lists(st.sampled_from(OWN + OF_THE_SCRIPT), max_size=6),
    end=st.sampled_from([[], ["--", "--steps", "3"]]),
)
def test_the_command_that_is_printed_takes_all_and_leaves_the_script_its_own(before, file, behind, end):
    words = [word for option in before for word in option]
    arguments = [word for option in behind for word in option] + end
    _, rest, found = looked_at([*words, *file, *arguments])
    assert rest == arguments  # the script gets them all
    given = [param_of(option) for option in before]
    own = [
        each for each in behind if each in OWN and (param_of(each).multiple or param_of(each) not in given)
    ]
    assert (found is None) == (not own)
    if found is None:
        return
    assert found.options == tuple(word for option in own for word in option)
    program, name, *printed = shlex.split(found.command)
    context, left, again = looked_at(printed)
    assert (program, name, again) == ("truestep", "doctor", None)  # the script's own of these names stay
    assert left == [word for option in behind if option not in own for word in option] + end
    wanted = COMMAND.make_context("doctor", [*words, *found.options, "x.py"]).params
    theirs = ("script", "module", "arguments")
    assert {key: each for key, each in context.params.items() if key not in theirs} == {
        key: each for key, each in wanted.items() if key not in theirs
    }


SCRIPT = "import sys\nimport torch\nprint(*sys.argv[1:])\n"


@pytest.mark.parametrize("file", FILES, ids=["file", "module"])
@pytest.mark.parametrize("output", ["text", "concise", "json", "sarif", "github"])
def test_the_last_line_says_so_in_every_output(tmp_path, file, output):
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/train.py"):
        (tmp_path / name).write_text(SCRIPT)
    words = ["--output", output, *file, "--steps", "50", "a"]
    ran = warm.run("-m", "truestep", "doctor", *words, cwd=tmp_path)
    assert ran.returncode == 0
    assert "--steps 50 a\n" in (ran.stdout if output == "text" else ran.stderr)
    last = ran.stderr.splitlines()[-1]
    assert "did not take --steps 50" in last
    assert last.endswith(shlex.join(["truestep", "doctor", "--output", output, "--steps", "50", *file, "a"]))
    if output in ("json", "sarif"):
        json.loads(ran.stdout)  # one document


def test_the_report_in_a_file_says_so_too(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    warm.run("-m", "truestep", "doctor", "--report", "r.txt", "train.py", "--thorough", cwd=tmp_path)
    assert "did not take --thorough" in (tmp_path / "r.txt").read_text("utf-8").splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--processes", "2"], "truestep launch --processes 2 train.py"),
        (["--processes=2", "--lr", "1"], "truestep launch --processes=2 train.py --lr 1"),
        (["--lr", "1", "--nodes", "1"], "truestep launch --nodes 1 train.py --lr 1"),
        (["--nproc", "2"], "truestep launch --processes 2 train.py"),
        (["--nproc_per_node=2", "--lr", "1"], "truestep launch --processes=2 train.py --lr 1"),
        (["-n", "2"], "truestep launch -n 2 train.py"),
        (["--lr", "1", "--logs", "a"], ""),
        (["--gpus", "2", "-b", "4"], "truestep launch --processes 2 train.py -b 4"),
        (["--workers", "2", "-b", "4"], ""),
        (["--processes", "many"], ""),
        (["--", "--processes", "2"], ""),
    ],
)
def test_a_launch_says_what_it_did_not_take(tmp_path, words, told):
    (tmp_path / "train.py").write_text(
        "open('ran', 'w')"
    )  # without torch, which a rank takes seconds to load
    ran = warm.run("-m", "truestep", "launch", "train.py", *words, cwd=tmp_path)
    assert ran.returncode == (2 if told else 0)
    assert ("The launch did not take" in ran.stderr) == bool(told)
    assert (tmp_path / "ran").exists() is not bool(told)
    assert told in ran.stderr


@pytest.mark.parametrize(
    "line",
    [
        "parser.add_argument('--processes')",
        "parser.add_argument('--nproc')",
        "parser.add_argument('--gpus')",
        "import sys; print(sys.argv, '-n')",
    ],
)
def test_a_launch_leaves_the_script_what_its_text_names(tmp_path, line):
    (tmp_path / "train.py").write_text(f"if 0:\n    {line}\n")
    option = next(each for each in ("--processes", "--nproc", "--gpus", "-n") if each in line)
    ran = warm.run("-m", "truestep", "launch", "train.py", option, "2", cwd=tmp_path)
    assert "The launch did not take" not in ran.stderr


PARSERS = {
    "argparse": (
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("out")
parser.parse_args()
""",
        "(the following arguments are required: --data, out)",
        "--data VALUE OUT",
    ),
    "commands": (
        """
import argparse
argparse.ArgumentParser().add_subparsers(dest="action", required=True).add_parser("fit")
import sys
parser = argparse.ArgumentParser(exit_on_error=True)
parser.add_argument("--lr", type=float)
parser.parse_args(["--lr", "fast"])
""",
        "(argument --lr: invalid float value: 'fast')",
        "...",
    ),
    "click": (
        """
import click
@click.command()
@click.option("--data", required=True)
def main(data): ...
main()
""",
        "(as it says above)",
        "...",
    ),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("file", [["train.py"], ["-m", "train"]])
def test_a_script_that_its_own_command_line_ends_is_told_where_that_stands(tmp_path, parser, output, file):
    text, said, words = PARSERS[parser]
    (tmp_path / "train.py").write_text(text)
    ran = warm.run("-m", "truestep", "doctor", "--output", output, *file, cwd=tmp_path)
    assert ran.returncode == 2
    last = ran.stderr.splitlines()[-1]
    assert said in last
    assert last.endswith(f"{shlex.join(['truestep', 'doctor', *file])} {words}")


@pytest.mark.parametrize("ends", ["sys.exit(2)", "sys.exit(1)", "sys.exit()", "raise SystemExit('no data')"])
def test_a_script_that_ends_otherwise_is_told_nothing_of_its_command_line(tmp_path, ends):
    (tmp_path / "train.py").write_text(
        f"import argparse, sys\nargparse.ArgumentParser().parse_args()\n{ends}\n"
    )
    assert "command line" not in warm.run("-m", "truestep", "doctor", "train.py", cwd=tmp_path).stderr


MISSPELT = {
    ("--previw",): ["--preview"],
    ("--step", "3"): ["--steps", "3"],
    ("--thorugh",): ["--thorough"],
    ("--no-experiment",): ["--no-experiments"],
    ("--fail_on=risk",): ["--fail-on=risk"],
    ("--lr", "1", "--jsn"): ["--json"],
}


def told_of(text, *arguments):
    context, rest, _ = looked_at(["train.py", *arguments])
    return OptionsBehindFile.among(context, ["train.py"], rest, text)


@pytest.mark.parametrize("words", MISSPELT)
def test_a_misspelt_option_that_the_script_does_not_know_is_the_doctors(words):
    found = told_of("import torch\nepochs, lr = 3, 0.1\n", *words)
    assert MISSPELT[words][0].split("=")[0] in found.command
    assert shlex.split(found.command)[2:4][: len(MISSPELT[words])] == MISSPELT[words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('parser.add_argument("--step", type=int)', ["--step", "3"]),
        ('parser.add_argument("--previw")', ["--previw"]),
        ("import hydra", ["--stepsize=3"]),
        ("", ["--gpu"]),
        ("", ["--output-dir", "runs/a"]),
        ("", ["--", "--previw"]),
        ("no_experiment = args.no_experiment", ["--no-experiment"]),
    ],
)
def test_what_may_be_the_scripts_own_is_left_to_it(text, words):
    assert told_of(text, *words) is None


UNKNOWN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--data", "x", "--steps", "3"], "truestep doctor --steps 3 train.py --data x"),
        (["--data", "x", "--stesp", "3"], "truestep doctor --steps 3 train.py --data x"),
        (["--data", "x", "--lr", "3"], "truestep doctor train.py --data x"),
    ],
)
def test_an_option_that_the_script_refused_is_not_repeated(tmp_path, words, command):
    (tmp_path / "train.py").write_text(UNKNOWN)
    ran = warm.run("-m", "truestep", "doctor", "train.py", *words, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith(f": {command}")


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("", True),
        ("from model import Net", True),
        ("import torch.distributed as dist", False),
        ("import truestep as ts", False),
        ("from accelerate import Accelerator", False),
        ("rank = os.environ['RANK']", False),
        ("from meeting import begin", False),
    ],
)
def test_processes_that_never_meet_are_told_of(tmp_path, monkeypatch, line, is_told):
    (tmp_path / "model.py").write_text("class Net: pass")
    (tmp_path / "meeting.py").write_text("from torch.distributed import init_process_group as begin")
    (tmp_path / "train.py").write_text(f"if False:\n    import torch\n    {line}\n")
    monkeypatch.setattr("truestep.run.launching.spawn.launch_python", lambda plan, words: 0)
    given = [str(tmp_path / "train.py")]
    for processes, says in (("2", is_told), ("1", False)):
        ended = typer.testing.CliRunner().invoke(launch.app, ["-n", processes, *given])
        assert ended.exit_code == 0
        assert ("names nothing by which processes meet" in ended.output) == says

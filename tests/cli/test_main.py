# SPDX-License-Identifier: Apache-2.0
"""The command itself, whichever of its commands is called."""

import functools
import io
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from support import warm
from typer.testing import CliRunner

from truestep.cli.command_output import print_on_stderr
from truestep.cli.main import COMMANDS, PANELS, app, main, module_of_command

FULL = Path("/dev/full")


def commands():
    """Return every command as the words that call it."""
    words = [[]]
    for name in COMMANDS:
        command = typer.main.get_command(import_module(module_of_command(name)).app)
        words += [[name], *([name, part] for part in sorted(getattr(command, "commands", {})))]
    return words


@pytest.fixture
def run(monkeypatch, capsys):
    """Return the function that runs the command in this process, as the shell would: its status, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["truestep", *arguments])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer's own is taken away again
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, ended.value.code, printed.out, printed.err)

    return run


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


def ended_with_stdout(stdout, arguments, buffered):
    """Run the command, with Python's buffer or without: stdout fails as Python ends, or under the command."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-m", "truestep", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment if buffered else {**environment, "PYTHONUNBUFFERED": "1"},
        check=False,
        timeout=60,
    )


@pytest.mark.sliced(4)
@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [["--version"], ["checks"], ["env", "--json"], []], ids=" ".join)
def test_a_full_disk_ends_with_one_message_and_1(arguments, buffered):
    with FULL.open("w") as full:
        ended = ended_with_stdout(full, arguments, buffered)
    assert ended.returncode == 1
    assert ended.stderr.startswith("truestep: the disk is full")
    assert ended.stderr.count("\n") == 1


@pytest.mark.sliced(2)
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [["--version"], ["checks"]], ids=" ".join)
def test_a_reader_that_is_gone_ends_it_without_a_word(arguments, buffered):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        ended = ended_with_stdout(pipe, arguments, buffered)
    assert (ended.returncode, ended.stderr) == (1, "")


BAD = "import torch\nloss = torch.nn.CrossEntropyLoss()\nloss.bakward()\n"


def ended_in_a_shell(command, end, folder):
    (folder / "bad.py").write_text(BAD)
    text = f"exec {sys.executable} -m truestep {command} {end}"
    ended = subprocess.run(["sh", "-c", text], capture_output=True, text=True, cwd=folder, check=False)
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["bad.py"]
    return ended


@pytest.fixture(scope="module")
def status_with_open_streams(tmp_path_factory):
    """Return the exit status of a command whose streams are open, which is run once."""

    @functools.cache
    def status(command):
        return ended_in_a_shell(command, "", tmp_path_factory.mktemp("open")).returncode

    return status


@pytest.mark.sliced(6)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["", "--version", "read bad.py", "no-such-command"])
def test_closed_streams_change_neither_the_status_nor_a_file(
    command, closed, tmp_path, status_with_open_streams
):
    ended = ended_in_a_shell(command, closed, tmp_path)
    assert ended.returncode == status_with_open_streams(command)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "words", [["read", "", "--fix"], ["read", "", "a.py"], ["explain", ""], ["report", ""]]
)
def test_an_empty_word_is_refused_and_changes_nothing(run, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    text = "import torch\nloss = torch.nn.CrossEntropyLoss()(torch.softmax(torch.zeros(2, 3), 1), torch.zeros(2).long())\n"
    (tmp_path / "a.py").write_text(text)
    ended = run(*words)
    assert ended.returncode == 2
    assert "a word of the command is empty" in ended.stderr
    assert (tmp_path / "a.py").read_text() == text


def test_a_link_that_leads_nowhere_is_called_so(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").symlink_to("gone.py")
    assert "It is a link that leads nowhere: to 'gone.py'." in run("read", "a.py").stderr


@pytest.mark.sliced(3)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize(
    "words", [["explain", "RuntimeError: 步 \ufeff went wrong"], ["errors"], ["checks"], ["recipes"], []]
)
def test_what_stdout_can_not_encode_is_replaced(words, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "truestep", *words]
    ended = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=60)
    assert ended.stderr == b""
    assert ended.stdout.decode(encoding)
    assert ended.returncode == (1 if words[:1] == ["explain"] else 0)


def test_a_pipe_that_breaks_in_a_training_is_told(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Config:\n    lr: float = 0.1\n\n\n"
        "def train(run, config):\n    raise BrokenPipeError(32, 'a worker is gone')\n"
    )
    ended = warm.run("-m", "truestep", "train", "mine.py", cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("BrokenPipeError: [Errno 32] a worker is gone")


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_h_is_help_everywhere(words):
    short, long = call(*words, "-h"), call(*words, "--help")
    assert (short.exit_code, long.exit_code) == (0, 0)
    assert short.stdout == long.stdout
    assert "Usage: truestep" in short.stdout or "Usage: root" in short.stdout or words[0] == "train"


# what prints no result of its own: a script's output, a recipe's training, a script for the shell
WITHOUT_JSON = {"train", "launch", "gpus run", "completion", "checkpoints", "mirror", ""}


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_what_prints_results_prints_them_as_json_too(words):
    command = typer.main.get_command(app)
    for word in words:
        command = command.resolve_command(typer.Context(command), [word])[1]
    options = {option for each in command.params for option in each.opts}
    assert ("--json" in options) == (" ".join(words) not in WITHOUT_JSON)


def test_every_command_stands_in_one_panel_of_the_help():
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COMMANDS)


MISTYPED = [
    (["raed"], "'read'"),
    (["chekpoints", "list"], "'checkpoints'"),
    (["checkpoints", "lst"], "'list'"),
    (["gpus", "pik"], "'pick'"),
    (["read", "--outptu", "json"], "'--output'"),
    (["runs", "--bets", "loss"], "'--best'"),
    (["checkpoints", "prune", ".", "--lst", "2"], "'--last'"),
    (["read", "--output", "jsn"], "'json'"),
    (["completion", "bsh"], "'bash'"),
    (["train", "digts"], "'digits'"),
    (["doctor", "--step", "5", "train.py"], "'--steps'"),
    (["launch", "--process", "2", "train.py"], "'--processes'"),
]


@pytest.mark.parametrize(("arguments", "meant"), MISTYPED, ids=[" ".join(each) for each, _ in MISTYPED])
def test_what_is_mistyped_is_answered_with_the_nearest_name(run, arguments, meant):
    ended = run(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert f"Did you mean {meant}" in ended.stderr
    assert "\x1b" not in ended.stderr
    assert "╭" not in ended.stderr
    first = ended.stderr.splitlines()[0]
    assert first.startswith("truestep")
    assert first.endswith(".")


def test_an_option_without_its_value_says_so(run):
    ended = run("report", "somewhere", "--csv")
    assert ended.returncode == 2
    assert ended.stderr == "truestep: --csv needs a value after it; the command with --help shows which.\n"


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_terminal_messages_are_broken_between_words(monkeypatch, columns):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    message = (
        "truestep: There is no command 'raed'. There are: checkpoints, checks.\n    an indented line "
        + "word " * 60
    )
    print_on_stderr(f"{message}\n")
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert " ".join(terminal.getvalue().split()) == " ".join(message.split())
    assert all(line.startswith("    ") for line in lines if "word" in line)


def test_a_missing_argument_is_named_with_the_whole_call(run):
    ended = run("summary")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "FILE.py:NAME" in ended.stderr
    assert "truestep summary --help" in ended.stderr


@pytest.mark.parametrize("word", ["--devices", "--nproc-per-node"])
def test_the_option_of_another_launcher_is_named_as_it_is_here(run, word):
    assert "Here it is called --processes." in run("launch", word, "2", "train.py").stderr


@pytest.mark.parametrize("options", [["--processes", "0"], ["-n", "-1"], ["--nodes", "0"]], ids=" ".join)
def test_a_launch_in_no_process_is_refused(run, options, tmp_path):
    (tmp_path / "train.py").write_text("print('trained')")
    ended = run("launch", *options, str(tmp_path / "train.py"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        f"{'--nodes' if '--nodes' in options else '--processes'}: It takes a number of at least 1."
        in ended.stderr
    )


def test_a_word_where_a_number_is_taken_is_refused_in_words(run):
    told = run("checkpoints", "prune", ".", "--last", "two").stderr
    assert "--last: It takes a whole number, and 'two' is none." in told
    assert (
        "--steps: It takes a whole number, and '2.5' is none."
        in run("doctor", "--steps", "2.5", "x.py").stderr
    )


@pytest.mark.parametrize("option", ["--checkpoint", "--which", "--step"])
def test_a_checkpoint_to_show_stands_behind_its_run(run, option):
    told = run("checkpoints", "show", "runs/a", option, "best").stderr
    assert f"There is no option '{option}' here." in told
    assert "truestep checkpoints show runs/digits 400" in told


@pytest.mark.parametrize(
    ("written", "meant"), [("zerograd", "zero grad"), ("ZeroGrad", "zero grad"), ("batchnorm", "batch norm")]
)
def test_words_of_a_check_that_are_written_as_one_are_parted(run, written, meant):
    ended = run("checks", written)
    assert ended.returncode == 0 or f"Did you mean `truestep checks {meant}`?" in ended.stderr
    assert run("checks", *meant.split()).returncode == 0
    assert "Did you mean" not in run("checks", "qqqq").stderr


@pytest.mark.parametrize(
    "words", [["read"], ["doctor"], ["explain"], ["launch"], ["runs"], ["report"]], ids=" ".join
)
def test_a_path_that_is_not_there_is_answered_with_the_nearest(run, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").mkdir()
    ended = run(*words, "trian.log")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Did you mean 'train.log'?" in ended.stderr


def test_help_is_a_command_too():
    assert call("help", "runs").stdout == call("runs", "--help").stdout
    assert call("help").stdout == call("--help").stdout


def test_alone_it_says_what_to_do_next(run):
    ended = run()
    assert ended.returncode == 0
    lines = [line.strip() for line in ended.stdout.splitlines()]
    shown = {line.split()[1] for line in lines if line.startswith("truestep ")} - {"--help"}
    assert shown <= set(COMMANDS)
    assert len(shown) >= 6
    assert max(map(len, lines)) <= 100


COMPLETED = [
    ("rea", ["read"]),
    ("checkpoints li", ["list"]),
    ("read --output js", ["json"]),
    ("raed --o", []),
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_and_values(tmp_path):
    program = tmp_path / "truestep"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m truestep "$@"\n')
    program.chmod(0o755)
    script = "".join(
        f"COMP_WORDS=(truestep {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1))\n"
        '_truestep_completion truestep; echo "${COMPREPLY[@]}"\n'
        for words, _ in COMPLETED
    )
    ended = subprocess.run(
        ["bash", "--norc", "-c", f'eval "$(truestep completion bash)"\n{script}'],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert ended.stderr == ""
    assert [line.split() for line in ended.stdout.splitlines()] == [found for _, found in COMPLETED]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(run, shell):
    script = run("completion", shell).stdout
    assert f"_TRUESTEP_COMPLETE=complete_{shell}" in script


@pytest.mark.parametrize("command", ["read", "doctor"])
@pytest.mark.parametrize("option", ["--severity", "--min-severity", "--level"])
def test_a_severity_is_asked_for_by_the_exit_status(run, command, option):
    told = run(command, option, "bug", "train.py").stderr
    assert f"There is no option '{option}' here. All severities are printed, and --fail-on bug" in told

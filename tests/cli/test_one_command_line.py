# SPDX-License-Identifier: Apache-2.0
"""One command line: the same options everywhere, searches by words, reports whose lines can be copied."""

import json
import linecache
import re
import sys
import traceback
from importlib import import_module
from io import StringIO
from types import SimpleNamespace

import pytest
import torch
import typer.main
from rich.console import Console
from support import warm
from typer.testing import CliRunner

import truestep as ts
from truestep.cli.main import COMMANDS, app, main, module_of_command
from truestep.core.errors import OptionError
from truestep.core.result_display import print_results
from truestep.core.text_formatting import printable_text
from truestep.doctor.catalogue import checks
from truestep.doctor.chinese_mistake_lines import listed_mistakes
from truestep.doctor.finding import Finding, Place, Severity
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.replacement import Replacement
from truestep.doctor.report import WatchedRunReport
from truestep.doctor.reporting.finding_layout import render_findings
from truestep.doctor.runtime.script_runner import ScriptOutcome
from truestep.doctor.runtime.watch import Watch
from truestep.doctor.runtime.watch_schedule import WatchPace, num_steps_watched
from truestep.run.loop_end_detection import hide_truestep_frames

CALLED = """\
import torch, truestep as ts
from torch import nn

run = ts.Run("run", seed=0, progress=False, quiet=True)
net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
train = run.data(torch.randn(16, 4), batch_size=8)


def rows_of(batch):
    return net(batch{inside})


def loss(batch):
    return rows_of(batch).square()[:, 0]


try:
    for batch in run.batches(train):
        net.update(loss, batch)
except Exception as error:
    print(sum("truestep" in each for each in __import__("traceback").format_exception(error)))
    raise
"""


def run_checks(*words):
    return CliRunner().invoke(app, ["checks", *words])


def listed(*words):
    return [each["code"] for each in json.loads(run_checks(*words, "--json").stdout)["checks"]]


def test_the_page_of_a_check_names_the_line_of_the_chinese_list():
    """Of the check's page the last lines; a check that the list does not name has none."""
    assert "In Chinese: 忘了 zero_grad (docs/zh/mistakes.md:" in run_checks("GRAD001").stdout
    unlisted = next(code for code in checks() if not listed_mistakes(code))
    assert "In Chinese" not in run_checks(unlisted).stdout


def options_of(name):
    command = typer.main.get_command(import_module(module_of_command(name)).app)
    return {opt: option for option in command.params for opt in option.opts if opt.startswith("--")}


def test_options_of_one_name_have_one_kind_and_one_default():
    """`--fail-on`, `--output`, `--out`, `--json`: what is known of one command holds of the others."""
    for name in ("--fail-on", "--output", "--json", "--select", "--ignore", "--preview", "--baseline"):
        found = {each: options_of(each).get(name) for each in COMMANDS}
        kinds = {(option.is_flag, option.default) for option in found.values() if option}
        assert len(kinds) == 1, (name, kinds)
    assert all("--out" in options_of(each) for each in ("doctor", "report", "graph", "schedule"))


@pytest.mark.parametrize(
    "words", ["shuffle", "Shuffling", "zero_grad", "zero grad", "learning rate", "batch norm"]
)
def test_words_find_the_checks_that_have_them(words):
    stems = [word.removesuffix("ing").removesuffix("e") for word in words.lower().replace("_", " ").split()]
    found = listed(words)
    assert found == listed(*words.split())
    assert 1 <= len(found) <= 20
    for code in found:
        page = checks()[code].page()
        text = f"{checks()[code].name()} {page.summary} {page.why} {page.fix}".lower()
        assert all(stem in text for stem in stems)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["shufle"], "truestep checks shuffle`"),
        (["shuffel"], "truestep checks shuffle`"),
        (["lerning", "rate"], "truestep checks learning rate`"),
        (["optimiser"], "truestep checks optimizer`"),
        (["zero_gard"], "truestep checks zero grad`"),
        (["dropuot"], "truestep checks dropout`"),
        (["GRAD0O1"], "'GRAD0"),
        (["GRAD20"], "truestep checks GRAD020`"),
        (["grad-20"], "truestep checks GRAD020`"),
        (["LOSS7"], "truestep checks LOSS007`"),
        (["GRAD0020"], "truestep checks GRAD020`"),
        (["GRAD998"], "truestep checks grad`"),
        (["bacward-without-zero-grad"], "truestep checks backward without zero grad`"),
        (["xyzzyplugh"], "`truestep checks shuffle` those with a word"),
    ],
)
def test_words_that_no_check_has_are_taken_for_their_nearest(words, meant):
    with pytest.raises(OptionError, match=r"^There is no check '") as caught:
        CliRunner().invoke(app, ["checks", *words], catch_exceptions=False)
    assert meant in str(caught.value)


@pytest.mark.parametrize("check", list(checks().values())[::12], ids=lambda check: check.code)
def test_a_name_a_code_and_the_words_of_a_name_find_the_check(check):
    assert check.code in listed(*check.name().split("-"))
    for word in (check.code, check.code.lower(), check.name(), check.name().upper()):
        assert f"{check.code}  {check.name()}" in run_checks(word).stdout


def test_words_that_no_check_has_are_told():
    assert "'zebra crossing'" in str(run_checks("zebra", "crossing").exception)


@pytest.mark.parametrize("width", [40, 80, 132])
@pytest.mark.parametrize("length", [3, 30])
def test_code_in_a_report_is_neither_wrapped_nor_cut(tmp_path, width, length):
    line = f"total = {' + '.join(f'value_number_{number}' for number in range(length))}"
    place = Place("train.py", 3, 1)
    change = Replacement(edits=(), diff=(f"- {line}", f"+ {line}.item()"))
    findings = [
        Finding(
            code="MEM001",
            name="x",
            severity=Severity.BUG,
            place=where,
            message="m",
            why="w",
            fix="f",
            replacement=each,
        )
        for where, each in ((place, change), (Place("train.py", 9), None))
    ]
    with (tmp_path / "report").open("w") as file:
        print_results(
            render_findings(findings, {Place("train.py", 9): line}), Console(file=file, width=width)
        )
    shown = [each.strip() for each in (tmp_path / "report").read_text().splitlines()]
    assert [f"- {line}" in shown, f"+ {line}.item()" in shown, line in shown] == [True] * 3


@pytest.mark.parametrize("total", [0, 1, 15, 20, 21, 33, 255, 256, 257, 300, 512, 513, 1000])
def test_the_steps_that_are_said_to_be_watched_are_those_that_the_pace_looks_at(total):
    pace = WatchPace()
    assert num_steps_watched(total) == sum(pace.looks_after(step) for step in range(total))


@pytest.mark.parametrize("words", ["zero-grad-missing", "no zero_grad", "forgot zero grad"])
def test_words_for_what_is_missing_find_what_it_is_missing_of(words):
    assert "GRAD001" in listed(words)


def test_what_did_not_run_is_counted_and_listed_on_request():
    report = WatchedRunReport(SourceReading(), Watch(), ScriptOutcome(), 1.0)
    told, listed_too = ("\n".join(report.watched(abstentions=wanted)) for wanted in (False, True))
    assert "\nnot run:" not in told
    assert " checks did not run: no optimizer stepped (" in told  # for one reason
    assert "(--show-abstentions)" in told
    assert "watched 0 steps of 0: no model; no optimizer that steps" in told
    assert "not run: " in listed_too
    assert "(--show-abstentions)" not in listed_too


@pytest.mark.parametrize("inside", ["[:, :3]", ".missing()", " if 0 else 1 / 0"])
def test_the_traceback_of_a_user_s_loss_has_the_user_s_lines_and_the_exception_all(tmp_path, inside):
    (tmp_path / "train.py").write_text(CALLED.replace("{inside}", inside), "utf-8")
    plain = warm.run("train.py", cwd=tmp_path)
    assert plain.returncode == 1
    note, _, trail = plain.stderr.partition("Traceback")
    assert trail.count('train.py", line') == 3
    assert "/truestep/" not in trail
    assert "TRUESTEP_FULL_TRACEBACK=1 shows them" in note  # the error's own words are the last
    assert int(plain.stdout.split()[-1]) > 0  # the exception itself is untouched
    whole = warm.run("train.py", cwd=tmp_path, env={"TRUESTEP_FULL_TRACEBACK": "1"})
    assert "/truestep/engine/" in whole.stderr
    assert "TRUESTEP_FULL_TRACEBACK" not in whole.stderr


@pytest.mark.parametrize("returned", [".square().mean(), 3", ".square()[:, 0].detach()", ".square()[:3, 0]"])
def test_what_we_refuse_ends_at_the_line_of_the_user_s(tmp_path, returned):
    (tmp_path / "train.py").write_text(
        CALLED.replace("{inside}", "").replace(".square()[:, 0]", returned), "utf-8"
    )
    plain = warm.run("train.py", cwd=tmp_path).stderr
    assert "/truestep/" not in plain.partition("Traceback")[2].partition("Error: ")[0]
    assert "TRUESTEP_FULL_TRACEBACK=1 shows them" in plain
    whole = warm.run("train.py", cwd=tmp_path, env={"TRUESTEP_FULL_TRACEBACK": "1"}).stderr
    assert "/truestep/engine/" in whole


def test_where_we_fail_ourselves_our_frames_stay():
    try:
        printable_text(None)
    except TypeError as error:
        with hide_truestep_frames(error) as are_left_out:
            assert not are_left_out


class Shell:
    """What a run asks of IPython's: events, and a traceback that the shell prints by itself."""

    def __init__(self):
        self.printed = ""
        self.events = SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None)

    def showtraceback(self, exc_tuple=None, **_):
        self.printed = "".join(traceback.format_exception(*(exc_tuple or sys.exc_info())))


@pytest.mark.parametrize("given", [False, True])
def test_a_notebook_prints_an_exception_without_our_frames(tmp_path, monkeypatch, capsys, given):
    shell = Shell()
    monkeypatch.setattr("truestep.run.loop_end_detection.notebook_shell", lambda: shell)
    run = ts.Run(tmp_path / "run", seed=0, device="cpu", progress=False, quiet=True)
    net = run.learner(torch.nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))

    def cell():
        for batch in run.batches(run.data(torch.randn(16, 4), batch_size=8)):
            net.update(lambda batch: net(batch[:, :3]), batch)

    def shown():
        try:
            cell()
        except RuntimeError:
            shell.showtraceback(sys.exc_info() if given else None)
            raise

    with pytest.raises(RuntimeError, match="cannot be multiplied") as raised:
        shown()
    assert "net(batch[:, :3])" in shell.printed
    assert "/truestep/" not in shell.printed
    assert "TRUESTEP_FULL_TRACEBACK=1 shows them" in capsys.readouterr().err
    assert any("/truestep/engine/" in each for each in traceback.format_tb(raised.value.__traceback__))
    run.close()
    assert "showtraceback" not in vars(shell)


def test_a_watch_in_a_notebook_names_cell_and_line(monkeypatch):
    file = "/tmp/ipykernel_7/2309.py"
    monkeypatch.setitem(linecache.cache, file, (9, None, ["\n", "loss.backward()\n"], file))
    compiler = SimpleNamespace(format_code_name=lambda name: ("Cell", "In[5]") if name == file else None)
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=compiler))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    watch = Watch()
    for path in (file, "train.py"):
        place = Place(path, 2)
        watch.dispatcher.findings.append(
            Finding(
                code="GRAD001", name="x", severity=Severity.BUG, place=place, message="m", why="w", fix="f"
            )
        )
    assert [str(each.place) for each in watch.findings] == ["cell [5]:2", "train.py:2"]
    screen = Console(record=True, width=100, file=StringIO())
    screen.print(watch)
    shown = screen.export_text()
    assert "cell [5]\n" in shown
    assert "loss.backward()" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lint", "train.py"), "truestep read train.py"),
        (("fix", "train.py"), "truestep read --fix train.py"),
        (("compare", "runs/a", "runs/b"), "truestep report runs/a runs/b"),
        (("diff", "runs/a", "runs/b"), "truestep report runs/a runs/b"),
        (("fit",), "truestep doctor train.py"),
        (("fit", "train.py"), "truestep doctor train.py"),
        (("watch", "train.py"), "truestep doctor train.py"),
        (("train.py",), "write: truestep doctor train.py; to read it alone: truestep read train.py."),
        (("src/train.py", "--lr", "1"), "truestep doctor src/train.py"),
        (("digits.ipynb",), "truestep doctor digits.ipynb"),
        (("check",), "Did you mean 'checks'"),
        (("check", "train.py"), "write: truestep read train.py"),
        (("inspect", "-q", "src/train.py"), "write: truestep read src/train.py"),
        (("resume",), "start its script again"),
        (("doctor", "--fix", "train.py"), "truestep read --fix train.py"),
        (("read", "--steps", "5", "train.py"), "truestep doctor --steps 50 train.py"),
        (
            ("checkpoints", "missing/run"),
            "no folder 'missing/run'. There is no folder 'missing' either. Write: truestep",
        ),
        (("checkpoints", "verify", "runs", "--step"), "no option '--step'. There are: --help"),
        (("checkpoints", "verify", "runs", "--hlep"), "no option '--hlep'. Did you mean '--help'"),
        (
            ("checkpoints", ".", "verify"),
            "a command stands before it. ",
        ),
        (("checkpoints", ".", "delete"), "checkpoints prune FOLDER"),
        (("checkpoints", "rm", "."), "truestep checkpoints prune runs/digits --last 2"),
        (
            ("dtypes", "float33"),
            "'float33' is more than this command takes. Write:",
        ),
        (
            ("read", "https://example.org/a/b"),
            "It is an address, and files of this machine are read: fetch it",
        ),
        (("checkpoints", "s3://bucket/runs"), "It is an address"),
        (("checkpoints", "missing"), "no command or folder 'missing'"),
        (("doctor", "--json", "out.json", "train.py"), "--out out.json train.py"),
        (("doctor", "--epochs", "1", "train.py"), "truestep doctor train.py --epochs"),
        (("doctor", "--batch-size=8", "train.py"), "truestep doctor train.py --batch-size"),
        (("doctor", "--processes", "2", "train.py"), "torchrun --nproc-per-node 2 -m truestep doctor"),
        (("read", "--exclude", "GRAD001", "train.py"), "Here it is called --ignore"),
        (("read", "--skip", "GRAD001", "train.py"), "Here it is called --ignore"),
        (("read", "--rule", "GRAD001", "train.py"), "Here it is called --select"),
        (("launch", "--gpus", "2", "train.py"), "Here it is called --processes"),
        (("env", "--gpu"), "truestep gpus"),
        (("tensorboard", "runs/a"), "ts.TensorBoardTracker"),
        (("checkpoints", "train.py"), "truestep checkpoints runs/digits"),
        (("train", "train.py"), "python train.py"),
    ],
)
def test_a_word_of_another_tool_is_answered_with_the_line_to_write(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n", "utf-8")
    found = CliRunner().invoke(app, [*words])
    assert found.exit_code != 0
    assert said in " ".join((found.output + str(found.exception or "")).split())


def _needing():
    """Yield the words of each command that needs an argument, and the command."""
    for name in COMMANDS:
        command = typer.main.get_command(import_module(module_of_command(name)).app)
        inner = getattr(command, "commands", {"": command})
        for below, each in inner.items():
            if any(param.required for param in each.params):
                yield [name, *below.split()], each


@pytest.fixture
def called(capsys, monkeypatch):
    """What a wrong call of the command line says."""

    def call(words):
        monkeypatch.setattr(sys, "argv", ["truestep", *words])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # put back afterwards
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in _needing()]
)
def test_what_is_missing_is_told_with_what_it_is_and_a_line_to_write(words, command, called):
    said = called(words)
    assert re.search(
        rf"Missing (argument|option) '[^']+': \w.*\. For example: truestep {' '.join(words)} ", said
    )
    given = re.findall(r" (--[\w-]+)", said.partition("For example: ")[2].partition("\n")[0])
    assert {*given} <= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize(
    ("words", "said"),
    [(["mirror"], "truestep mirror check s3://"), (["mirror", "pull"], "no command 'pull'")],
)
def test_a_group_of_commands_says_which_there_are(words, said, called):
    assert said in called(words)

# SPDX-License-Identifier: Apache-2.0
"""Reading takes whatever lies in a folder: each file is read, or named with the reason why not."""

import io
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from rich.console import Console

from truestep.core.errors import OptionError
from truestep.doctor import linting, parallel_work, read_progress
from truestep.doctor.files import files_to_read
from truestep.doctor.linting import read_paths, read_text
from truestep.doctor.replacement import apply_source_edits, source_lines
from truestep.doctor.reporting.json_and_sarif import sarif_document
from truestep.doctor.reporting.terminal import show_reading
from truestep.doctor.selection import (
    CheckSelection,
    FindingsBaseline,
    configured_selection,
    write_baseline,
)
from truestep.doctor.source import execution, row_column_shapes

FAULTY = """\
import torch
import torch.nn.functional as F
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    F.cross_entropy(net(x), y).backward()
    opt.step()
"""
LOOP = FAULTY.partition("for x")[1] + FAULTY.partition("for x")[2]
HEAD = FAULTY.partition("for x")[0]


def places(reading):
    return [(each.code, each.place.line) for each in reading.findings]


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"\xef\xbb\xbf" + FAULTY.encode(), 7),
        (FAULTY.replace("\n", "\r\n").encode(), 7),
        (FAULTY.replace("\n", "\r").encode(), 7),
        (FAULTY.replace("    ", "\t").encode(), 7),
        (FAULTY.rstrip("\n").encode(), 7),
        (b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + FAULTY.encode(), 9),
        (FAULTY.replace("net =", "\fnet =").encode(), 7),
        (b"# a\x0bb\x1cc\n" + FAULTY.encode(), 8),
        ("# a\u2028b\x85c\n".encode() + FAULTY.encode(), 8),
        (FAULTY.replace("opt.step()", "opt \\\n        .step()").encode(), 7),
        (FAULTY.replace("opt.step()", "'漢字'; opt.step()").encode(), 7),
    ],
    ids=["bom", "crlf", "cr", "tabs", "no end", "latin", "form feed", "control", "marks", "split", "wide"],
)
def test_a_finding_has_its_line_however_the_file_is_written(tmp_path, raw, line):
    path = tmp_path / "train.py"
    path.write_bytes(raw)
    reading = read_paths([path])
    assert (places(reading), reading.unreadable, reading.failures) == ([("GRAD001", line)], [], [])
    assert "opt" in reading.lines[reading.findings[0].place]


def test_an_edit_counts_lines_as_python_does():
    text = "# a\x0bb\fc\u2028d\n" + FAULTY
    (finding,) = read_text(text).findings
    assert apply_source_edits(text, finding.replacement.edits) == text + "    opt.zero_grad()\n"
    assert source_lines("a\r\nb\rc\n\n") == ["a", "b", "c", ""]


@pytest.mark.parametrize(
    "raw",
    [
        FAULTY.encode() + b"def f(:\n",
        FAULTY.encode() + b"\0\n",
        FAULTY.encode("utf-16"),
        b"# caf\xe9\n" + FAULTY.encode(),
        b"# coding: klingon\n" + FAULTY.encode(),
        b"import torch\nx = " + b"(" * 300 + b")" * 300,
        b"import torch\nx = " + b"-" * 3000 + b"1",
        b"print(1\n",
        b"def f(:\n    pass\n",
        b"name = '\xff'\n",
        *(b"# coding: " + codec + b"\nimport torch\n" for codec in (b"hex", b"rot13", b"base64", b"utf-16")),
        b"import torch\nx = " + b"-" * 100_000 + b"1\n",
        b"import torch\nx = " + b"lambda: " * 5_000 + b"1\n",
        b"import torch\nx = torch" + b".relu()" * 20_000 + b"\n",
    ],
    ids=[
        "syntax",
        "null",
        "utf-16",
        "no utf-8",
        "no codec",
        "brackets",
        "signs",
        "no torch",
        "no torch, no name",
        "no torch, no utf-8",
        "hex",
        "rot13",
        "base64",
        "no utf-16",
        "too many signs",
        "too many lambdas",
        "too many calls",
    ],
)
def test_what_python_can_t_read_is_named_and_not_counted_as_read(tmp_path, raw):
    path = tmp_path / "train.py"
    path.write_bytes(raw)
    reading = read_paths([path])
    assert [(name, bool(reason)) for name, reason in reading.unreadable] == [(str(path), True)]
    assert "No file could be read, so nothing was looked for." in shown(reading)


@pytest.mark.parametrize("ending", ["yaml", "json", "CSV", "pt"])
def test_a_file_that_holds_no_python_is_refused_with_what_to_give(tmp_path, ending):
    path = tmp_path / f"conf.{ending}"
    path.write_text("lr: float = 0.1\n")  # which Python can read
    with pytest.raises(
        OptionError, match=r"holds no Python, by its ending.* the script that uses it \(\.py\)"
    ):
        read_paths([path])


ODD = {
    "deep_list.ipynb": b'{"cells": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep_dict.ipynb": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "number.ipynb": b'{"cells": [], "torch": ' + b"9" * 5_000 + b"}",
    "deep.py": b"import torch\nx = " + b"a ** " * 5_000 + b"a\n",
    "coding.py": b"# coding: zlib\nimport torch\n",
    "page.md": b"```python\nimport torch\nx = " + b"-" * 100_000 + b"1\n```\n",
}


@pytest.mark.parametrize("name", ODD)
def test_one_odd_file_hides_nothing_of_the_others(tmp_path, name):
    (tmp_path / name).write_bytes(ODD[name])
    (tmp_path / "train.py").write_text(FAULTY + f"import {Path(name).stem}\n")
    reading = read_paths([tmp_path])
    assert (places(reading), reading.failures) == ([("GRAD001", 7)], [])
    assert [path.partition(":")[0] for path, _ in reading.unreadable] == [str(tmp_path / name)]


def test_what_no_reader_foresaw_loses_one_file_alone(tmp_path, monkeypatch):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text(FAULTY + "import b\n")
    text_of = linting.source_file_text

    def failing(path):
        if path.name == "b.py":
            raise AttributeError("not foreseen")
        return text_of(path)

    monkeypatch.setattr(linting, "source_file_text", failing)
    reading = read_paths([tmp_path])
    assert [each.place.path for each in reading.findings] == [str(tmp_path / "a.py"), str(tmp_path / "c.py")]
    assert reading.unreadable == [(str(tmp_path / "b.py"), "AttributeError: not foreseen")]
    assert reading.num_files == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.py")
    with pytest.raises(OptionError, match=r"train.py' is no file but a pipe or a device"):
        list(files_to_read([tmp_path / "train.py"], CheckSelection()))
    with pytest.raises(OptionError, match="is no baseline"):
        FindingsBaseline(tmp_path / "train.py")
    assert read_paths([tmp_path]).num_files == 0


def test_shapes_that_come_by_two_ways_to_two_ways_are_asked_for_once(monkeypatch):
    calls, inner = [], row_column_shapes._shape_of_operation
    monkeypatch.setattr(
        row_column_shapes, "_shape_of_operation", lambda *given: calls.append(given) or inner(*given)
    )
    text = "import torch\ndef f(x, labels):\n    a = x.unsqueeze(1)\n"
    text += "".join(f"    if x[{k}]:\n        a = a + a\n    else:\n        a = a * a\n" for k in range(60))
    read_text(text + "    return (a == labels).sum()\n")
    assert 60 < len(calls) < 1000


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_loops_in_loops_are_run_only_so_long(monkeypatch, depth):
    runs, inner = [], execution.Execution._run_execution
    monkeypatch.setattr(execution.Execution, "_run_execution", lambda self: runs.append(self) or inner(self))
    text = HEAD + "scaler = torch.amp.GradScaler()\nseen = 0\nfor i, (x, y) in enumerate(loader):\n"
    text += "    scaler.scale(net(x).sum()).backward()\n    scaler.unscale_(opt)\n"
    text += "".join("    " * (d + 1) + f"for j{d} in parts{d}:\n" for d in range(depth))
    text += "    " * (depth + 1) + "if flag:\n" + "    " * (depth + 2) + "seen += 1\n"
    text += "    if (i + 1) % 64 == 0:\n        scaler.step(opt)\n        opt.zero_grad()\n    if seen > 3:\n        break\n"
    reading = read_text(text)
    assert max(each._num_groups for each in runs) < 2 * execution.MAX_GROUPS
    assert (reading.failures, {each.code for each in reading.abstentions} >= {"GRAD005"}) == ([], True)


def test_code_that_nests_deeply_is_read():
    chain = "if a == 0:\n    pass\n" + "".join(f"elif a == {i}:\n    opt.step()\n" for i in range(400))
    dots = "y = torch" + ".relu()" * 600 + "\n"
    reading = read_text(HEAD + chain + dots + LOOP)
    assert [code for code, _ in places(reading)] == ["GRAD001"]
    assert reading.failures == []


def test_functions_that_call_one_another_are_followed_only_so_far():
    text = "import torch\nopt = torch.optim.SGD([], 0.1)\n"
    for i in range(10):
        text += f"def f{i}(x):\n    opt.step()\n    x.backward()\n"
        text += "".join(f"    f{j}(x)\n" for j in range(10))
    reading = read_text(text + "for x in data:\n    f0(x)\n")
    assert "GRAD001" in {each.code for each in reading.abstentions}
    assert (reading.findings, reading.failures) == ([], [])


def test_values_that_come_from_many_places_are_followed_once():
    text = "import torch\nimport torch.nn.functional as F\n"
    for i in range(12):
        text += f"def f{i}(x, y):\n" + "".join(f"    f{j}(x, y)\n    f{j}(y, x)\n" for j in range(12))
        text += "    F.cross_entropy(F.softmax(x, 1) if y else y, y)\n"
    reading = read_text(text)
    assert reading.failures == []


def test_a_number_computed_from_numbers_computed_from_numbers_is_given_up_and_not_followed_for_ever():
    loop = (
        "import torch\nfrom torch import nn\nnet = nn.Linear(3, 3)\nopt = torch.optim.SGD(net.parameters())\n"
    )
    loop += "for i, x in enumerate(data):\n    a0 = i * i\n"
    squares = "".join(
        f"    a{k + 1} = a{k} * a{k}\n" for k in range(400)
    )  # 2 to the 400th looks, and as deep as long
    step = "    net(x + a400).sum().backward()\n    if a400 % 4 == 0:\n        opt.step()\n        opt.zero_grad()\n"
    assert read_text(loop + squares + step).failures == []


def test_a_folder_is_walked_in_order_each_file_once_and_no_link_in_circles(tmp_path):
    for name in (
        "b.py",
        "a b.py",
        "c:1.py",
        "venv/site-packages/x.py",
        ".hidden/y.py",
        "build/z.py",
        "d.py/e.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(FAULTY)
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    reading = read_paths([tmp_path / "b.py", tmp_path])
    names = [os.path.relpath(each.place.path, tmp_path) for each in reading.findings]
    assert names == ["a b.py", "b.py", "c:1.py", "d.py/e.py"]
    assert reading.unreadable == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_without_permission_is_named(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FAULTY)
    path.chmod(0)
    assert "PermissionError" in read_paths([tmp_path]).unreadable[0][1]


@pytest.mark.parametrize(
    ("comment", "hidden"),
    [
        ("# truestep: ignore", True),
        ("# truestep:ignore[GRAD001]", True),
        ("# noqa: E501  # truestep: ignore[loss001, grad001]", True),
        ("# truestep: ignore[backward-without-zero-grad]", True),
        ("# truestep: ignore[LOSS001]", False),
        ("# truestep: ignore[]", False),
        ("# truestep: ignored by whom", False),
        ("# truestep: ignore-files", False),
        ("# noqa", False),
        ("'# truestep: ignore'", False),
    ],
)
def test_a_comment_hides_what_it_names(comment, hidden):
    code = LOOP.rstrip("\n") + ("  " if comment.startswith("#") else "; ") + comment + "\n"
    reading = read_text(HEAD + code)
    assert (len(reading.findings), reading.num_hidden) == ((0, 1) if hidden else (1, 0))


@pytest.mark.parametrize(
    "code",
    [
        "    # truestep: ignore[GRAD]\n\n    # for a reason\n    opt.step()\n",
        "    opt.step(\n    )  # truestep: ignore[GRAD001]\n",
        "    opt.step(  # truestep: ignore[GRAD001]\n    )\n",
        "    # truestep: ignore[GRAD001]\n    opt.step()  # truestep: ignore[LOSS001]\n",
    ],
)
def test_a_comment_holds_for_the_whole_statement(code):
    reading = read_text(HEAD + LOOP.replace("    opt.step()\n", code))
    assert (len(reading.findings), reading.num_hidden) == (0, 1)


def test_a_comment_does_not_hold_for_the_statement_behind_the_next():
    text = HEAD + LOOP.replace("    F.cross", "    # truestep: ignore\n    F.cross")
    assert len(read_text(text).findings) == 1


@pytest.mark.parametrize(
    "text",
    [
        "tool = 3",
        "[tool]\ntruestep = 3",
        "[[tool.truestep]]\nselect = ['GRAD']",
        "[tool.truestep]\nselect = 'GRAD'",
        "[tool.truestep]\nselect = [1]",
        "[tool.truestep]\nexclude = ['']",
        "[tool.truestep]\nbaseline = 3",
        "[tool.truestep]\nselect = ['XX']",
        "[tool.truestep]\nexclud = ['x']",
        "[tool.truestep",
    ],
)
def test_settings_that_are_wrong_are_named_with_their_file(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    if text == "tool = 3":
        assert configured_selection(tmp_path, [], [], None) == CheckSelection()
        return
    with pytest.raises(OptionError) as raised:
        configured_selection(tmp_path, [], [], None)
    assert "XX" in str(raised.value) or str(tmp_path / "pyproject.toml") in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_baseline_holds_from_whichever_folder_a_file_is_named(tmp_path, monkeypatch):
    path, known = tmp_path / "train.py", tmp_path / "known.json"
    path.write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    reading = read_paths([Path("train.py")])
    write_baseline(known, [(each, reading.lines[each.place]) for each in reading.findings])
    for named in (Path("train.py"), path, Path("..") / tmp_path.name / "train.py"):
        assert read_paths([named], CheckSelection(baseline=known)).num_hidden == 1
    with pytest.raises(OptionError):
        write_baseline(tmp_path / "no" / "known.json", [])


@pytest.mark.parametrize("text", ["[]", '{"findings": []}', '{"findings": {"a": "x"}}', "{"])
def test_what_is_no_baseline_is_said_to_be_none(tmp_path, text):
    (tmp_path / "known.json").write_text(text)
    with pytest.raises(OptionError, match="is no baseline"):
        read_paths([tmp_path], CheckSelection(baseline=tmp_path / "known.json"))


@pytest.mark.parametrize("name", ["a b.py", "c:1.py", "d%20.py", "é.py", "[x].py", "e#f.py"])
def test_sarif_names_any_file_by_a_uri(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    (run,) = sarif_document(read_paths([Path(name)]).findings)["runs"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(urlsplit(uri).path) == name
    assert urlsplit(uri).scheme == "" == urlsplit(uri).fragment
    assert re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=@%/-]+", uri)


def test_where_an_activation_is_written_is_told_beside_the_loss_that_takes_it(tmp_path):
    path = tmp_path / "net.py"
    lines = [
        "from torch import nn",
        "net = nn.Sequential(nn.Linear(3, 2), nn.Softmax(1))",
        "",
        "def loss_of(x, y):",
    ]
    path.write_text("\n".join([*lines, "    return nn.functional.cross_entropy(net(x), y)", ""]))
    (finding,) = read_paths([path]).findings
    assert (finding.code, finding.place.line, finding.evidence["made_at"]) == ("LOSS001", 5, f"{path}:2")
    assert "softmax at net.py:2" in finding.message
    (related,) = sarif_document([finding])["runs"][0]["results"][0]["relatedLocations"]
    assert related["physicalLocation"]["region"] == {"startLine": 2}


def test_names_that_steer_a_terminal_are_written_out(tmp_path):
    path = tmp_path / "a\x1b[31m\nb.py"
    path.write_text(FAULTY + "'\x1b[2J'; opt.add_param_group(1); " + "\n")
    text = shown(read_paths([path]))
    assert text.splitlines()[0].endswith("a\\x1b[31m\\nb.py")
    assert "\x1b" not in text


def test_a_long_path_stays_whole_and_no_line_ends_in_blanks(tmp_path):
    path = tmp_path / ("a" * 60) / ("b" * 60) / "train.py"
    path.parent.mkdir(parents=True)
    path.write_text(FAULTY)
    lines = shown(read_paths([path])).splitlines()
    assert lines[0] == str(path)
    assert lines == [line.rstrip() for line in lines]


def test_a_statement_that_is_moved_is_shown_with_its_neighbours():
    step = "sched = torch.optim.lr_scheduler.StepLR(opt, 2)\nfor epoch in range(3):\n    sched.step()\n"
    inner = "".join(f"    {line}\n" for line in ("opt.zero_grad()\n" + LOOP).splitlines())
    (finding,) = [each for each in read_text(HEAD + step + inner).findings if each.code == "SCHED001"]
    assert finding.replacement.diff == (
        "  for epoch in range(3):",
        "-     sched.step()",
        "      opt.zero_grad()",
        "  …",
        "          opt.step()",
        "+     sched.step()",
    )


def shown(reading):
    console = Console(file=io.StringIO(), width=80, highlight=False)
    show_reading(reading, console)
    return console.file.getvalue()


@pytest.mark.parametrize("is_connected", [True, False], ids=["one unit", "many units"])
@pytest.mark.parametrize("worth_it", [0, 10**9], ids=["several processes", "one process"])
def test_who_waits_is_told_how_far_it_is(tmp_path, monkeypatch, is_connected, worth_it):
    monkeypatch.setattr(read_progress, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(parallel_work, "_WORTH_IT", worth_it)
    for number in range(6):
        imports = "import torch\nimport m0\n" if is_connected else "import torch\n"
        (tmp_path / f"m{number}.py").write_text(imports + "x = 1\n" * 500)
    (tmp_path / "other.py").write_text("x = 1\n")
    told = []
    reading = read_paths([tmp_path], waiting=lambda done, total: told.append((done, total)))
    assert reading.num_files == 7
    assert told == sorted(told)
    assert {total for _, total in told} == {7}
    if not worth_it:  # other processes may be done before anybody asks
        assert told
    else:
        assert {done for done, _ in told} == set(range(8))


def test_a_fix_names_what_the_user_named():
    text = """
import torch


class Trainer:
    def __init__(self, model):
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5))
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self, batches):
        for epoch in range(3):
            for x, y in batches:
                self.optim.zero_grad()
                torch.nn.functional.cross_entropy(self.model(x), y).backward()
                self.optim.step()
            self.model.eval()


Trainer(None).fit([])
"""
    (finding,) = read_text(text).findings
    fix = "self.model.train() after each evaluation, before the next batch is trained on."
    assert (finding.code, finding.fix) == ("EVAL003", fix)

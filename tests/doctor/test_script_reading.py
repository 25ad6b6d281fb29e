# SPDX-License-Identifier: Apache-2.0
"""What a script under watch is made of is read too: what reading says of the modules that it reaches is in its report, once."""

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import warm

from truestep.doctor.catalogue import checks, source_checks
from truestep.doctor.finding import Finding, Place, Severity
from truestep.doctor.linting import read_paths
from truestep.doctor.merging import merge_findings
from truestep.doctor.page import PRELUDE
from truestep.doctor.probe_base import Probe
from truestep.doctor.runtime.script import WatchedScript
from truestep.doctor.script_reading import ScriptSources
from truestep.doctor.selection import CheckSelection
from truestep.doctor.watcher_base import Watcher

PAGES = [each.page() for each in source_checks()][::5]
FAULT = """\
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return F.dropout(x)
"""


def told(findings):
    return sorted((each.code, str(each.place), each.severity, each.message) for each in findings)


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def test_what_reading_says_of_the_modules_that_a_script_reaches_is_said(tmp_path, monkeypatch):
    # the bad and the good example of each page is a module; some are imported by the script, some by a module
    examples = [text for page in PAGES for text in (page.bad, page.good)]
    files = {f"parts/part{number}.py": PRELUDE + text for number, text in enumerate(examples)}
    names = [Path(each).stem for each in files]
    files["parts/__init__.py"] = ""
    files["parts/rest.py"] = "".join(f"from . import {each}\n" for each in names[::2])
    imports = [f"    from parts import {each}\n" for each in names[1::2]]
    files["main.py"] = "import parts.rest\n\n\ndef main():\n" + "".join(imports)
    write(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    of_folder = read_paths([Path()])
    write(tmp_path, {"unrelated.py": FAULT})
    of_script = ScriptSources(WatchedScript("main.py", False, ()), CheckSelection()).read()
    assert len(of_folder.findings) >= len(PAGES)
    assert told(of_script.findings) == told(of_folder.findings)
    assert of_script.num_read == of_folder.num_read


@pytest.mark.parametrize("script", ["main.py", "./main.py", "../{0}/main.py", "{1}/main.py"])
def test_what_is_read_is_named_from_here_however_the_script_is_named(script, tmp_path, monkeypatch):
    write(tmp_path, {"main.py": "import torch\nfrom parts.net import Net\n", "parts/net.py": FAULT})
    monkeypatch.chdir(tmp_path)
    named = WatchedScript(script.format(tmp_path.name, tmp_path), False, ())
    sources = ScriptSources(named, CheckSelection())
    reading = sources.read()
    assert [(each.code, str(each.place)) for each in reading.findings] == [("EVAL001", "parts/net.py:7")]
    assert ScriptSources(named, CheckSelection(exclude=("parts",))).read().findings == []
    assert sources.read_imported().findings == []


def test_a_module_that_no_import_line_names_is_read_when_the_run_is_over(tmp_path, monkeypatch):
    write(tmp_path, {"main.py": "import torch\n", "found_by_name.py": FAULT, "never.py": FAULT})
    monkeypatch.chdir(tmp_path)
    sources = ScriptSources(WatchedScript("main.py", False, ()), CheckSelection())
    assert sources.read().findings == []
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "found_by_name", None)  # so that it is gone afterwards
    del sys.modules["found_by_name"]
    __import__("found_by_name")
    assert [str(each.place) for each in sources.read_imported().findings] == ["found_by_name.py:7"]
    assert sources.read_imported().findings == []


def test_the_report_says_all_of_it_once(tmp_path):
    loop = """
    for x, y in batches:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
"""
    files = {
        "parts/__init__.py": "",
        "parts/engine.py": "import torch.nn.functional as F\n\n\ndef fit(net, opt, batches):" + loop,
        "parts/net.py": FAULT.replace("F.dropout(x)", "F.dropout(self.out(x))").replace(
            "    def forward",
            "    def __init__(self):\n        super().__init__()\n        self.out = nn.Linear(4, 3)\n\n    def forward",
        ),
        "parts/old.py": "print 'python 2'\n",
        "main.py": """import importlib
import torch

Net = importlib.import_module("parts." + "net").Net
from parts.engine import fit

net = Net()
if not net.training:
    import parts.old
opt = torch.optim.SGD(net.parameters(), lr=0.1)
fit(net, opt, [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)])
""",
    }
    write(tmp_path, files)
    environment = {**os.environ, "PYTHONPATH": warm.paths(), "NO_COLOR": "1"}
    command = ("-m", "truestep", "doctor", "--json", "main.py")
    ran = warm.run(*command, cwd=tmp_path, env=environment)
    assert ran.returncode == 1, ran.stderr
    document = json.loads(ran.stdout)
    found = {(each["code"], each["path"], each["line"], each["seen"]) for each in document["findings"]}
    assert found == {
        ("GRAD001", "parts/engine.py", 8, "read and ran"),
        ("EVAL001", "parts/net.py", 11, "read"),
    }
    assert len(document["findings"]) == len(found)


# ── joining ───────────────────────────────────────────────────────────────────────────────────────

READ = ["GRAD001", "LOSS007", "DATA006", "LOSS001"]
RAN = ["GRAD001", "DATA015", "LOSS001"]


def findings(codes, seen):
    def made(code, line, severity, made_at):
        place, evidence = Place("a.py", line), {"made_at": made_at}
        return Finding(
            code=code,
            name=code,
            severity=severity,
            place=place,
            message="",
            why="",
            fix="",
            evidence=evidence,
            seen=seen,
        )

    lines, severities = st.integers(1, 12), st.sampled_from(Severity)
    made_at = st.sampled_from([None, "a.py:5"])
    return st.lists(st.builds(made, st.sampled_from(codes), lines, severities, made_at), max_size=6)


@given(findings(RAN, "ran"), findings(READ, "read"))
def test_joining_says_all_that_reading_says_and_no_fault_twice(ran, read):
    joined = merge_findings(ran, read)
    assert sorted((each.code, each.place) for each in read) == sorted(
        (each.code, each.place) for each in joined if each.seen != "ran"
    )
    for each in ran:  # in the report itself, or what reading says of it is
        shown = [
            one
            for one in joined
            if one.seen == "read and ran"
            and one.severity.rank <= each.severity.rank
            and (one.code == each.code or each.code in checks()[one.code].shows_as)
        ]
        assert each in joined or shown
    for each in joined:
        if each.seen == "ran":
            assert not any(
                one.code == each.code and abs(one.place.line - each.place.line) <= 3 for one in read
            )


def test_what_a_fault_shows_as_is_a_check_that_runs():
    for check in source_checks():
        for code in check.shows_as:
            assert issubclass(checks()[code], Watcher | Probe), (check.code, code)

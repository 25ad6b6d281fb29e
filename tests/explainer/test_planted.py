# SPDX-License-Identifier: Apache-2.0
"""Crashes planted across files: the note names the cause in that run. One process runs all, as torch takes long to start."""

import json
import re
from pathlib import Path

import pytest
from support import warm

SECTION = re.compile(r"^# (?P<title>.+)\nnames: (?P<names>.+)\n(?P<files>(?:(?!^# ).*\n)*)", re.MULTILINE)
FILE = re.compile(r"^```python (?P<name>\w+\.py)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
CRASHES = [
    match.groupdict()
    for match in SECTION.finditer(Path(__file__).with_name("planted.txt").read_text("utf-8"))
]

RUN_ALL = """
import json, os, runpy, sys, traceback
import torch, truestep
import truestep.explainer.explain
notes = {}
for folder in sorted(os.listdir(sys.argv[1])):
    path, modules = os.path.join(sys.argv[1], folder), set(sys.modules)
    os.chdir(path)
    sys.path.insert(0, path)
    try:
        with truestep.explain_errors():
            runpy.run_path("train.py", run_name="__main__")
    except Exception as error:
        notes[folder] = "\\n".join(getattr(error, "__notes__", ["no note: " + repr(error)]))
    sys.path.remove(path)
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and sys.modules[name].__file__.startswith(path):
            del sys.modules[name]
print(json.dumps(notes))
"""


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    for number, crash in enumerate(CRASHES):
        place = folder / f"{number:02}"
        place.mkdir()
        for file in FILE.finditer(crash["files"]):
            (place / file["name"]).write_text(file["text"], "utf-8")
    ran = warm.run("-c", RUN_ALL, folder, timeout=300)
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(CRASHES)), ids=[crash["title"] for crash in CRASHES])
def test_the_cause_in_this_run_is_named(number, notes):
    note = notes[f"{number:02}"]
    missing = [name for name in CRASHES[number]["names"].split(" · ") if name not in " ".join(note.split())]
    assert not missing, note
    assert len(note.splitlines()) <= 12


def test_all_that_were_planted_are_read():
    assert len(CRASHES) == 32

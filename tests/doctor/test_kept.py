# SPDX-License-Identifier: Apache-2.0
"""What is kept from an earlier reading is what a new one would find, whatever changed, or was damaged, in between."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor import linting
from truestep.doctor.findings_cache import cache_source_reading, cached_source_reading
from truestep.doctor.linting import read_text
from truestep.doctor.parallel_work import map_in_processes
from truestep.doctor.source.import_units import source_units_of
from truestep.doctor.source.project import SourceProject

LOOP = """import torch
from {module} import make
net = make()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    torch.nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
"""
FILES = {
    "first.py": LOOP.format(module="models"),
    "models.py": "import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 3)\n",
    "alone.py": LOOP.format(module="nowhere"),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    for name, text in FILES.items():
        (tmp_path / "code" / name).write_text(text)
    return tmp_path / "code"


def told(reading):
    return reading.findings, reading.num_files, reading.num_hidden, reading.lines, reading.unreadable


def both(project):
    """Return what is found with the kept entries, after comparing it with what is found without them."""
    found = told(linting.read_paths([project], cache=project.parent / "kept"))
    assert found == told(linting.read_paths([project]))
    return found


def test_what_did_not_change_is_not_read_again(project, monkeypatch):
    before = both(project)
    assert len(before[0]) == 2
    monkeypatch.setattr(linting, "_read_unit", None)
    assert told(linting.read_paths([project], cache=project.parent / "kept")) == before


def test_a_file_that_trains_nothing_is_parsed_again_when_it_changed(project):
    (project / "plain.py").write_text("print(1)\n")
    assert both(project)[-1] == []
    (project / "plain.py").write_text("print(1\n")
    assert [Path(name).name for name, _ in both(project)[-1]] == ["plain.py"]
    assert len(both(project)[-1]) == 1


@pytest.mark.parametrize(
    ("name", "text", "num_read"),
    [
        ("alone.py", FILES["alone.py"].replace("    opt.step", "    opt.zero_grad()\n    opt.step"), 1),
        ("models.py", FILES["models.py"].replace("3", "7"), 1),
        ("nowhere.py", FILES["models.py"], 1),  # what an import that meant nothing means now
        ("models.py", None, 1),
        ("other.py", FILES["alone.py"], 1),
        ("alone.py", "def broken(:", 1),
    ],
)
def test_a_change_reads_the_files_that_it_touches(project, monkeypatch, name, text, num_read):
    both(project)
    (project / name).unlink() if text is None else (project / name).write_text(text)
    calls, inner = [], linting._read_unit
    monkeypatch.setattr(linting, "_read_unit", lambda *given: calls.append(given) or inner(*given))
    found = told(linting.read_paths([project], cache=project.parent / "kept"))
    assert len(calls) == num_read
    assert found == told(linting.read_paths([project]))


@pytest.mark.parametrize(
    "harm", [lambda raw: b"", lambda raw: raw[:-7], lambda raw: raw.replace(b"GRAD", b"LOSS")]
)
def test_a_damaged_entry_is_as_if_it_were_not_there(project, harm):
    before = both(project)
    entries = list((project.parent / "kept").iterdir())
    for entry in entries:
        entry.write_bytes(harm(entry.read_bytes()))
    assert entries
    assert all(cached_source_reading(entry.parent, entry.name) is None for entry in entries)
    assert both(project) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_the_place_of_an_entry_is_never_waited_for(project):
    before = both(project)
    for entry in (project.parent / "kept").iterdir():
        entry.unlink()
        os.mkfifo(entry)
    assert both(project) == before


def test_a_folder_that_is_none_keeps_nothing(project):
    (project.parent / "kept").write_text("a file")
    assert both(project) == both(project)


def test_the_way_in_which_files_are_named_is_kept_apart(project):
    cache = project.parent / "kept"
    for path in (project, project.relative_to(project.parent)):
        paths = {each.place.path for each in linting.read_paths([path], cache=cache).findings}
        assert paths == {str(path / "first.py"), str(path / "alone.py")}


EDITS = st.sampled_from(("append", "constant", "rename", "add", "remove"))


def edit(folder, kind, number):
    """Change one file of a package as somebody who works on it would."""
    files = sorted(folder.glob("*.py"))
    path = files[number % len(files)]
    text = path.read_text()
    if kind == "append":
        path.write_text(text + "opt.zero_grad()\n")
    elif kind == "constant":
        path.write_text(text.replace("0.1", "0.2").replace("3", "5"))
    elif kind == "rename":  # the others still import it by its old name
        path.write_text(text.replace("def make", f"def make{number}"))
    elif kind == "add":
        (folder / f"added{number}.py").write_text(LOOP.format(module=path.stem))
    elif len(files) > 1:
        path.unlink()


@settings(deadline=None, max_examples=10)
@given(st.lists(st.tuples(EDITS, st.integers(0, 5)), min_size=1, max_size=4))
def test_after_any_edits_what_is_kept_gives_what_a_new_reading_gives(tmp_path_factory, edits):
    folder = tmp_path_factory.mktemp("edited") / "code"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    both(folder)
    for kind, number in edits:
        edit(folder, kind, number)
        both(folder)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=8))
def test_a_unit_holds_all_that_its_files_reach(tmp_path_factory, edges):
    folder = tmp_path_factory.mktemp("units")
    lines = {number: ["import torch"] for number in range(6)}
    for start, end, inside in edges:
        lines[start].append(
            f"def f():\n    from .m{end} import (f,\n        g)" if inside else f"import os, m{end} as m"
        )
    for number, text in lines.items():
        (folder / f"m{number}.py").write_text("\n".join(text) + "\n")
    units = source_units_of(sorted(folder.iterdir()))
    assert sorted(each for unit in units for each in unit.named) == sorted(folder.iterdir())
    project = SourceProject()
    modules = {path: project.add(path.read_text(), str(path)) for path in folder.iterdir()}
    project.link()
    for unit in units:
        reached = {
            str(Path(each.path).absolute()) for path in unit.named for each in modules[path].program.linked
        }
        assert reached <= {str(each) for each in unit.named}


@pytest.mark.parametrize("size", [1, 10**6])
def test_pieces_come_back_in_their_order(size):
    given_, sizes = [(number,) for number in range(5)], [size * (number + 1) for number in range(5)]
    assert list(map_in_processes(abs, given_, sizes, meanwhile=lambda: None)) == [0, 1, 2, 3, 4]


def test_what_is_kept_quotes_source_and_is_for_its_owner_alone(tmp_path):
    cache_source_reading(tmp_path, "key", read_text("x = 1\n"))
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0

# SPDX-License-Identifier: Apache-2.0
"""Which file an import means, on a disk whose folders are listed once."""

import os

import pytest

from truestep.doctor.source.path_of_import import ImportPlaces, SourceDisk


@pytest.fixture
def places(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "inner.py").write_text("")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "beside.py").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / "linked.py").symlink_to(tmp_path / "pkg" / "inner.py")
    (tmp_path / "broken.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round.py").symlink_to("round.py")
    return ImportPlaces(SourceDisk())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pkg", "pkg/__init__.py"),
        ("pkg.inner", "pkg/inner.py"),
        ("linked", "linked.py"),
        ("beside", "src/beside.py"),
        ("folder", None),
        ("broken", None),
        ("round", None),
        ("pkg.none", None),
        ("nowhere.at.all", None),
        ("nul\0", None),
        ("x" * 300, None),
    ],
)
def test_a_name_means_a_file_or_a_link_to_one(tmp_path, places, name, meant):
    found = places.find(str(tmp_path / "main.py"), name, 0)
    assert found == (meant and str(tmp_path / meant))


def test_an_import_runs_the_packages_above(tmp_path, places):
    reached = list(places.reached(str(tmp_path / "main.py"), "pkg.inner", 0))
    assert reached == [str(tmp_path / "pkg" / "inner.py"), str(tmp_path / "pkg" / "__init__.py")]


def test_a_folder_is_listed_once(tmp_path, places, monkeypatch):
    listed, scan = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: listed.append(folder) or scan(folder))
    for name in ("pkg", "pkg.inner", "pkg.other", "linked", "beside", "nothing"):
        places.find(str(tmp_path / "main.py"), name, 0)
    assert len(listed) == len(set(listed)) > 0


@pytest.mark.parametrize("installed", ["site-packages", "dist-packages"])
def test_where_packages_are_installed_one_is_a_library_to_the_others(tmp_path, installed):
    root = tmp_path / "venv" / installed
    for name in ("pkg/__init__.py", "pkg/deep/one.py", "other/__init__.py", "plain.py", "spaced/part/two.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "own.py").write_text("")
    places = ImportPlaces(SourceDisk())
    inner, spaced, plain = (str(root / each) for each in ("pkg/deep/one.py", "spaced/part/x.py", "plain.py"))
    assert places.find(inner, "pkg", 0) == str(root / "pkg" / "__init__.py")
    assert places.find(inner, "one", 0) is None
    assert places.find(str(root / "pkg" / "deep" / "y.py"), "one", 0) == inner
    assert places.find(spaced, "spaced.part.two", 0) == str(root / "spaced" / "part" / "two.py")
    assert places.find(plain, "other", 0) == str(root / "other" / "__init__.py")
    for home in (inner, spaced):
        assert places.find(home, "other", 0) is None
        assert places.find(home, "plain", 0) is None
        assert places.find(home, "own", 0) is None

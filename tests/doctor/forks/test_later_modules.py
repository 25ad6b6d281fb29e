# SPDX-License-Identifier: Apache-2.0
"""A child finds the user's modules, and looks at none that its parent looked at: each that is touched is memory that is copied."""

import sys
import types

import pytest

from truestep.doctor.forks.fork import run_in_sealed_child
from truestep.doctor.forks.fork_obstacles import why_no_fork
from truestep.doctor.runtime import wrapping

pytestmark = pytest.mark.skipif(why_no_fork() is not None, reason=f"no child is forked here: {why_no_fork()}")


@pytest.fixture
def imports(monkeypatch):
    """Return what imports a module of the user's that has this name."""

    def add(name):
        module = types.ModuleType(name)
        module.__file__ = f"/home/somebody/{name}.py"
        monkeypatch.setitem(sys.modules, name, module)

    return add


def seen_by_child():
    """Return the names of the user's modules as a child finds them, and at how many files it looked."""

    def look():
        wrapping._of_libraries.clear()  # that the files of those it goes through are counted
        looked, wrapping.is_library_file = [], lambda file: looked.append(file) or file[:6] != "/home/"
        return [each["__name__"] for each in wrapping._user_module_variables()], len(looked)

    return run_in_sealed_child(look).value


def test_each_look_in_one_process_finds_them(imports):
    imports("early")
    for _ in range(2):
        assert "early" in {each["__name__"] for each in wrapping._user_module_variables()}


def test_it_looks_at_what_was_imported_since(imports):
    imports("early")
    wrapping._user_module_variables()
    imports("late")
    names, looked = seen_by_child()
    assert {"early", "late"} <= set(names)
    assert looked < 50  # those that the child itself imported are among them


def test_it_looks_at_all_where_one_is_gone(imports, monkeypatch):
    imports("early")
    wrapping._user_module_variables()
    monkeypatch.delitem(sys.modules, "early")
    imports("late")
    imports("later")
    names, looked = seen_by_child()
    assert {"late", "later"} <= set(names)
    assert "early" not in names
    assert looked > 500

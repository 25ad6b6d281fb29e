# SPDX-License-Identifier: Apache-2.0
"""What a draw of the tests leaves out, ten draws in a row hold; and each holds the values that it can."""

import collections
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import costs, turns, warm

ROOT = Path(__file__).parents[1]


class File:
    nodeid = "tests/test_it.py"


HERE = File()


class Case:
    """A test as pytest collects it: what the draws ask of it."""

    def __init__(self, function, parameters, **marks):
        self.parent, self.originalname, self.marks = HERE, function, marks
        self.name = f"{function}[{'-'.join(map(str, parameters.values()))}]"
        self.nodeid = f"{HERE.nodeid}::{self.name}"
        self.callspec = SimpleNamespace(params=parameters)

    def get_closest_marker(self, name):
        return SimpleNamespace(args=self.marks[name]) if name in self.marks else None


def grid(function, many, **marks):
    return [Case(function, {"number": number}, **marks) for number in range(many)]


@pytest.fixture
def dear(monkeypatch):
    """Have a case of each function take as long as it says."""

    def take(**seconds):
        monkeypatch.setattr(turns, "SECONDS", 0.75)
        monkeypatch.setattr(turns, "costs", lambda: {f"{HERE.nodeid}::{f}": s for f, s in seconds.items()})

    return take


def held(items, number):
    left_out = turns.left_out(items, number)
    assert len({*left_out}) == len(left_out)
    return [item for item in items if item not in left_out]


def test_ten_draws_in_a_row_hold_every_test(dear):
    dear(test_a=0.3, test_b=40, test_c=4, test_d=0.001, test_e=0.4)
    items = [
        *grid("test_a", 57),
        *grid("test_b", 1),
        *grid("test_c", 3),
        *grid("test_d", 90),
        *grid("test_e", 3),
    ]
    for first in (0, 7, 20_787):
        draws = [held(items, number) for number in range(first, first + turns.DRAWS)]
        assert {item.name for draw in draws for item in draw} == {item.name for item in items}
        for draw in draws:
            names = [item.originalname for item in draw]
            assert names.count("test_a") in (5, 6)
            assert names.count("test_d") == 90  # it is cheap
            assert names.count("test_e") in (1, 2)  # 1.2 seconds: two turns
        assert sum(item.originalname == "test_b" for draw in draws for item in draw) == 1
        assert sum(item.originalname == "test_c" for draw in draws for item in draw) == 3


def test_the_dear_ones_do_not_all_come_in_one_draw(dear):
    items = [case for number in range(200) for case in grid(f"test_{number}", 1)]
    dear(**{item.originalname: 7 for item in items})
    assert all(5 < len(held(items, number)) < 40 for number in range(turns.DRAWS))


def test_a_draw_is_the_same_again_in_any_order(dear):
    dear(test_a=0.5)
    items = grid("test_a", 40)
    assert {item.name for item in held(items, 3)} == {item.name for item in held(items[::-1], 3)}
    assert {item.name for item in held(items, 3)} != {item.name for item in held(items, 4)}


@pytest.mark.parametrize("number", [None, 0, 6])
def test_each_turn_has_every_value_where_it_has_as_many_cases(number):
    pairs = itertools.product(["float16", "float32", "bfloat16"], ["adam", "sgd", "muon", "lion"])
    items = [
        Case("test_a", {"precision": precision, "optimizer": optimizer}, sliced=(3,))
        for precision, optimizer in pairs
    ]
    kept = held(items, number)
    assert len(kept) == 4
    assert {item.callspec.params["optimizer"] for item in kept} == {"adam", "sgd", "muon", "lion"}
    assert {item.callspec.params["precision"] for item in kept} == {"float16", "float32", "bfloat16"}


def test_a_register_and_what_is_slow_already_stay_as_they_are(dear):
    dear(test_a=5, test_b=5)
    items = [*grid("test_a", 30, whole=()), *grid("test_b", 30, slow=())]
    assert held(items, 3) == items
    assert set(held([*items, *grid("test_a", 30)], 3)) > set(items)  # cases of one function can have it alone


def test_without_a_draw_only_what_is_sliced_is_cut(dear):
    dear(test_a=5, test_b=5, test_c=0.01)
    items = [*grid("test_a", 30), *grid("test_b", 1), *grid("test_c", 30, sliced=(15,))]
    assert len(held(items, None)) == 30 + 1 + 2
    assert len(held(items, 0)) == 3 + len(held(items[30:31], 0)) + 2
    for first in (0, 20_787):  # what is sliced more than that is in as many draws
        kept = [{item.name for item in held(items[31:], number)} for number in range(first, first + 15)]
        assert sum(map(len, kept)) == len(set.union(*kept)) == 30


def test_the_costs_are_of_tests_that_are_there():
    for name, seconds in turns.costs().items():
        file, *_, function = name.split("::")
        assert f"def {function}(" in (ROOT / file).read_text("utf-8"), (
            f"{turns.COSTS} names {name}: remove the line"
        )
        assert seconds > 0


def test_what_a_child_computes_is_counted_while_it_runs_and_when_it_has_ended():
    before = costs.processor_time()
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    while_it_runs = costs.processor_time() - before
    child.communicate(b"\n")
    assert 0.25 < while_it_runs <= costs.processor_time() - before + 0.02


def test_of_a_warm_process_what_is_forked_from_it_is_counted():
    before = costs.processor_time()
    assert warm.run("-c", "import time\nwhile time.process_time() < 0.3: pass").returncode == 0
    assert (
        0.25 < costs.processor_time() - before < 3
    )  # it loads torch first, where it is the first of this process


def test_a_case_costs_what_the_others_do_where_the_first_starts_what_they_find():
    assert costs.case_of([9.0, 1.0, 3.0]) == 2.0
    assert costs.case_of([9.0]) == 9.0


def test_a_line_is_of_what_takes_long_and_what_was_not_run_keeps_its_own():
    taken = {
        "a.py::test_a": [0.2, 0.2, 0.2],
        "a.py::test_b": [0.2],
        "a.py::test_c": [0.01] * 90,
        "a.py::test_d": [5.0],
    }
    cases = collections.Counter({name: len(seconds) for name, seconds in taken.items()})
    before = {"a.py::test_b": 3.0, "a.py::test_d": 3.0, "a.py::test_e": 2.0}
    assert costs.lines(taken, cases, before) == [
        "0.200 a.py::test_a\n",
        "5.000 a.py::test_d\n",
        "2.000 a.py::test_e\n",
    ]


def test_a_draw_says_how_it_is_had_again():
    environment = {**os.environ, "TRUESTEP_TEST_DRAW": "20787"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/test_turns.py",
        "-k",
        "again",
    ]
    said = subprocess.run(
        [*command, "--collect-only"], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith("draw 20787: ")
    assert "make test DRAW=20787" in said.splitlines()[0]

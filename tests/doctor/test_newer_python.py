# SPDX-License-Identifier: Apache-2.0
"""What only a later Python parses is read all the same, in its own lines and columns."""

import ast

import pytest

from truestep.doctor.linting import read_paths, read_text
from truestep.doctor.newer_syntax import rewrite_newer_python

LOOP = """\
import torch
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
values = {"a": 1}
for x, y in loader:
    torch.nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
"""
LINES = [
    'print(f"{values["a"]}")',
    'print(f"{values["a"]:.3f} {", ".join(f"{k}={v}" for k, v in values.items())} {{}}")',
    r"""print(f"{'\n'.join(values)}")""",
    "print(f'''{values['a']} {max(\"b\")!r}''')",
    "print(f'{values['a']:{values['b']}}' 'text' # don't\n)",
    'print(f"{f"{f"{1}"}"}")',
    'query = t"{values} and {net}"',
    'query = rt"{values["a"]}"',
    "type Pair = tuple[int, int]",
    "type Pair[T] = tuple[T, T]",
    "def first[T](given: list[T]) -> T:\n    return given[0]",
    "def first[T: (int, str), *Ts, **P](given: T) -> dict[T, 'a']:\n    return given",
    "async def first[T](given: T) -> T:\n    return given",
    "class Kept[T = int](list[T]): pass",
    "class Kept[T: dict[str, int]]:\n    last: T",
    "lazy import json",
    "lazy from os import path",
    "try:\n    pass\nexcept ValueError, TypeError:\n    pass",
]


@pytest.mark.parametrize("line", LINES)
def test_what_later_versions_brought_is_read_and_the_loop_below_is_judged(tmp_path, line):
    (tmp_path / "train.py").write_text(line + "\n" + LOOP)
    reading = read_paths([tmp_path])
    assert (reading.unreadable, reading.failures) == ([], [])
    found = [(each.code, each.place.line) for each in reading.findings]
    assert found == [("GRAD001", 8 + line.count("\n"))]


@pytest.mark.parametrize("line", LINES)
def test_every_character_keeps_its_place(line):
    lines = (line + "\n" + LOOP).split("\n")
    assert [len(each) for each in rewrite_newer_python("\n".join(lines)).split("\n")] == [*map(len, lines)]


@pytest.mark.parametrize(
    "line",
    [
        "type(x)",
        "type = 3",
        "x = f'{{{y}}}'",
        "f'{x!r:>{w}}'",
        'a = "\\\n" ; b = f"{a}"',
        "f'{(x := 5)}{x=}'",
        "# f'{",
        "lazy = 1",
    ],
)
def test_what_this_python_takes_stays_as_it_is(line):
    assert ast.dump(ast.parse(rewrite_newer_python(line))) == ast.dump(ast.parse(line))


@pytest.mark.parametrize("line", ["f'{x", "f'{x['a}'", "def f[T(x): pass", "type = = 3", "f'{'"])
def test_what_is_no_python_of_any_version_is_still_refused(line):
    assert read_text(line).unreadable

# SPDX-License-Identifier: Apache-2.0
"""What only holds variables is taken apart, and nothing else: what a program does stays the same."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor.source.container_unpacking import parse_and_split

APART = [
    ("kept = {}\nkept['a'] = 1\nprint(kept['a'])\n", "kept = {}\nkept.a = 1\nprint(kept.a)"),
    (
        "class Kept:\n    pass\nkept = Kept()\nkept.a = 1\nkept.a += 2\nprint(kept.a)\n",
        "class Kept:\n    pass\nkept = Kept()\nkept.a = 1\nkept.a += 2\nprint(kept.a)",
    ),
    (
        "def f():\n    kept = {}\n    kept['a'] = 1\n    return kept['a']\n",
        "def f():\n    kept = {}\n    kept.a = 1\n    return kept.a",
    ),
    ("a, b = f(), 2\n", "a = f()\nb = 2"),
    ("if x:\n    a, b = 1, a\n", "if x:\n    a, b = (1, a)"),
    ("a, b = b, a\n", "a, b = (b, a)"),
    ("a, *b = 1, 2\n", "a, *b = (1, 2)"),
    ("a[0], b = 1, 2\n", "a[0], b = (1, 2)"),
]
WHOLE = [
    "kept = {}\nkept['a'] = 1\nsave(kept)\n",
    "kept = {}\nkept['a'] = 1\nkept = {}\nprint(kept['a'])\n",
    "kept = {}\nkept[name] = 1\nprint(kept['a'])\n",
    "kept = {}\nkept['a'] = 1\ndel kept['a']\n",
    "kept = {}\ndef f():\n    kept['a'] = 1\n",
    "kept = {}\nkept['a'] = 1\ndef f(kept):\n    return kept['a']\n",
    "kept = {}\nkept['a b'] = 1\n",
    "kept = {'b': 2}\nkept['a'] = 1\n",
    "kept = make()\nkept.a = 1\n",
    "kept = {}\nkept['a'] = 1\nprint('a' in kept)\n",
    "kept = {}\nkept.a = 1\n",
    "class Kept:\n    a = 0\nkept = Kept()\nkept.a = 1\n",
]


def names_of(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@pytest.mark.parametrize(("text", "expected"), APART)
def test_a_holder_of_variables_is_taken_apart(text, expected):
    assert ast.unparse(parse_and_split(text, "<text>")) == expected


@pytest.mark.parametrize("text", [text for text, _ in APART[:3]])
def test_its_items_are_names_where_they_stood(text):
    tree = parse_and_split(text, "<text>")
    assert "kept.a" in names_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "kept.a":
            assert ast.get_source_segment(text, node) in ("kept['a']", "kept.a")


@pytest.mark.parametrize("text", WHOLE)
def test_what_is_used_as_a_whole_stays(text):
    assert ast.dump(parse_and_split(text, "<text>")) == ast.dump(ast.parse(text))


@pytest.mark.parametrize(("depth", "is_apart"), [(20, True), (1_500, False)])
def test_what_lies_too_deep_stays(depth, is_apart):
    tree = parse_and_split(f"kept = {{}}\nkept['a'] = {'+'.join(['1'] * depth)}\n", "<text>")
    assert ("kept.a" in names_of(tree)) is is_apart


NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.one_of(NAMES, st.integers(0, 9).map(str), st.tuples(NAMES, NAMES).map(" + ".join))
PAIRS = st.lists(st.tuples(NAMES, VALUES), min_size=2, max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(PAIRS, min_size=1, max_size=4))
def test_assignments_taken_apart_give_what_they_gave(statements):
    lines = [
        f"{', '.join(name for name, _ in pairs)} = {', '.join(value for _, value in pairs)}"
        for pairs in statements
    ]
    text = "\n".join(lines)
    told = []
    for tree in (ast.parse(text), parse_and_split(text, "<text>")):
        values = {"a": 1, "b": 2, "c": 3, "d": 4}
        exec(compile(tree, "<text>", "exec"), {}, values)
        told.append(values)
    assert told[0] == told[1]

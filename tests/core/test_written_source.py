# SPDX-License-Identifier: Apache-2.0
"""What is written in the user's own source is told as Python writes it, however often it is asked."""

import ast

import pytest

from truestep.core.source_lookup import unparse_cached

EXPRESSIONS = [
    "net",
    "self.net.weight",
    "nets['target'].state",
    "(a + b).grad",
    "(1).real",
    "f(x).y.z",
    "(lambda x: x.y)(z).w",
    "self.heads[0](batch.x).mean()",
    "(yield x).y",
    "(await reader).rows",
    "-x.y",
    "f'{a.b}'.c",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_each_part_is_told_as_python_writes_it(text):
    parts = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.expr)]
    for _ in range(2):
        assert [*map(unparse_cached, parts)] == [*map(ast.unparse, parts)]

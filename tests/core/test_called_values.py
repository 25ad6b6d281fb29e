# SPDX-License-Identifier: Apache-2.0
"""A property that a line calls is answered; a right program reads it in whatever way it likes."""

import pytest
import torch

from truestep.core.errors import OptionError
from truestep.core.property_call_errors import refuse_property_calls


@refuse_property_calls("counter")
class Counter:
    @property
    def count(self):
        """How many."""
        return 3

    @property
    def layer(self):
        return torch.nn.Identity()


CALLED = [
    "counter.count()",
    "counter.count(5)",
    "[each.count(1, step=2) for each in [counter]]",
    "(counter).count(\n\n1)",
]
READ = [
    "counter.count",
    "int(counter.count)",
    "counter.count.bit_length()",
    "getattr(counter, 'count')",
    "counter.layer(3)",
    "counter.layer.forward(3)",
    "f'{counter.count}({5})'",
    "(lambda: counter.count)()",
    "max(counter.count, abs(-1))",
]


@pytest.mark.parametrize("line", CALLED)
def test_it_is_said_that_it_is_no_method(line):
    with pytest.raises(
        OptionError, match=r"counter\.count is no method, but a value \(3\): write counter\.count\."
    ):
        eval(line, {"counter": Counter()})


@pytest.mark.parametrize("line", READ)
def test_reading_it_is_reading_it(line):
    assert eval(line, {"counter": Counter()})
    assert Counter.count.__doc__ == "How many."


def test_behind_many_constants_it_is_seen_too():
    """Then the instruction has a prefix."""
    names = "\n".join(f"        counter.name_{number}" for number in range(400))
    source, scope = f"def run(counter):\n    if False:\n{names}\n    {{}}", {}
    exec(source.format("return counter.count(1)"), scope)
    with pytest.raises(OptionError, match="is no method"):
        scope["run"](Counter())
    exec(source.format("return counter.count"), scope)
    assert scope["run"](Counter()) == 3


def test_a_compiled_function_reads_it_in_one_graph():
    counter = Counter()
    compiled = torch.compile(lambda values: values * counter.count, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]

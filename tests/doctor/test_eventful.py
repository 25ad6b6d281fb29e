# SPDX-License-Identifier: Apache-2.0
"""A function is followed where something may happen in it, in whatever context; a method of the same name makes none of it."""

import pytest

from truestep.doctor.source.entries import ProgramEntries
from truestep.doctor.source.eventful_functions import EventfulFunctions
from truestep.doctor.source.project import SourceProject
from truestep.doctor.source.protocol_calls import Protocol

PROGRAM = """
import torch
from torch import nn

class Trainer:
    def load(self):
        self.opt.zero_grad()
        self.net.train()

class Table:
    def load(self):
        return 1

def read(path, some):
    numbers = 0
    {call}
    return numbers

def main(some):
    return read("path", some)
"""


@pytest.mark.parametrize(
    ("call", "num_traces"),
    [
        ("torch.numel(path)", 0),  # nothing of that name
        ("torch.nn.functional.load(path)", 0),  # a library's
        ("Table().load()", 0),  # another class's
        ("some.load()", 0),  # entered only where the context tells the class, which is nowhere here
        ("Trainer().load()", 1),
    ],
)
def test_a_program_is_followed_into_what_matters(call: str, num_traces: int) -> None:
    project = SourceProject()
    module = project.add(PROGRAM.format(call=call), "read.py")
    project.link()
    found = ProgramEntries([module], project.resolver).every_trace()
    assert len([each for each in found if getattr(each.root, "name", "") == "main"]) == num_traces


def test_only_a_call_whose_object_is_unknown_may_run_any_method_of_its_name() -> None:
    def eventful(call: str) -> set[str]:
        project = SourceProject()
        module = project.add(PROGRAM.format(call=call), "read.py")
        project.link()
        found = EventfulFunctions([module], project.resolver, Protocol(module), {}).found
        return {getattr(each, "name", "") for each in found} & {"read", "main"}

    assert eventful("some.load()") == {"read", "main"}
    assert eventful("Table().load()") == eventful("torch.nn.functional.load(path)") == set()

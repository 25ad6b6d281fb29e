# SPDX-License-Identifier: Apache-2.0
"""The report as a whole: a section that breaks, and what a result can do."""

import json
import os

import truestep as ts
from truestep.machine.environment import facts as module


def test_a_section_that_breaks_leaves_the_others(monkeypatch):
    def broken():
        raise PermissionError("no")

    monkeypatch.setattr(module.systems, "read_disks", broken)
    environment = ts.environment()
    assert environment.machine.disks == ()
    assert environment.machine.unreadable == {"disks": "PermissionError: no"}
    assert environment.machine.packages
    assert "could not be read: disks: PermissionError: no" in str(environment)


def test_it_is_text_html_and_json():
    environment = ts.environment()
    assert "verdicts" in str(environment)
    assert "verdicts" in environment._repr_html_()
    assert environment.to_dict() == json.loads(json.dumps(environment.to_dict()))
    assert {"pass", "warn", "fail", "skip"} >= {verdict.status for verdict in environment.verdicts}


def test_cards_are_in_it_without_the_command_lines_of_their_users(in_process):
    machine = in_process()
    machine.has(machine.card(compute=f"{os.getpid()}:1000"))
    (card,) = ts.environment().machine.gpus.gpus
    assert (card.name, card.processes, card.unavailable["processes"]) == ("NVIDIA H200", None, "not asked")

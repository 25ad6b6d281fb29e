# SPDX-License-Identifier: Apache-2.0
"""`truestep selfcheck` on the CPU and on the stand-in of a card: what does not apply is no pass, and what is wrong is named."""

import json

import pytest
import torch
from support.card import Card
from typer.testing import CliRunner

from truestep.cli.selfcheck import app
from truestep.core import accelerator
from truestep.selfcheck import check_device, machine, trying
from truestep.selfcheck.report import Seen
from truestep.selfcheck.training import CheckedDevice

NOT_ON_A_CPU = {"No hidden sync", "beside the CPU", "all cards", "several processes", "memory"}


def outcomes(report):
    return {row.name: row.outcome for row in report.rows}


def only(monkeypatch, *names):
    monkeypatch.setattr(trying, "CHECKS", {name: trying.CHECKS[name] for name in names})


@pytest.mark.slow
def test_on_the_cpu_what_needs_a_card_does_not_apply(monkeypatch):
    monkeypatch.setattr(machine, "STEPS", 1)
    found = outcomes(check_device("cpu"))
    assert {name for name, outcome in found.items() if outcome == "does not apply"} == NOT_ON_A_CPU
    assert {outcome for name, outcome in found.items() if name not in NOT_ON_A_CPU} == {"passed", "measured"}


@pytest.mark.slow
def test_on_two_cards_all_but_their_processes_applies(monkeypatch):
    monkeypatch.setattr(machine, "STEPS", 1)
    monkeypatch.setattr(
        machine, "train_on_ranks", lambda *_: Seen("does not apply", "a stand-in is in one process")
    )
    with Card(count=2):
        report = check_device("cuda")
    assert outcomes(report) == {name: outcomes(report)[name] for name in trying.CHECKS}
    assert [row for row in report.rows if row.outcome not in ("passed", "measured")] == [report.rows[12]]
    assert report.rows[12].name == "several processes"


def test_some_checks_on_two_cards(monkeypatch):
    only(monkeypatch, "Plain", "Never empty", "No hidden sync", "memory")
    with Card(count=2):
        found = outcomes(check_device("cuda:1"))
    assert found == {**dict.fromkeys(found, "passed"), "memory": "measured"}


def test_a_read_in_the_step_fails_and_is_named(monkeypatch):
    only(monkeypatch, "No hidden sync", "all cards")
    made = accelerator.send_to_host
    monkeypatch.setattr(
        "truestep.engine.delayed_reports.send_to_host", lambda report: (report.sum().item(), made(report))[1]
    )
    with Card(count=1):
        report = check_device("cuda")
    assert outcomes(report) == {"No hidden sync": "FAILED", "all cards": "does not apply"}
    assert report.failed[0].says.startswith("plain: ")


def test_the_command_says_it_as_a_table_and_as_json(monkeypatch):
    only(monkeypatch, "Order", "No hidden sync")
    shown = CliRunner().invoke(app, ["--device", "cpu"])
    assert shown.exit_code == 0
    assert "| No hidden sync | does not apply | cpu: results are at hand |" in shown.stdout
    document = json.loads(CliRunner().invoke(app, ["--json", "--device", "cpu"]).stdout)
    assert (document["schema_version"], document["device"]) == (1, "cpu")
    monkeypatch.setitem(trying.CHECKS, "Order", lambda _: 1 / 0)
    shown = CliRunner().invoke(app, ["--device", "cpu"])
    assert shown.exit_code == 1
    assert "| Order | FAILED | ZeroDivisionError: division by zero |" in shown.stdout


@pytest.mark.slow
def test_several_processes_train_as_one(tmp_path):
    seen = machine.train_on_ranks(CheckedDevice(torch.device("cpu"), tmp_path), 2)
    assert seen.outcome == "passed", seen.says

# SPDX-License-Identifier: Apache-2.0
"""`truestep selfcheck` on the CPU and on the stand-in of a card: what does not apply is no pass, and what is wrong is named."""

import json

import pytest
from rich.console import Console
from support.card import Card
from typer.testing import CliRunner

from truestep.cli.selfcheck import app
from truestep.core import device_specific
from truestep.selfcheck import SelfCheckReport, SelfCheckRow, check_device, check_runner, checks
from truestep.selfcheck.training import Seen

NOT_ON_A_CPU = {"No hidden sync", "beside the CPU", "all cards", "memory"}


def outcomes(report):
    return {row.name: row.outcome for row in report.rows}


def only(monkeypatch, *names):
    monkeypatch.setattr(check_runner, "CHECKS", {name: check_runner.CHECKS[name] for name in names})


@pytest.mark.slow
def test_on_the_cpu_what_needs_a_card_does_not_apply(monkeypatch):
    monkeypatch.setattr(checks, "STEPS", 1)
    found = outcomes(check_device("cpu"))
    assert {name for name, outcome in found.items() if outcome == "does not apply"} == NOT_ON_A_CPU
    assert {outcome for name, outcome in found.items() if name not in NOT_ON_A_CPU} == {"passed", "measured"}


def test_on_two_cards_all_but_their_processes_applies(monkeypatch):
    monkeypatch.setattr(checks, "STEPS", 1)
    alone = lambda _: Seen("does not apply", "a stand-in is in one process")
    monkeypatch.setitem(check_runner.CHECKS, "several processes", alone)
    with Card(count=2):
        report = check_device("cuda:1")
    assert outcomes(report) == {name: outcomes(report)[name] for name in check_runner.CHECKS}
    assert [row for row in report.rows if row.outcome not in ("passed", "measured")] == [report.rows[12]]
    assert report.rows[12].name == "several processes"


def test_a_read_in_the_step_fails_and_is_named(monkeypatch):
    only(monkeypatch, "No hidden sync", "all cards")
    made = device_specific.send_to_host
    monkeypatch.setattr(
        "truestep.engine.deferred_flags.send_to_host", lambda report: (report.sum().item(), made(report))[1]
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
    monkeypatch.setitem(check_runner.CHECKS, "Order", lambda _: 1 / 0)
    shown = CliRunner().invoke(app, ["--device", "cpu"])
    assert shown.exit_code == 1
    assert "| Order | FAILED | ZeroDivisionError: division by zero |" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "passed: 0, FAILED: 1, measured: 0, does not apply: 1"


def test_what_is_usually_seen_fits_a_terminal():
    shown = Console(width=80)
    row = SelfCheckRow("Truthful metrics", "passed", "batches of 7 and of 96: 0 apart", 0.123)
    facts = {
        "truestep": "0.1.0",
        "device": "cuda:0",
        "gpu": "NVIDIA H100 80GB HBM3",
        "on": "Linux-" + "6" * 50,
    }
    with shown.capture() as captured:
        shown.print(SelfCheckReport("cuda:0", facts, (row,)))
    lines = captured.get().splitlines()
    assert lines[0] == "truestep 0.1.0, device cuda:0, gpu NVIDIA H100 80GB HBM3,"
    assert lines[1] == "on Linux-" + "6" * 50
    assert max(map(len, lines)) < 80

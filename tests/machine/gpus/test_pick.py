# SPDX-License-Identifier: Apache-2.0
"""Picking with real processes: two never get one card, who waits gets the first that is free."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from truestep.machine.gpus.claims import CardClaims
from truestep.machine.gpus.pick import CardWaiter, CardWaitingLimits
from truestep.machine.gpus.read import GpuReport
from truestep.machine.gpus.records import Gpu
from truestep.machine.gpus.select import CardConditions

GIB = 2**30
BUSY = f"{140 * GIB},0,{139 * GIB}"
SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def start(machine, *arguments, **settings):
    settings = {"env": machine.environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    return subprocess.Popen([sys.executable, "-m", "truestep", "gpus", *arguments], text=True, **settings)


def uuid(index):
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


def test_pick_prints_uuids_in_order_of_preference(machine):
    machine.has(*[machine.card(temperature=degrees) for degrees in (60, 40, 50)])
    result = machine.run("gpus", "pick", "--count", "2", "--by", "coolest")
    assert (result.returncode, result.stdout.split()) == (0, [uuid(1), uuid(2)])


def test_many_callers_at_once_never_get_the_same_card(machine):
    machine.has(*[machine.card()] * 6)
    callers = [start(machine, "pick") for _ in range(8)]
    outputs = [(caller.communicate()[0].split(), caller.returncode) for caller in callers]
    picked = [card for cards, _ in outputs for card in cards]
    assert sorted(picked) == [uuid(index) for index in range(6)]
    assert sorted(status for _, status in outputs) == [0] * 6 + [4] * 2


def test_callers_that_want_two_each_get_two_or_none(machine):
    machine.has(*[machine.card()] * 3)
    callers = [start(machine, "pick", "--count", "2") for _ in range(4)]
    outputs = sorted(len(caller.communicate()[0].split()) for caller in callers)
    assert outputs == [0, 0, 0, 2]


def test_while_one_looks_and_takes_no_other_looks(tmp_path):
    """The two that would race are held at the very moment between reading and claiming."""
    cards = GpuReport(taken_at="", hostname="", gpus=(Gpu(index=0, uuid="GPU-0"), Gpu(index=1, uuid="GPU-1")))
    looking, other_looked, taken = threading.Event(), threading.Event(), []

    def slow_read():
        looking.set()
        assert not other_looked.wait(0.5)
        return cards

    def quick_read():
        other_looked.set()
        return cards

    def pick(read):
        claims = CardClaims(tmp_path / "claims")
        picker = CardWaiter(CardConditions(), claims, read=read, environment={})
        picker.pick(lambda uuid: taken.append((uuid, claims.hold(uuid))), CardWaitingLimits())

    first = threading.Thread(target=pick, args=(slow_read,))
    first.start()
    assert looking.wait(30)
    pick(quick_read)
    first.join()
    for _, descriptor in taken:
        os.close(descriptor)
    assert [uuid for uuid, _ in taken] == ["GPU-0", "GPU-1"]


def test_the_claim_of_run_lasts_as_long_as_its_command(machine):
    machine.has(machine.card())
    holder = start(machine, "run", "--", sys.executable, "-c", SLEEP)
    assert holder.stdout.readline() == "up\n"
    refused = machine.run("gpus", "pick")
    assert refused.returncode == 4
    assert f"process {holder.pid}" in refused.stderr
    holder.send_signal(signal.SIGTERM)
    holder.communicate()
    assert holder.returncode == -signal.SIGTERM
    assert machine.run("gpus", "pick").returncode == 0


def test_run_sets_the_variables_and_passes_the_status_on(machine):
    machine.has(machine.card(), machine.card())
    code = """
import os
print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER'])
raise SystemExit(7)
"""
    result = machine.run("gpus", "run", "--count", "2", "--", sys.executable, "-c", code)
    assert result.stdout.split() == [f"{uuid(0)},{uuid(1)}", "PCI_BUS_ID"]
    assert result.returncode == 7


def test_run_says_when_the_command_does_not_exist(machine):
    machine.has(machine.card())
    result = machine.run("gpus", "run", "--", "no-such-command")
    assert result.returncode == 127
    assert "no-such-command can't be started" in result.stderr


@pytest.mark.parametrize("how", ["memory", "claim"])
def test_a_waiting_caller_gets_the_first_card_that_frees_itself(machine, how):
    free, taken = machine.card(), machine.card(memory=BUSY)
    if how == "memory":
        machine.has(taken, taken, taken)
    else:
        machine.has(taken, free, taken)
        holder = start(machine, "run", "--", sys.executable, "-c", SLEEP)
        assert holder.stdout.readline() == "up\n"
    waiting = start(machine, "pick", "--free-memory", "20GiB", "--wait", "60s")
    time.sleep(0.5)
    assert waiting.poll() is None
    if how == "memory":
        machine.has(taken, free, taken)
    else:
        holder.terminate()
        holder.communicate()
    output, _ = waiting.communicate(timeout=60)
    assert (waiting.returncode, output.split()) == (0, [uuid(1)])


def test_an_unmet_wish_ends_with_4_and_the_nearest_miss(machine):
    machine.has(machine.card(memory=BUSY), machine.card(memory=f"{140 * GIB},0,{125 * GIB}"))
    result = machine.run("gpus", "pick", "--free-memory", "20GiB", "--wait", "0.2s")
    assert (result.returncode, result.stdout) == (4, "")
    assert "Nearest miss: card 1 (NVIDIA H200): 15 GiB free, 20 GiB wanted" in result.stderr


def test_without_a_card_it_ends_with_3_and_does_not_wait(machine):
    machine.has(init="!9")
    result = machine.run("gpus", "pick", "--wait", "1h", timeout=30)
    assert (result.returncode, result.stdout) == (3, "")
    assert "modprobe nvidia" in result.stderr


def test_a_scheduler_that_gave_cards_is_respected(machine):
    machine.has(*[machine.card()] * 4)
    given = {**machine.environment, "CUDA_VISIBLE_DEVICES": "2,3"}
    assert machine.run("gpus", "pick", "--count", "2", env=given).stdout.split() == [uuid(2), uuid(3)]
    assert machine.run("gpus", "pick", "--count", "3", env=given).returncode == 4
    nothing = machine.run("gpus", "pick", env={**given, "CUDA_VISIBLE_DEVICES": ""})
    assert (nothing.returncode, "admits none" in nothing.stderr) == (3, True)


def test_numbers_on_a_machine_of_different_cards_come_with_a_warning(machine):
    machine.has(machine.card(), machine.card(name="NVIDIA A2"))
    result = machine.run("gpus", "pick", env={**machine.environment, "CUDA_VISIBLE_DEVICES": "0"})
    assert "CUDA counts otherwise" in result.stderr


def pick_steadily(folder, *busy):
    """Pick a card whose readings are `busy` percent in turn, the last for ever."""
    readings, taken = iter(busy), []
    last = busy[-1]
    reports = (
        GpuReport(
            taken_at="",
            hostname="",
            gpus=(Gpu(index=0, uuid="GPU-0", utilization_percent=next(readings, last)),),
        )
        for _ in iter(int, 1)
    )
    picker = CardWaiter(
        CardConditions(max_utilization_percent=50),
        CardClaims(folder),
        read=lambda: next(reports),
        environment={},
    )
    before = time.monotonic()
    choice = picker.pick(
        taken.append, CardWaitingLimits(steady_seconds=0.2, wait_seconds=0.5, every_seconds=0.01)
    )
    return choice, taken, time.monotonic() - before


def test_a_card_between_two_epochs_is_not_steady(tmp_path):
    choice, taken, _ = pick_steadily(tmp_path / "claims", *[0, 97] * 1000)
    assert (choice.met, taken) == (False, [])


def test_a_steady_card_is_picked_once_it_was_steady_for_long_enough(tmp_path):
    choice, taken, seconds = pick_steadily(tmp_path / "claims", 0, 97, 0)
    assert (choice.uuids, taken) == (("GPU-0",), ["GPU-0"])
    assert seconds >= 0.2


def test_json_knows_no_infinity(machine):
    machine.has(machine.card(), {"handle": "!15", "uuid": "GPU-x"}, machine.card(compute_mode=2))
    document = json.loads(
        machine.run("gpus", "pick", "--only", "0", "--json").stdout, parse_constant=pytest.fail
    )
    assert len(document["refused"]) == 1


def test_the_command_is_ended_by_a_closed_pipe(machine):
    machine.has(machine.card())
    command = f"{sys.executable} -m truestep gpus run -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command],
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.stdout.split(), result.stderr) == (["y", "141"], "")


def test_json_is_one_document_with_the_refused_cards(machine):
    machine.has(machine.card(), machine.card(memory=BUSY))
    document = json.loads(machine.run("gpus", "pick", "--free-memory", "1GiB", "--json").stdout)
    assert document["uuids"] == [uuid(0)]
    assert "1 GiB free" not in str(document["picked"])
    unmet = machine.run("gpus", "pick", "--free-memory", "1TiB", "--json")
    assert unmet.returncode == 4
    assert "Nearest miss" in json.loads(unmet.stdout)["says"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--free-memory", "much"], "20GiB"),
        (["--wait", "later"], "1h30m"),
        (["--by", "price"], "coolest"),
        (["--count", "0"], "1 or more"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(machine, arguments, said):
    machine.has(machine.card())
    result = machine.run("gpus", "pick", *arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert not (machine.folder / "locks" / f"{uuid(0)}.claim").exists()

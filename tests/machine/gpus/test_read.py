# SPDX-License-Identifier: Apache-2.0
"""Cards of every kind, driver and state, read through the real binding."""

import dataclasses
import json
import os
import subprocess
import sys

import psutil
import pytest

from truestep.machine.gpus.processes import has_card_open, identify_process, is_in_host_pid_namespace
from truestep.machine.gpus.read import read_gpus
from truestep.machine.gpus.records import Gpu, GpuProcess

GIB = 2**30
INDEX_ONLY = {"index", "mig_instances", "error", "unavailable"}
NULLABLE = [field.name for field in dataclasses.fields(Gpu) if field.name not in INDEX_ONLY]


def test_every_field_of_a_healthy_card(in_process):
    machine = in_process()
    machine.has(machine.card(fan=41, display=1, compute=f"{os.getpid()}:{3 * GIB}"))
    (card,) = read_gpus().gpus
    expected = {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-00000000-1111-2222-3333-444444444444",
        "bus_id": "00000000:18:00.0",
        "compute_capability": "9.0",
        "fan_percent": 41,
        "temperature_celsius": 34,
        "temperature_slowdown_celsius": 87,
        "performance_state": 0,
        "persistence": True,
        "power_watts": 77.123,
        "power_limit_watts": 700.0,
        "display_active": True,
        "memory_total_bytes": 140 * GIB,
        "memory_reserved_bytes": GIB // 2,
        "memory_used_bytes": 20 * GIB,
        "memory_free_bytes": 120 * GIB - GIB // 2,
        "utilization_percent": 12,
        "memory_utilization_percent": 3,
        "ecc_enabled": True,
        "ecc_uncorrected_errors": 0,
        "compute_mode": "default",
        "mig_enabled": False,
        "error": None,
    }
    assert expected == {name: getattr(card, name) for name in expected}
    assert dict(card.unavailable) == {}


def test_the_report_knows_driver_cuda_and_host(in_process):
    machine = in_process()
    report = machine.has(machine.card()) and read_gpus()
    assert (report.driver_version, report.cuda_version, report.error) == ("580.65.06", "13.0", None)


@pytest.mark.parametrize("number", [1, 8])
def test_as_many_cards_as_there_are(in_process, number):
    machine = in_process()
    machine.has(*[machine.card()] * number)
    assert list(range(number)) == [card.index for card in read_gpus().gpus]


def test_a_card_that_answers_nothing_is_all_none_with_reasons(in_process):
    in_process().has({"uuid": "!3", "bus_id": "!3"})
    (card,) = read_gpus().gpus
    assert [None] * len(NULLABLE) == [getattr(card, name) for name in NULLABLE]
    assert card.error is None
    assert set(NULLABLE) == set(card.unavailable)
    assert {"Not Supported"} == set(card.unavailable.values())


@pytest.mark.parametrize("field", ["temperature", "power", "memory", "compute", "mig", "uuid", "name"])
def test_one_unsupported_field_leaves_the_others(in_process, field):
    machine = in_process()
    machine.has(machine.card(**{field: "!3"}))
    (card,) = read_gpus().gpus
    assert card.utilization_percent == 12
    assert card.performance_state == 0


@pytest.mark.parametrize(("code", "reason"), [(15, "GPU is lost"), (16, "GPU requires restart")])
def test_a_lost_card_is_named_and_the_others_are_read(in_process, code, reason):
    machine = in_process()
    machine.has(machine.card(), {"handle": f"!{code}"}, machine.card(temperature=f"!{code}"))
    sound, gone, going = read_gpus().gpus
    assert (None, reason, reason) == (sound.error, gone.error, going.error)
    assert sound.temperature_celsius == 34


def test_access_denied_to_one_card_and_to_the_processes(in_process):
    machine = in_process()
    machine.has({"handle": "!4"}, machine.card(compute="!4", graphics="!4", mps="!4"))
    closed, card = read_gpus().gpus
    assert closed.error == "Insufficient Permissions"
    assert (card.processes, card.unavailable["processes"]) == (None, "Insufficient Permissions")


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("!9", "modprobe nvidia"),
        ("!18", "restart the machine"),
        ("!4", "/dev/nvidia"),
        ("!999", "Unknown Error"),
    ],
)
def test_a_driver_that_does_not_start_is_a_report_with_the_reason(in_process, init, said):
    in_process().has(init=init)
    report = read_gpus()
    assert report.gpus == ()
    assert said in report.error


def test_no_library_at_all_is_a_report_with_the_reason(machine, tmp_path):
    empty = {**machine.environment, "LD_LIBRARY_PATH": str(tmp_path)}
    code = "import json, truestep; print(json.dumps(truestep.gpus().to_dict()))"
    result = machine.python(code, env=empty)
    if 'driver_version": "' in result.stdout:
        pytest.skip("this machine has a driver of its own")
    assert "libnvidia-ml.so.1 is not there" in json.loads(result.stdout)["error"]


def test_a_driver_without_cards_says_so(in_process):
    in_process().has()
    report = read_gpus()
    assert "no card" in report.error
    assert report.driver_version == "580.65.06"


@pytest.mark.parametrize("driver", ["470", "510", "535043", "550", "580"])
def test_drivers_of_all_ages_give_the_same_card(in_process, driver):
    machine = in_process(driver)
    version = "535.43.02" if driver == "535043" else f"{driver}.42.01"
    pid = os.getpid()
    machine.has(machine.card(compute=f"{pid}:{GIB},4000000:{2 * GIB},4000001:-1"), driver=version)
    (card,) = read_gpus().gpus
    assert (card.temperature_celsius, card.memory_total_bytes) == (34, 140 * GIB)
    assert {pid: GIB, 4000000: 2 * GIB, 4000001: None} == {p.pid: p.memory_used_bytes for p in card.processes}


def test_used_memory_includes_the_reserved_part_only_on_old_drivers(in_process):
    machine = in_process("470")
    machine.has(machine.card(), driver="470.42.01")
    (card,) = read_gpus().gpus
    assert (card.memory_used_bytes, card.memory_reserved_bytes) == (20 * GIB + GIB // 2, None)


def test_absurd_process_numbers_are_refused_not_shown(in_process):
    machine = in_process()
    machine.has(machine.card(compute=f"4294967295:{GIB},{os.getpid()}:{GIB}", graphics="!3", mps="!3"))
    (card,) = read_gpus().gpus
    assert card.processes is None
    assert "make no sense" in card.unavailable["processes"]


def test_a_driver_with_long_structures_that_hides_its_version_shows_no_absurd_process(in_process):
    machine = in_process("535043")
    machine.has(machine.card(compute=f"4000000:{GIB},4000001:{GIB},4000002:{GIB}"), driver="!3")
    (card,) = read_gpus().gpus
    assert {4000000, 4000001, 4000002} == {process.pid for process in card.processes}


def test_a_process_in_two_lists_is_one_process(in_process):
    machine = in_process()
    machine.has(machine.card(compute=f"{os.getpid()}:{GIB}", graphics=f"{os.getpid()}:{2 * GIB}"))
    (process,) = read_gpus().gpus[0].processes
    assert (process.kind, process.memory_used_bytes) == ("compute+graphics", 2 * GIB)
    assert process.user == psutil.Process().username()
    assert "pytest" in process.command or "execnet" in process.command or "python" in process.command
    assert process.started_at.endswith("+00:00")


def test_a_process_that_is_gone_keeps_its_number(in_process):
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    machine = in_process()
    machine.has(machine.card(compute=f"{child.pid}:{GIB}"))
    assert (GpuProcess(pid=child.pid, kind="compute", memory_used_bytes=GIB),) == read_gpus().gpus[
        0
    ].processes


def test_mig_instances_are_devices_of_their_own(in_process):
    machine = in_process()
    machine.has(
        machine.card(mig=1, max_mig=7, utilization=None),
        **{
            "mig0.uuid": "MIG-aaaa",
            "mig0.name": "NVIDIA H200 MIG 1g.18gb",
            "mig0.gpu_instance": 9,
            "mig0.compute_instance": 0,
            "mig0.memory": f"{16 * GIB},0,{GIB}",
            "mig2.uuid": "MIG-bbbb",
        },
    )
    (card,) = read_gpus().gpus
    first, second = card.mig_instances
    assert card.mig_enabled
    assert card.utilization_percent is None
    assert (first.uuid, first.gpu_instance_id, first.memory_free_bytes) == ("MIG-aaaa", 9, 15 * GIB)
    assert (second.uuid, second.memory_total_bytes) == ("MIG-bbbb", None)


def test_a_name_that_is_no_text_is_none_with_the_reason(in_process):
    machine = in_process()
    machine.has(machine.card(name="NVIDIA H200"))
    broken = machine.answers.read_bytes().replace(b"NVIDIA H200", b"NVIDIA \xff\xfe")
    machine.answers.write_bytes(broken)
    (card,) = read_gpus().gpus
    assert (card.name, card.unavailable["name"]) == (None, "the driver's text is not UTF-8")


def test_in_a_container_a_stranger_with_the_same_number_is_not_named():
    process = GpuProcess(pid=os.getpid(), kind="compute")
    assert process == identify_process(process, own_namespace=False)
    assert identify_process(process, own_namespace=True).user is not None


def test_in_a_container_a_process_with_the_card_open_is_named(tmp_path):
    descriptors = tmp_path / str(os.getpid()) / "fd"
    descriptors.mkdir(parents=True)
    (descriptors / "3").symlink_to("/dev/nvidia0")
    process = GpuProcess(pid=os.getpid(), kind="compute")
    assert has_card_open(os.getpid(), tmp_path)
    assert identify_process(process, own_namespace=False, proc=tmp_path).user == psutil.Process().username()


def test_the_namespace_is_read_from_the_kernel(tmp_path):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532201]")
    assert not is_in_host_pid_namespace(tmp_path)
    assert is_in_host_pid_namespace(tmp_path / "nowhere")


def test_the_document_is_json_and_survives_a_round_trip(in_process):
    machine = in_process()
    machine.has(machine.card(compute=f"{os.getpid()}:{GIB}"), {"handle": "!15"})
    document = read_gpus().to_dict()
    assert document == json.loads(json.dumps(document))
    assert document["schema_version"] == 1

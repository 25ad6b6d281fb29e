# SPDX-License-Identifier: Apache-2.0
"""`truestep gpus` as a user runs it, on machines of the stand-in."""

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import time

import pytest

GIB = 2**30
FIELDS_OF_NVIDIA_SMI = """
NVIDIA_H200 GPU-00000000-1111-2222-3333-444444444444 0000:18:00.0 41% 34°C P0 77 700 12% on off
shared
"""


def test_the_table_shows_all_that_nvidia_smi_shows(machine):
    machine.has(machine.card(fan=41, name="NVIDIA_H200", compute=f"{os.getpid()}:{3 * GIB}", ecc_errors=3))
    for columns in ("80", "200"):
        words = machine.run("gpus", env={**machine.environment, "COLUMNS": columns}).stdout
        for field in FIELDS_OF_NVIDIA_SMI.split():
            assert field in words, (columns, field)
        assert re.search(rf"{os.getpid()}\s+\w+\s+3 GiB\s+20\d\d-", words)
        assert "20 / 140 GiB" in words
        assert "driver 580.65.06, CUDA up to 13.0" in words


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_no_line_is_wider_than_the_screen(machine, columns):
    wide = machine.card(
        memory=f"{2**40},0,{2**40 - 1}",
        fan=100,
        power=1199999,
        power_limit=1200000,
        name="NVIDIA " + "X" * 60,
    )
    machine.has(*[wide] * 10)
    result = machine.run("gpus", env={**machine.environment, "COLUMNS": str(columns)})
    assert max(map(len, result.stdout.splitlines())) <= columns
    assert result.stdout.count("GPU-") == 10


def test_json_is_one_document(machine):
    machine.has(machine.card(), {"handle": "!15"})
    document = json.loads(machine.run("gpus", "--json").stdout)
    assert [card["error"] for card in document["gpus"]] == [None, "GPU is lost"]
    assert document["gpus"][0]["memory_used_bytes"] == 20 * GIB


def test_without_a_card_the_document_has_the_reason_and_the_status_is_3(machine):
    machine.has(init="!9")
    result = machine.run("gpus", "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, document["gpus"]) == (3, [])
    assert "modprobe nvidia" in document["error"]
    assert machine.run("gpus").returncode == 3


def test_formats_for_loops_and_as_of_nvidia_smi(machine):
    machine.has(
        machine.card(),
        machine.card(mig=1, max_mig=2),
        **{"mig0.uuid": "MIG-aa", "mig0.name": "NVIDIA H200 MIG 1g.18gb"},
    )
    assert machine.run("gpus", "--format", "index").stdout == "0\n1\n"
    expected = (
        "GPU 0: NVIDIA H200 (UUID: GPU-00000000-1111-2222-3333-444444444444)\n"
        "GPU 1: NVIDIA H200 (UUID: GPU-00000001-1111-2222-3333-444444444444)\n"
        "  MIG 1g.18gb        Device  0: (UUID: MIG-aa)\n"
    )
    assert expected == machine.run("gpus", "--format", "uuid").stdout
    machine.has(init="!9")
    empty = machine.run("gpus", "--format", "index")
    assert (empty.returncode, empty.stdout) == (3, "")


def test_the_legend_explains_every_column_that_the_table_has(machine):
    machine.has(machine.card())
    wide = {**machine.environment, "COLUMNS": "200"}
    titles = machine.run("gpus", env=wide).stdout.splitlines()[2].split()
    legend = machine.run("gpus", "--legend", env=wide).stdout
    assert len(titles) == 15
    for title in titles:
        assert re.search(rf"^{re.escape(title)} ", legend, re.MULTILINE), title
    assert "Memory and utilisation are different things" in legend
    document = json.loads(machine.run("gpus", "--legend", "--json").stdout)
    assert [column["title"] for column in document["columns"]] == titles
    card = json.loads(machine.run("gpus", "--json").stdout)["gpus"][0]
    for column in document["columns"]:
        assert set(column["fields"].split(", ")) <= set(card)


def test_samples_are_lines_of_json(machine, tmp_path):
    machine.has(machine.card())
    path = tmp_path / "samples.jsonl"
    result = machine.run("gpus", "--sample", str(path), "--every", "0.1s", "--readings", "3")
    assert (result.returncode, result.stdout) == (0, "")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["gpus"][0]["temperature_celsius"] for line in lines] == [34] * 3


def test_sampling_ends_at_ctrl_c_with_whole_lines(machine, tmp_path):
    machine.has(machine.card())
    path = tmp_path / "samples.jsonl"
    command = [sys.executable, "-m", "truestep", "gpus", "--sample", str(path), "--every", "0.05s"]
    process = subprocess.Popen(
        command, env=machine.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().count("\n") >= 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"")
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_watch_off_a_terminal_prints_one_reading_after_the_other(machine):
    machine.has(machine.card())
    result = machine.run("gpus", "--watch", "--every", "0.05s", "--readings", "2")
    assert result.stdout.count("driver 580.65.06") == 2
    assert "\x1b" not in result.stdout


def test_who_has_seen_enough_of_a_watch_ends_it_without_a_word(machine):
    machine.has(machine.card())
    command = [sys.executable, "-m", "truestep", "gpus", "--watch", "--every", "0.05s"]
    environment = {key: value for key, value in machine.environment.items() if key != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline()  # as `head -1` does, before 8 KB are there
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1


def on_a_terminal(machine, *arguments, seconds=30.0, **variables):
    """Run on a pseudo-terminal and return what it was sent."""
    master, slave = pty.openpty()
    environment = {**machine.environment, "TERM": "xterm-256color", **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "truestep", "gpus", *arguments],
        stdout=slave,
        stderr=slave,
        stdin=slave,
        env=environment,
    )
    os.close(slave)
    output, deadline = b"", time.monotonic() + seconds
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.1)
        try:
            chunk = os.read(master, 65536) if ready else b""
        except OSError:
            break
        output += chunk
        if not ready and process.poll() is not None:
            break
    os.close(master)
    process.wait(timeout=30)
    return output.decode()


def test_on_a_terminal_there_are_colours_unless_they_are_unwanted(machine):
    machine.has(machine.card(temperature=86))
    colour = re.compile(r"\x1b\[[\d;]*3[1-7]m")
    assert colour.search(on_a_terminal(machine))
    assert not colour.search(on_a_terminal(machine, NO_COLOR="1"))
    assert not colour.search(on_a_terminal(machine, NO_COLOR="1", FORCE_COLOR="1"))


def test_watch_on_a_terminal_draws_in_place_and_leaves_the_screen_as_it_was(machine):
    machine.has(machine.card())
    output = on_a_terminal(machine, "--watch", "--every", "0.05s", "--readings", "3")
    assert output.index("\x1b[?1049h") < output.index("driver 580") < output.index("\x1b[?1049l")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "xml"],
        ["--watch", "--json"],
        ["--watch", "--every", "0s"],
        ["--watch", "--readings", "0"],
        ["--sample", "no/such/folder/x"],
        ["--sample", "x", "--json"],
    ],
)
def test_options_that_make_no_sense_are_usage_errors(machine, arguments, tmp_path):
    machine.has(machine.card())
    assert machine.run("gpus", *arguments, cwd=tmp_path).returncode == 2


@pytest.fixture
def nvidia_smi(machine, tmp_path):
    """Put a program of that name on the PATH that writes down how it was called."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexit ${{STATUS:-0}}\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return {**machine.environment, "PATH": f"{tool.parent}:{os.environ['PATH']}"}


UUID = "GPU-00000001-1111-2222-3333-444444444444"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["persistence", "on", "1"], f"nvidia-smi -i {UUID} -pm 1"),
        (["persistence", "off", UUID], f"nvidia-smi -i {UUID} -pm 0"),
        (["reset", "1"], f"nvidia-smi --gpu-reset -i {UUID}"),
    ],
)
def test_administration_shows_the_exact_command_and_runs_it_only_when_told(
    machine, nvidia_smi, tmp_path, arguments, command
):
    machine.has(machine.card(), machine.card())
    shown = machine.run("gpus", *arguments, env=nvidia_smi)
    assert (shown.returncode, shown.stdout) == (0, f"{command}\n")
    assert not (tmp_path / "calls").exists()
    if os.geteuid() != 0:
        pytest.skip("running it needs root")
    assert machine.run("gpus", *arguments, "--yes", env=nvidia_smi).returncode == 0
    assert f"nvidia-smi {(tmp_path / 'calls').read_text()}" == f"{command}\n"
    assert machine.run("gpus", *arguments, "--yes", env={**nvidia_smi, "STATUS": "5"}).returncode == 5


def test_administration_without_names_means_every_card(machine, nvidia_smi):
    machine.has(machine.card(), machine.card())
    assert machine.run("gpus", "reset", env=nvidia_smi).stdout.count("--gpu-reset") == 2


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"compute": "4000000:1"}, "in use by process 4000000"),
        ({"compute": "!4", "graphics": "!4"}, "can't be told"),
    ],
)
def test_a_card_in_use_or_unknown_is_left_alone(machine, nvidia_smi, tmp_path, card, said):
    if os.geteuid() != 0:
        pytest.skip("without root it is refused before")
    machine.has(machine.card(), machine.card(**card))
    result = machine.run("gpus", "reset", "--yes", env=nvidia_smi)
    assert result.returncode == 1
    assert said in result.stderr
    assert not (tmp_path / "calls").exists()


def test_an_unknown_card_is_a_usage_error_that_lists_what_there_is(machine):
    machine.has(machine.card())
    result = machine.run("gpus", "reset", "7")
    assert result.returncode == 2
    assert "There are: 0, GPU-00000000" in result.stderr


def test_a_command_line_that_is_no_text_is_no_obstacle(machine, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", b"\xff\xfe"])
    try:
        machine.has(machine.card(compute=f"{child.pid}:{GIB}"))
        wide = {**machine.environment, "COLUMNS": "200"}
        assert "time.sleep" in machine.run("gpus", env=wide).stdout
        (process,) = json.loads(machine.run("gpus", "--json").stdout)["gpus"][0]["processes"]
        assert "time.sleep" in process["command"]
        path = tmp_path / "samples.jsonl"
        assert machine.run("gpus", "--sample", str(path), "--readings", "1").returncode == 0
        assert "time.sleep" in path.read_text()
    finally:
        child.kill()
        child.wait()

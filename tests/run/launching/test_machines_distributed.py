# SPDX-License-Identifier: Apache-2.0
"""Two machines, as network namespaces with a cable between them, each with a name and a directory of its own; for root only."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.ranks import environment

PROGRAM = Path(__file__).parents[1] / "programs" / "ranks.py"
CAN_MAKE_MACHINES = os.geteuid() == 0 and shutil.which("ip") and shutil.which("unshare")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAN_MAKE_MACHINES, reason="network namespaces need root, ip and unshare"),
]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Machines:
    """Two of them; what was started there ends with `end`."""

    def __init__(self, folder):
        self.folder, self.started = folder, []
        number = os.getpid() % 250
        self.names = [f"ts{number}a", f"ts{number}b"]
        self.addresses = [f"10.77.{number}.1", f"10.77.{number}.2"]

    def begin(self):
        for name in self.names:
            ip("netns", "add", name)
            (self.folder / name).mkdir()
        ip(
            "link",
            "add",
            "cable",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            self.names[1],
        )
        for name, address in zip(self.names, self.addresses, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")

    def end(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=30)

    def launch(self, number, *words):
        """Start `truestep launch` on one of the machines, in its directory."""
        name = self.names[number]
        command = [
            *(
                "ip",
                "netns",
                "exec",
                name,
                "unshare",
                "--uts",
                "sh",
                "-c",
                'echo "$0" > /proc/sys/kernel/hostname; exec "$@"',
                name,
            ),
            *(
                sys.executable,
                "-c",
                "from truestep.cli.main import main; main()",
                "launch",
                "--processes",
                "1",
                "--nodes",
                "2",
            ),
            *(
                "--node-rank",
                str(number),
                "--rendezvous",
                f"{self.addresses[0]}:29400",
                "--grace-seconds",
                "3",
            ),
            *map(str, words),
        ]
        log = (self.folder / f"{name}-{len(self.started)}.log").open("w")
        process = subprocess.Popen(
            command,
            cwd=self.folder / name,
            env=environment(TIMEOUT=20),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        self.started.append(process)
        return process

    def cable(self, state):
        """Pull the cable out ("down"), or put it in again ("up")."""
        ip("-n", self.names[1], "link", "set", "cable", state)

    def slow(self):
        """Let one megabyte a second through the cable."""
        for name in self.names:
            words = ("dev", "cable", "root", "tbf", "rate", "8mbit", "burst", "16kb", "latency", "200ms")
            subprocess.run(["tc", "-n", name, "qdisc", "replace", *words], check=True, timeout=30)

    def fast(self):
        """Let everything through it again."""
        for name in self.names:
            subprocess.run(
                ["tc", "-n", name, "qdisc", "delete", "dev", "cable", "root"], check=True, timeout=30
            )

    def said(self):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


@pytest.fixture
def machines(tmp_path):
    found = Machines(tmp_path)
    try:
        found.begin()
        yield found
    finally:
        found.end()


def bits(text):
    """Return what rank 0 ended with."""
    return re.findall(r"ends with ([0-9a-f]{64})", text)


def train(machines, *words):
    """Train on both machines, without a shared disk."""
    return [machines.launch(number, "--restarts", 3, PROGRAM, "trains", ".", *words) for number in (0, 1)]


def test_two_machines_train_as_two_processes_of_one(machines, tmp_path):
    both = train(machines)
    assert [process.wait(timeout=300) for process in both] == [0, 0], machines.said()
    here = subprocess.run(
        [
            sys.executable,
            "-c",
            "from truestep.cli.main import main; main()",
            "launch",
            "-n",
            "2",
            PROGRAM,
            "trains",
            ".",
        ],
        cwd=tmp_path,
        env=environment(TIMEOUT=60),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert set(bits(machines.said())) == set(bits(here.stdout)) != set()
    # the second machine's disk has nothing of the run but the log of its process
    assert not list((tmp_path / machines.names[1]).rglob("checkpoints"))


def undisturbed(machines):
    """Train with nothing happening; return what rank 0 ends with, and leave no run behind."""
    calm = train(machines)
    assert [process.wait(timeout=300) for process in calm] == [0, 0], machines.said()
    for name in machines.names:
        shutil.rmtree(machines.folder / name / "run", ignore_errors=True)
    return set(bits(machines.said()))


def wait_until_it_happens(machines):
    """Return when the second machine's rank has come to where it fails."""
    failed = machines.folder / machines.names[1] / "failed"
    until = time.monotonic() + 200
    while not failed.exists() and time.monotonic() < until:
        time.sleep(0.2)
    assert failed.exists(), machines.said()


def test_a_machine_that_is_lost_and_comes_back_changes_nothing(machines):
    expected = undisturbed(machines)
    first, second = train(machines, "stop", 9, 1)
    wait_until_it_happens(machines)
    os.killpg(second.pid, signal.SIGKILL)
    second.wait(timeout=30)
    again = machines.launch(1, "--restarts", 3, PROGRAM, "trains", ".", "stop", 9, 1)
    assert [process.wait(timeout=400) for process in (first, again)] == [0, 0], machines.said()
    assert set(bits(machines.said())) == expected != set()


@pytest.mark.parametrize(
    "seconds", [4, 45], ids=["for a moment", "for longer than ranks wait for each other"]
)
def test_a_cable_that_is_cut_and_restored_changes_nothing(machines, seconds):
    expected = undisturbed(machines)
    both = train(machines, "wait", 9, 1)
    wait_until_it_happens(machines)
    machines.cable("down")
    time.sleep(seconds)
    machines.cable("up")
    statuses = [process.wait(timeout=400) for process in both]
    if (
        seconds > 20 and statuses[1]
    ):  # its launcher gave up, too: whoever looks after the machine starts it again
        both = train(machines, "wait", 9, 1)
        statuses = [process.wait(timeout=400) for process in both]
    assert statuses == [0, 0], machines.said()
    assert set(bits(machines.said())) == expected != set()
    assert seconds > 20 or "RankError" not in machines.said()  # a moment is nothing but a wait


@pytest.mark.skipif(not shutil.which("tc"), reason="slow cables need tc")
def test_a_cable_that_is_cut_while_all_wait_in_one_meeting_ends_it_within_the_time_out(machines):
    """What is under way would be waited for until TCP gives up, a quarter of an hour later."""
    expected = undisturbed(machines)
    machines.slow()
    both = train(machines, "send", 9, -1)
    wait_until_it_happens(machines)
    time.sleep(4)  # of 16: both have said that they wait for it
    machines.cable("down")
    time.sleep(45)
    in_time = machines.said()
    machines.cable("up")
    machines.fast()
    statuses = [process.wait(timeout=400) for process in both]
    if statuses[1]:
        statuses = [process.wait(timeout=400) for process in train(machines, "send", 9, -1)]
    assert statuses == [0, 0], machines.said()
    assert "RankError: This is rank 0" in in_time
    assert re.search(r"rank 1 \S+ \d+ on \S+ had come to ts.gather, and has shown no sign of life", in_time)
    assert set(bits(machines.said())) == expected != set()

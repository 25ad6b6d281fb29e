# SPDX-License-Identifier: Apache-2.0
"""A machine with any cards: the NVML stand-in, built once a session for each age of driver."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import warm

SOURCE = Path(__file__).parent / "gpus" / "nvml_stand_in.c"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
GIB = 2**30
NVML = "libnvidia-ml.so.1"

# `truestep` where the linker is too late to read LD_LIBRARY_PATH: a library that is loaded is found by its name
COMMAND = f"""
import ctypes, pathlib, runpy, sys
here = sys.argv.index("--")
for folder in sys.argv[1:here]:
    for library in pathlib.Path(folder).glob("{NVML}"):
        ctypes.CDLL(library)
sys.argv = ["truestep", *sys.argv[here + 1:]]
runpy.run_module("truestep", run_name="__main__", alter_sys=True)
"""

# one healthy card, as the lines of the stand-in's file
H200 = {
    "name": "NVIDIA H200",
    "capability": "9,0",
    "temperature": 34,
    "slowdown": 87,
    "state": 0,
    "persistence": 1,
    "power": 77123,
    "power_limit": 700000,
    "display": 0,
    "compute_mode": 0,
    "ecc": 1,
    "ecc_errors": 0,
    "mig": 0,
    "utilization": "12,3",
    "memory": f"{140 * GIB},{GIB // 2},{20 * GIB}",
    "compute": "",
    "graphics": "",
}


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


@dataclass
class Machine:
    """Cards that a child process, or this process, sees through the real binding."""

    folder: Path
    library: Path
    answers: Path = field(init=False)

    @staticmethod
    def card(**changes) -> dict:
        """Return a healthy card with some fields changed; None takes a field away (not supported)."""
        return {name: value for name, value in {**H200, **changes}.items() if value is not None}

    def __post_init__(self):
        self.answers = self.folder / "answers.txt"
        self.has()

    def has(self, *cards: dict, **system) -> "Machine":
        """Say which cards there are, each a dict of the stand-in's fields, and what the system answers."""
        lines = {"driver": "580.65.06", "cuda": 13000, "cards": len(cards), **system}
        for index, card in enumerate(cards):
            card = {"uuid": uuid(index), "bus_id": f"00000000:{0x18 + index * 0x11:02X}:00.0", **card}
            lines |= {f"card{index}.{name}": value for name, value in card.items()}
        fresh = self.answers.with_suffix(".new")
        fresh.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))
        fresh.replace(self.answers)
        return self

    @property
    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        if "PYTHONPATH" in inherited:  # children start in other folders
            places = inherited["PYTHONPATH"].split(os.pathsep)
            inherited["PYTHONPATH"] = os.pathsep.join(str(Path(place).resolve()) for place in places)
        return {
            **inherited,
            "LD_LIBRARY_PATH": str(self.library.parent),
            "NVML_STAND_IN": str(self.answers),
            "TRUESTEP_GPU_LOCKS": str(self.folder / "locks"),
            "COLUMNS": "80",
        }

    def run(self, *arguments: str, **settings) -> subprocess.CompletedProcess[str]:
        """Run `truestep ARGUMENTS` on this machine, forked from a process that never looked for its library."""
        settings = {"env": self.environment, "timeout": 60} | settings
        folders = settings["env"]["LD_LIBRARY_PATH"].split(os.pathsep)
        return warm.run("-c", COMMAND, *folders, "--", *arguments, **settings)

    def python(self, code: str, **settings) -> subprocess.CompletedProcess[str]:
        """Run Python code on this machine."""
        return self._child(["-c", code], settings)

    def _child(self, arguments, settings):
        settings = {"env": self.environment, "timeout": 60} | settings
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


@pytest.fixture(scope="session")
def build_stand_in(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("the NVML stand-in needs a C compiler, and there is no cc, gcc or clang here")
    if sys.platform != "linux":
        pytest.skip("the NVML stand-in is a Linux library")
    built: dict[str, Path] = {}

    def build(driver: str = "580") -> Path:
        if driver not in built:
            folder = tmp_path_factory.mktemp(f"driver{driver}")
            library = folder / NVML
            flags = [
                "-shared",
                "-fPIC",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                f"-DDRIVER={driver}",
                f"-Wl,-soname,{NVML}",
            ]
            subprocess.run([COMPILER, *flags, "-o", library, SOURCE], check=True)
            built[driver] = library
        return built[driver]

    return build


@pytest.fixture
def machine(build_stand_in, tmp_path) -> Machine:
    """A machine whose cards a child process sees."""
    return Machine(tmp_path, build_stand_in())


@pytest.fixture
def in_process(build_stand_in, tmp_path, monkeypatch):
    """Let the real binding of this very process talk to a stand-in of some age of driver."""
    import ctypes

    import pynvml

    def install(driver: str = "580") -> Machine:
        machine = Machine(tmp_path, build_stand_in(driver))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(machine.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setenv("NVML_STAND_IN", str(machine.answers))
        return machine

    return install

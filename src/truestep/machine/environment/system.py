# SPDX-License-Identifier: Apache-2.0
"""The machine below Python: system, processors, memory, disks, compilers, limits of this process."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from truestep.core.atomic_files import is_visible_folder
from truestep.core.os_specific import soft_limit

_INSTRUCTION_SETS = ("sse4_2", "avx", "avx2", "avx512f", "avx512_bf16", "amx_bf16", "neon", "asimd", "sve")
_COMPILERS = {  # what stands before the version, in the first line
    "gcc": r"(?m)\Agcc .*?(\S+)$",
    "g++": r"(?m)\Ag\+\+ .*?(\S+)$",
    "clang": r"\A.*clang version (\S+)",
    "cmake": r"\A.*version (\S+)",
}


def _is_virtual_environment() -> bool:
    return sys.prefix != sys.base_prefix or is_visible_folder(Path(sys.prefix, "conda-meta"))


def _activated_environment_path() -> str | None:
    return os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")


@dataclass(frozen=True, kw_only=True)
class PythonInstallation:
    """The interpreter that runs this, and the environment it belongs to."""

    version: str = field(default_factory=platform.python_version)
    implementation: str = field(default_factory=platform.python_implementation)
    executable: str = field(default_factory=lambda: sys.executable)
    prefix: str = field(default_factory=lambda: sys.prefix)
    virtual: bool = field(default_factory=_is_virtual_environment)
    active_environment: str | None = field(
        default_factory=_activated_environment_path
    )  # what the shell believes


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The processors, and how many of them this process may use."""

    model: str | None
    architecture: str
    cores: int | None
    threads: int | None
    usable: int
    instruction_sets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DiskSpace:
    """A file system that training writes to."""

    purpose: str
    path: str
    file_system: str | None
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True)
class MainMemory:
    """Main memory, and the shared part of it through which data workers pass their batches."""

    total_bytes: int
    available_bytes: int
    swap_bytes: int
    shared_total_bytes: int | None
    shared_free_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """What this process may hold (ulimit); None is no limit."""

    open_files: int | None = None
    processes: int | None = None
    locked_memory_bytes: int | None = None


def _system_name() -> str:
    with suppress(OSError, AttributeError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{platform.system()} {platform.release()}"


def program_version_by_pattern(program: str | Path, pattern: str) -> str | None:
    """Return what a pattern finds in what a program says of its version; None where it is not there, fails or hangs."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
        match = re.search(pattern, done.stdout.strip()) if done.returncode == 0 else None
        return match[1] if match else None
    return None


def _libc_version() -> str | None:
    return "-".join(platform.libc_ver()) if platform.libc_ver()[0] else None


def _compiler_versions() -> dict[str, str]:
    found = ((name, program_version_by_pattern(name, pattern)) for name, pattern in _COMPILERS.items())
    return {name: version for name, version in found if version}


@dataclass(frozen=True, kw_only=True)
class OperatingSystem:
    """The operating system and its build tools, which are asked for their versions."""

    name: str = field(default_factory=_system_name)
    kernel: str = field(default_factory=platform.release)
    libc: str | None = field(default_factory=_libc_version)
    compilers: Mapping[str, str] = field(default_factory=_compiler_versions)
    host: str = field(default_factory=platform.node)


def read_processor(usable: int) -> Processor:
    """Return the processors' facts."""
    import psutil

    text = ""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    present = set(flags[1].split()) if flags else set()
    return Processor(
        model=model[1] if model else platform.processor() or None,
        architecture=platform.machine(),
        cores=psutil.cpu_count(logical=False),
        threads=psutil.cpu_count(),
        usable=usable,
        instruction_sets=tuple(name for name in _INSTRUCTION_SETS if name in present),
    )


def read_main_memory() -> MainMemory:
    """Return main and shared memory."""
    import psutil

    memory = psutil.virtual_memory()
    shared_total = shared_free = None
    with suppress(OSError):
        usage = shutil.disk_usage("/dev/shm")
        shared_total, shared_free = usage.total, usage.free
    return MainMemory(
        total_bytes=memory.total,
        available_bytes=memory.available,
        swap_bytes=psutil.swap_memory().total,
        shared_total_bytes=shared_total,
        shared_free_bytes=shared_free,
    )


def _cache_folder(environment: Mapping[str, str], variable: str, name: str) -> str:
    home = environment.get("XDG_CACHE_HOME")
    return environment.get(variable) or str(Path(home or Path.home() / ".cache") / name)


_PLACES: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "working folder": lambda _: str(Path.cwd()),
    "temporary files": lambda _: tempfile.gettempdir(),
    "torch's cache": lambda environment: _cache_folder(environment, "TORCH_HOME", "torch"),
    "Hugging Face's cache": lambda environment: _cache_folder(environment, "HF_HOME", "huggingface"),
}


def read_disks(environment: Mapping[str, str] = os.environ) -> tuple[DiskSpace, ...]:
    """Return the working, temporary and cache folders' file systems, each folder once."""
    kinds = _file_system_by_mount_point()
    disks = {}
    for purpose, find in _PLACES.items():
        # a working folder can be gone, a home unknown, and no folder for temporary files writable
        with suppress(OSError, RuntimeError):
            path = find(environment)
            usage = shutil.disk_usage(path)
            disks[path] = DiskSpace(
                purpose=purpose,
                path=path,
                file_system=_file_system_type_of_path(path, kinds),
                total_bytes=usage.total,
                free_bytes=usage.free,
            )
    return tuple(disks.values())


def _file_system_by_mount_point() -> dict[str, str]:
    import psutil

    try:
        return {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    except (OSError, psutil.Error):
        return {}


def _file_system_type_of_path(path: str, kinds: Mapping[str, str]) -> str | None:
    real = os.path.realpath(path)
    holding = [point for point in kinds if Path(real).is_relative_to(point)]
    return kinds[max(holding, key=len)] if holding else None


def read_limits() -> ProcessLimits:
    """Return the soft limits of this process."""
    return ProcessLimits(
        open_files=soft_limit("NOFILE"),
        processes=soft_limit("NPROC"),
        locked_memory_bytes=soft_limit("MEMLOCK"),
    )

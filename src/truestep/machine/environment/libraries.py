# SPDX-License-Identifier: Apache-2.0
"""Shared libraries that the dynamic loader could take."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from truestep.core.atomic_files import is_visible_path, visible_paths_in
from truestep.machine.environment.packages import InstalledPackage

LOADER_CACHE = Path("/etc/ld.so.cache")
_HEADERS = {"cudnn": ("cudnn_version.h", "cudnn.h"), "nccl": ("nccl.h",)}
_WORDS = ("MAJOR", "MINOR", "PATCHLEVEL|PATCH")


@dataclass(frozen=True, kw_only=True)
class SharedLibrary:
    """A shared library and what leads the loader to it."""

    path: str
    version: str | None
    found_by: str  # "wheel PACKAGE", "LD_LIBRARY_PATH", "CUDA_HOME" or "loader cache"


def find_shared_libraries(
    name: str,
    packages: Iterable[InstalledPackage],
    *,
    cuda_home: str | None = None,
    environment: Mapping[str, str] = os.environ,
    cache: Path = LOADER_CACHE,
) -> tuple[SharedLibrary, ...]:
    """Return each lib`name`.so once ("cudnn", "nccl"), in the order in which a loader tries the places."""
    places = [(folder, "LD_LIBRARY_PATH") for folder in environment.get("LD_LIBRARY_PATH", "").split(":")]
    places += [
        (f"{package.location}/nvidia/{name}/lib", f"wheel {package.name} {package.version}")
        for package in packages
        if package.name.startswith(f"nvidia-{name}-")
    ]
    places += [(f"{cuda_home}/lib64", "CUDA_HOME")] if cuda_home else []
    found: dict[str, SharedLibrary] = {}
    for folder, found_by in places:
        for path in visible_paths_in(Path(folder), f"lib{name}.so*") if folder else ():
            found.setdefault(os.path.realpath(path), _make_shared_library(name, path, found_by))
    for path in cached_libraries(f"lib{name}.so", cache):
        found.setdefault(os.path.realpath(path), _make_shared_library(name, path, "loader cache"))
    return tuple(found.values())


def _make_shared_library(name: str, path: Path, found_by: str) -> SharedLibrary:
    real = os.path.realpath(path)
    by_name = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", real)
    by_wheel = re.match(r"wheel \S+ (\d+\.\d+\.\d+)", found_by)
    version = by_wheel or by_name
    only_major = re.search(r"\.so\.(\d+)$", real)
    text = version[1] if version else _header_version(name, path) or (only_major[1] if only_major else None)
    return SharedLibrary(path=str(path), version=text, found_by=found_by)


def _header_version(name: str, library: Path) -> str | None:
    for header in _HEADERS.get(name, ()):
        with suppress(OSError):
            text = (library.parent.parent / "include" / header).read_text("utf-8", "replace")
            numbers = [re.search(rf"#define {name.upper()}_(?:{word}) +(\d+)", text) for word in _WORDS]
            if all(numbers):
                return ".".join(number[1] for number in numbers if number)
    return None


def cached_libraries(prefix: str, cache: Path = LOADER_CACHE) -> list[Path]:
    """Return the libraries of the loader's cache whose name starts so, as `ldconfig -p` prints them; none where it can't."""
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    with suppress(OSError, subprocess.SubprocessError):
        command = [ldconfig or "ldconfig", "-p", "-C", str(cache)]
        done = subprocess.run(command, capture_output=True, check=True, timeout=10)
        lines = re.findall(rf"^\t{re.escape(prefix)}\S* .*=> (.+)$", os.fsdecode(done.stdout), re.MULTILINE)
        return [path for path in map(Path, dict.fromkeys(lines)) if is_visible_path(path)]
    return []

# SPDX-License-Identifier: Apache-2.0
"""Every CUDA toolkit that can be found, and the one that torch takes to compile extensions."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from truestep.core.atomic_files import is_visible_file, is_visible_folder, is_visible_path, visible_paths_in
from truestep.machine.environment.system import program_version_by_pattern

DEFAULT_HOME = Path("/usr/local/cuda")
_SCRIPT_BYTES = 64 * 1024
_NAMED = re.compile(rb"""(["'])(?P<quoted>/[^"']+/bin/nvcc)\1|(?P<plain>/[^\s"';]+/bin/nvcc)\b""")


@dataclass(frozen=True, kw_only=True)
class Nvcc:
    """A CUDA compiler; a wrapper is a script or link that stands outside of its toolkit."""

    path: str
    version: str | None = None
    wrapper: bool = False
    toolkit: str | None = None  # the folder that holds the real bin/nvcc


@dataclass(frozen=True, kw_only=True)
class CudaHomeCandidate:
    """A place that torch looks at for CUDA_HOME, in its order."""

    source: str
    path: str | None
    wins: bool = False
    has_bin: bool = False
    has_include: bool = False
    has_lib64: bool = False
    wrong: str | None = None


@dataclass(frozen=True, kw_only=True)
class CudaToolkit:
    """The toolkits of this machine."""

    homes: tuple[CudaHomeCandidate, ...]
    nvccs: tuple[Nvcc, ...]

    def home(self) -> CudaHomeCandidate | None:
        """Return the candidate that torch takes."""
        return next((home for home in self.homes if home.wins), None)

    def compiler(self) -> Nvcc | None:
        """Return the compiler that torch runs: the winner's bin/nvcc."""
        home = self.home()
        wanted = os.path.realpath(Path(home.path, "bin", "nvcc")) if home and home.path else None
        return next((nvcc for nvcc in self.nvccs if os.path.realpath(nvcc.path) == wanted), None)


def read_toolkit(environment: Mapping[str, str] = os.environ, default: Path = DEFAULT_HOME) -> CudaToolkit:
    """Return every candidate for CUDA_HOME in torch's own order, and every nvcc."""
    on_path = shutil.which("nvcc", path=environment.get("PATH"))
    candidates = {
        "CUDA_HOME": environment.get("CUDA_HOME"),
        "CUDA_PATH": environment.get("CUDA_PATH"),
        "which nvcc": str(Path(on_path).parent.parent) if on_path else None,
        str(default): str(default) if is_visible_path(default) else None,
    }
    winner = next((source for source, path in candidates.items() if path), None)
    homes = tuple(
        _make_cuda_home_candidate(
            source, path, wins=source == winner, nvcc=on_path if source == "which nvcc" else None
        )
        for source, path in candidates.items()
    )
    return CudaToolkit(homes=homes, nvccs=_find_nvcc_compilers(candidates, environment, default))


def _make_cuda_home_candidate(
    source: str, path: str | None, *, wins: bool, nvcc: str | None
) -> CudaHomeCandidate:
    if not path:
        return CudaHomeCandidate(source=source, path=None, wins=wins)
    home = Path(path)
    parts = {
        "has_bin": is_visible_file(home / "bin/nvcc"),
        "has_include": any(is_visible_file(home / "include" / name) for name in ("cuda_runtime.h", "cuda.h")),
        "has_lib64": is_visible_folder(home / "lib64"),
    }
    return CudaHomeCandidate(
        source=source, path=path, wins=wins, wrong=_cuda_home_problem(home, parts, nvcc), **parts
    )


def _cuda_home_problem(home: Path, parts: Mapping[str, bool], nvcc: str | None) -> str | None:
    toolkit = toolkit_of_nvcc(Path(nvcc)) if nvcc else None
    if nvcc and not parts["has_include"] and os.path.realpath(home) != str(toolkit):
        behind = f"its toolkit is {toolkit}" if toolkit else "its toolkit can't be told from it"
        return f"{nvcc} is a wrapper that stands outside of its toolkit; {behind}"
    if not is_visible_folder(home):
        return "there is no such folder"
    missing = [name.removeprefix("has_") for name, there in parts.items() if not there]
    return f"it has no {', no '.join(missing)}" if missing else None


def toolkit_of_nvcc(nvcc: Path) -> Path | None:
    """Return the toolkit behind `nvcc`, through links and through the first path that a script names."""
    real = Path(os.path.realpath(nvcc))
    try:
        with real.open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
    except OSError:
        return None
    if text.startswith(b"#!"):
        for match in _NAMED.finditer(text):
            target = Path(os.path.realpath(os.fsdecode(match["quoted"] or match["plain"])))
            if target != real and is_visible_file(target):
                return target.parent.parent
        return None
    return real.parent.parent


def _find_nvcc_compilers(
    candidates: Mapping[str, str | None], environment: Mapping[str, str], default: Path
) -> tuple[Nvcc, ...]:
    folders = [Path(folder) for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    folders += [Path(path, "bin") for path in candidates.values() if path]
    folders += [versioned / "bin" for versioned in visible_paths_in(default.parent, f"{default.name}-*")]
    found: dict[str, Path] = {}
    for folder in folders:
        nvcc = folder / "nvcc"
        if is_visible_file(nvcc) and os.access(nvcc, os.X_OK):
            found.setdefault(os.path.realpath(nvcc), nvcc)
    return tuple(_describe_nvcc(nvcc) for nvcc in found.values())


def _describe_nvcc(nvcc: Path) -> Nvcc:
    toolkit = toolkit_of_nvcc(nvcc)
    outside = toolkit is None or os.path.realpath(nvcc.parent) != str(toolkit / "bin")
    return Nvcc(
        path=str(nvcc),
        # The compiler's own word: version.json is missing in toolkits from wheels, conda and distributions.
        version=program_version_by_pattern(nvcc, r"release [\d.]+, V([\d.]+)"),
        wrapper=outside,
        toolkit=str(toolkit) if toolkit else None,
    )

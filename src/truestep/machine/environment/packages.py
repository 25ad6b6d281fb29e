# SPDX-License-Identifier: Apache-2.0
"""The installed packages that matter to training, whoever installed them: pip, uv or conda.

Names and versions are read from the names of the metadata folders: parsing each METADATA file would
cost most of the report's time.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from truestep.core.atomic_files import visible_paths_in

_METADATA = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*)(?:-py[\d.]+)?\.(?:dist-info|egg-info)")
_RELEVANT = re.compile(
    r"(py|light|accelerated?|func)?torch.*|numpy|scipy|triton.*|nvidia-.*|cuda-.*|pynvml|safetensors|"
    r"transformers|accelerate|datasets|diffusers|peft|timm|tokenizers|(pytorch-)?lightning.*|ignite|fabric|"
    r"deepspeed|megatron.*|flash-attn.*|xformers|bitsandbytes|apex|liger-kernel|torchao|vllm|einops|"
    r"onnx.*|tensorboard|tensorflow|jax.*|keras|wandb|mlflow|trackio|setuptools|pip|uv|"
    r"mkl.*|intel-openmp|openblas.*|libopenblas|cudatoolkit|cudnn|nccl|pytorch.*|magma.*|truestep"
)


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """An installed package; the installer is what its metadata says."""

    name: str
    version: str
    location: str  # the folder on the import path
    metadata: str | None = None  # the folder or file that describes it
    installer: str | None = None
    editable: bool = False


def normalized_package_name(name: str) -> str:
    """Return a package's name as the index compares names: lower case, one dash for -, _ and dots."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_packages(path: Sequence[str] | None = None) -> list[InstalledPackage]:
    """Return every package on the import path and, in a conda environment, conda's own."""
    folders = [Path(place or ".") for place in dict.fromkeys(sys.path if path is None else path)]
    found = [package for folder in folders for package in _packages_in_folder(folder)]
    known = {(package.name, package.version) for package in found}
    conda = _conda_packages(Path(sys.prefix)) if path is None else ()
    return found + [package for package in conda if (package.name, package.version) not in known]


def relevant_packages(packages: Sequence[InstalledPackage]) -> tuple[InstalledPackage, ...]:
    """Return the packages that matter to training, by name."""
    chosen = [package for package in packages if _RELEVANT.fullmatch(package.name)]
    return tuple(
        sorted((_read_package_metadata(package) for package in chosen), key=lambda package: package.name)
    )


def _packages_in_folder(folder: Path) -> Iterator[InstalledPackage]:
    with suppress(OSError):
        for entry in folder.iterdir():
            match = _METADATA.fullmatch(entry.name)
            if match:
                name = normalized_package_name(match["name"])
                yield InstalledPackage(
                    name=name, version=match["version"], location=str(folder), metadata=str(entry)
                )


def _read_package_metadata(package: InstalledPackage) -> InstalledPackage:
    if package.metadata is None:
        return package
    folder, installer, editable = Path(package.metadata), None, False
    with suppress(OSError, ValueError):
        installer = (folder / "INSTALLER").read_text("utf-8").strip() or None
    # a package installed from an archive or a repository has a direct_url.json without dir_info
    with suppress(OSError, ValueError, KeyError, TypeError):
        editable = bool(json.loads((folder / "direct_url.json").read_text("utf-8"))["dir_info"]["editable"])
    return replace(package, installer=installer, editable=editable)


def _conda_packages(prefix: Path) -> Iterator[InstalledPackage]:
    for record in visible_paths_in(prefix / "conda-meta", "*.json"):
        name, _, rest = record.stem.rpartition("-")[0].rpartition("-")
        if name:
            yield InstalledPackage(
                name=normalized_package_name(name), version=rest, location=str(prefix), installer="conda"
            )


def package_requirements(package: InstalledPackage) -> dict[str, str]:
    """Return what the package always needs, as normalised name → the rest of the line."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path(package.metadata or "", "METADATA").read_text("utf-8", "replace").splitlines():
            if not line:
                break  # the description begins: anything may stand there
            match = re.match(r"Requires-Dist: ([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)(;.*)?", line)
            if match and not match[3]:
                found[normalized_package_name(match[1])] = match[2].strip(" ()")
    return found

# SPDX-License-Identifier: Apache-2.0
"""The facts about the environment as one record, and the function that reads it."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from truestep.core.atomic_files import is_visible_path
from truestep.core.secret_values import hide_secret_variable
from truestep.machine.environment import container as containers
from truestep.machine.environment import cuda_toolkit, libraries, packages
from truestep.machine.environment import system as systems
from truestep.machine.environment.torch_build import TorchBuild, TorchProbe
from truestep.machine.gpus.read import GpuReport, read_gpus
from truestep.machine.gpus.records import PciCard, read_cards

Section = TypeVar("Section")
_SHADOWS = ("torch.py", "torch/__init__.py")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """All facts about the environment that verdicts are given on."""

    taken_at: str  # ISO 8601, UTC
    torch: TorchBuild | None
    torch_lacks: tuple[str, ...]  # packages that the installed torch requires and that are not there
    torch_shadowed_by: str | None  # a file of the working folder that scripts started there import instead
    gpus: GpuReport
    cards_on_bus: tuple[PciCard, ...]
    toolkit: cuda_toolkit.CudaToolkit
    cudnn: tuple[libraries.SharedLibrary, ...]
    nccl: tuple[libraries.SharedLibrary, ...]
    python: systems.PythonInstallation
    packages: tuple[packages.InstalledPackage, ...]
    system: systems.OperatingSystem
    processor: systems.Processor
    memory: systems.MainMemory
    disks: tuple[systems.DiskSpace, ...]
    limits: systems.ProcessLimits
    container: containers.ContainerLimits
    variables: Mapping[str, str]
    unreadable: Mapping[str, str]  # sections that could not be read, with the error


def _read_or_note_unreadable(
    unreadable: dict[str, str], section: str, function: Callable[[], Section], otherwise: Section
) -> Section:
    try:
        return function()
    except Exception as error:  # noqa: BLE001  one that can't be read must not take the others along
        unreadable[section] = f"{type(error).__name__}: {error}"
        return otherwise


def read_machine(*, real_import: bool = False) -> Machine:
    """Return the facts; the child that loads torch runs while everything else is read."""
    probe, unreadable = TorchProbe(real_import=real_import), dict[str, str]()
    read = partial(_read_or_note_unreadable, unreadable)
    toolkit = read("CUDA toolkit", cuda_toolkit.read_toolkit, cuda_toolkit.CudaToolkit(homes=(), nvccs=()))
    installed: list[packages.InstalledPackage] = read("packages", packages.installed_packages, [])
    container = read("container", containers.read_container_limits, containers.ContainerLimits(kind=None))
    home = toolkit.home()
    find = partial(libraries.find_shared_libraries, packages=installed, cuda_home=home.path if home else None)
    return Machine(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpus=read_gpus(processes=False),  # other people's command lines don't belong into a bug report
        cards_on_bus=read_cards(),
        toolkit=toolkit,
        cudnn=read("cuDNN", partial(find, "cudnn"), ()),
        nccl=read("NCCL", partial(find, "nccl"), ()),
        python=systems.PythonInstallation(),
        packages=read("packages", lambda: packages.relevant_packages(installed), ()),
        system=systems.OperatingSystem(),
        processor=systems.read_processor(containers.usable_cpus(container)),
        memory=systems.read_main_memory(),
        disks=read("disks", systems.read_disks, ()),
        limits=read("limits", systems.read_limits, systems.ProcessLimits()),
        container=container,
        variables=read_environment_variables(),
        torch_lacks=read("packages", lambda: _missing_torch_requirements(installed), ()),
        torch_shadowed_by=next((name for name in _SHADOWS if is_visible_path(Path(name))), None),
        torch=probe.finish(),
        unreadable=unreadable,
    )


def _missing_torch_requirements(installed: Sequence[packages.InstalledPackage]) -> tuple[str, ...]:
    torch = next((package for package in installed if package.name == "torch"), None)
    needed = packages.package_requirements(torch) if torch else {}
    return tuple(sorted(set(needed) - {package.name for package in installed}))


_RELEVANT = re.compile(
    r"(CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|NVSHMEM|UCX|PYTORCH|TORCH|TORCHELASTIC|TORCHINDUCTOR|TRITON|GLOO|TP|"
    r"OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|ATEN|HIP|ROCM|ROCR|HSA|MIOPEN|SLURM|OMPI|PMI|HF|WANDB|MLFLOW|TOKENIZERS|"
    r"TRUESTEP|PYTHON|CONDA|VIRTUAL_ENV|LD|MALLOC|PJRT|XLA|KUBERNETES|MASTER|LOCAL|GROUP|ROLE)(_.*)?"
    r"|RANK|WORLD_SIZE|PYTHON[A-Z]+|TRANSFORMERS_.*|DATASETS_.*|.*_PROXY|.*_proxy"
)


def read_environment_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the relevant variables by name, what could be a secret replaced by "(hidden)"."""
    return {
        name: hide_secret_variable(name, value)
        for name, value in sorted(environment.items())
        if _RELEVANT.fullmatch(name)
    }

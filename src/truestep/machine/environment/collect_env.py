# SPDX-License-Identifier: Apache-2.0
"""The report in the format of `python -m torch.utils.collect_env`, which bug templates ask for.

The labels and their order are torch 2.13's; a test compares the two texts.
"""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from truestep.core.visible_paths import is_visible_file, visible_paths_in
from truestep.machine.environment.libraries import cached_libraries
from truestep.machine.environment.packages import installed_packages
from truestep.machine.environment.report import Machine
from truestep.machine.environment.system import output_of_program, version_of_program

_MISSING = "Could not collect"
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# A package is listed when its name contains one of these.
_COMMON = (
    r"torch|numpy|triton|optree|cuda-(cudart|cupti|libraries|opencl|nvrtc|runtime)|cublas|cudnn|cufft|curand|cusolver|"
    r"cusparse|nccl|nvjitlink|nvtx|dpcpp-cpp-rt|intel-(cmplr-(lib-rt|lib-ur|lic-rt)|opencl-rt|sycl-rt|openmp|pti)|mkl|"
    r"onemkl-sycl-(blas|dft|lapack|rng|sparse)|tbb|impi-(rt|devel)|oneccl|umf|tcmlib"
)
_PIP = re.compile(f"mypy|flake8|onnx|{_COMMON}")
_CONDA = re.compile(f"cudatoolkit|soumith|magma|{_COMMON}")


def collect_env_text(machine: Machine) -> str:
    """Return the text; what torch's tool can't find out is worded as it words it."""
    sections = (_torch_lines(machine), _system_lines(machine), _runtime_lines(machine))
    blocks = ["\n".join(f"{label}: {value}" for label, value in section) for section in sections]
    lists = ["sysctl", "-n", "machdep.cpu.brand_string"] if sys.platform == "darwin" else ["lscpu"]
    libraries = "Versions of relevant libraries:\n" + "\n".join([*_pip_lines(), *_conda_lines()])
    return "\n\n".join([*blocks, f"CPU:\n{output_of_program(*lists) or None}", libraries])


def _torch_lines(machine: Machine) -> Iterator[tuple[str, str]]:
    torch = machine.torch if machine.torch and machine.torch.loads else None
    no_cuda = _no_cuda_at_all(machine)
    yield "PyTorch version", torch.version or _MISSING if torch else "N/A"
    yield "Is debug build", str(torch.debug) if torch else "N/A"
    if torch and torch.hip:
        yield "CUDA used to build PyTorch", "N/A"
    else:
        missing = "None" if no_cuda else _MISSING
        yield "CUDA used to build PyTorch", torch.cuda or missing if torch else "N/A"
    yield "ROCM used to build PyTorch", torch.hip or "N/A" if torch else "N/A"


def _no_cuda_at_all(machine: Machine) -> bool:
    torch = machine.torch
    found = machine.toolkit.nvccs or machine.gpus.driver_version
    return bool(torch and torch.loads and not torch.cuda_available and not found)


def _system_lines(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "OS", f"{machine.system.name} ({platform.machine()})"
    yield "GCC version", version_of_program("gcc", r"gcc (.*)") or _MISSING
    yield "Clang version", version_of_program("clang", r"clang version (.*)") or _MISSING
    yield "CMake version", version_of_program("cmake", r"cmake (.*)") or _MISSING
    yield "Libc version", "-".join(platform.libc_ver()) if sys.platform == "linux" else "N/A"


def _runtime_lines(machine: Machine) -> Iterator[tuple[str, str]]:
    torch = machine.torch if machine.torch and machine.torch.loads else None
    missing = "No CUDA" if _no_cuda_at_all(machine) else _MISSING
    on_path = shutil.which("nvcc")
    nvcc = next((nvcc for nvcc in machine.toolkit.nvccs if nvcc.path == on_path), None)
    version = sys.version.replace("\n", " ")
    yield "Python version", f"{version} ({sys.maxsize.bit_length() + 1}-bit runtime)"
    yield "Python platform", platform.platform()
    yield "Is CUDA available", str(bool(torch.cuda_available)) if torch else "N/A"
    yield "CUDA runtime version", nvcc.version or missing if nvcc else missing
    loading = os.environ.get("CUDA_MODULE_LOADING", "") if torch and torch.cuda_available else "N/A"
    yield "CUDA_MODULE_LOADING set to", loading
    yield "GPU models and configuration", _cards(machine) or missing
    yield "Nvidia driver version", machine.gpus.driver_version or missing
    yield "cuDNN version", _cudnn() or missing
    yield "Is XPU available", str(bool(torch.xpu)) if torch else "N/A"
    yield "HIP runtime version", (torch and torch.hip_runtime_version) or "N/A"
    yield "MIOpen runtime version", (torch and torch.miopen_version) or "N/A"
    yield "Is XNNPACK available", str(torch.xnnpack) if torch else "N/A"
    set_ones = {name: os.environ[name] for name in _ALLOCATOR if os.environ.get(name)}
    yield "Caching allocator config", str(set_ones) if set_ones else "N/A"


def _cards(machine: Machine) -> str | None:
    lines = [f"GPU {card.index}: {card.name or card.error}" for card in machine.gpus.gpus]
    return lines[0] if len(lines) == 1 else "\n" + "\n".join(lines) + "\n" if lines else None


def _cudnn() -> str | None:
    files = sorted({str(path.resolve()) for path in cached_libraries("libcudnn")})
    if len(files) > 1:
        return "Probably one of the following:\n" + "\n".join(files)
    given = os.environ.get("CUDNN_LIBRARY")
    fallback = str(Path(given).resolve()) if given and is_visible_file(Path(given)) else None
    return files[0] if files else fallback


def _pip_lines() -> Iterator[str]:
    # pip prints the name that the package gives itself, which the folder's name only resembles
    lines = [
        f"{_own_name(Path(package.metadata)) or package.name}=={package.version}"
        for package in installed_packages()
        if package.metadata is not None
    ]
    chosen = [line for line in dict.fromkeys(lines) if _PIP.search(line)]
    # as pip sorts: onnx before onnx-ir
    chosen.sort(key=lambda line: line.partition("==")[0].lower())
    yield from (f"[pip3] {line}" for line in chosen or ["No relevant packages"])


def _own_name(folder: Path) -> str | None:
    for name in ("METADATA", "PKG-INFO"):
        with suppress(OSError):
            match = re.search(r"^Name: (\S+)", (folder / name).read_text("utf-8", "replace"), re.MULTILINE)
            return match[1] if match else None
    return None


def _conda_lines() -> Iterator[str]:
    records = visible_paths_in(Path(sys.prefix, "conda-meta"), "*.json")
    if not records:
        yield f"[conda] {_MISSING}"
        return
    parts = [record.stem.rsplit("-", 2) for record in records if record.stem.count("-") >= 2]
    lines = [f"{name:<25} {version:<18} {build}" for name, version, build in parts]
    chosen = [line for line in lines if _CONDA.search(line)]
    yield from (f"[conda] {line}" for line in chosen or ["No relevant packages"])

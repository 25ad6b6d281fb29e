# SPDX-License-Identifier: Apache-2.0
"""The report in the format of `python -m torch.utils.collect_env`, which bug templates ask for.

The labels and their order are torch 2.13's; a test compares the two texts.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from truestep.core.visible_paths import is_visible_file, visible_paths_in
from truestep.machine.environment.libraries import cached_libraries
from truestep.machine.environment.packages import installed_packages
from truestep.machine.environment.report import Machine

_MISSING = "Could not collect"
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# a package is listed when its name contains one of these
_COMMON = ("torch", "numpy", "triton", "optree")
_NVIDIA = (
    "cuda-cudart",
    "cuda-cupti",
    "cuda-libraries",
    "cuda-opencl",
    "cuda-nvrtc",
    "cuda-runtime",
    "cublas",
    "cudnn",
    "cufft",
    "curand",
    "cusolver",
    "cusparse",
    "nccl",
    "nvjitlink",
    "nvtx",
)
_ONEAPI = (
    "dpcpp-cpp-rt",
    "intel-cmplr-lib-rt",
    "intel-cmplr-lib-ur",
    "intel-cmplr-lic-rt",
    "intel-opencl-rt",
    "intel-sycl-rt",
    "mkl",
    "onemkl-sycl-blas",
    "onemkl-sycl-dft",
    "onemkl-sycl-lapack",
    "onemkl-sycl-rng",
    "onemkl-sycl-sparse",
    "intel-openmp",
    "tbb",
    "impi-rt",
    "impi-devel",
    "oneccl",
    "oneccl-devel",
    "intel-pti",
    "umf",
    "tcmlib",
)
_PIP = ("mypy", "flake8", "onnx", *_COMMON, *_NVIDIA, *_ONEAPI)
_CONDA = ("cudatoolkit", "soumith", "mkl", "magma", *_COMMON, *_NVIDIA, *_ONEAPI)


def collect_env_text(machine: Machine) -> str:
    """Return the text; what torch's tool can't find out is worded as it words it."""
    sections = (_torch_lines(machine), _system_lines(machine), _runtime_lines(machine))
    blocks = ["\n".join(f"{label}: {value}" for label, value in section) for section in sections]
    libraries = "Versions of relevant libraries:\n" + "\n".join([*_pip_lines(), *_conda_lines()])
    return "\n\n".join([*blocks, f"CPU:\n{_lscpu()}", libraries])


def _or_missing(value: object) -> str:
    return _MISSING if value is None else str(value)


def _torch_lines(machine: Machine) -> Iterator[tuple[str, str]]:
    torch = machine.torch if machine.torch and machine.torch.loads else None
    no_cuda = _no_cuda_at_all(machine)
    yield "PyTorch version", _or_missing(torch.version) if torch else "N/A"
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
    yield "GCC version", _or_missing(_first_line("gcc", r"gcc (.*)"))
    yield "Clang version", _or_missing(_first_line("clang", r"clang version (.*)"))
    yield "CMake version", _or_missing(_first_line("cmake", r"cmake (.*)"))
    yield "Libc version", "-".join(platform.libc_ver()) if sys.platform == "linux" else "N/A"


def _first_line(command: str, pattern: str) -> str | None:
    said = _said(command, "--version")
    match = re.search(pattern, said or "")
    return match[1] if match else None


def _said(*command: str) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else None
    return None


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


def _lscpu() -> str:
    said = _said("sysctl", "-n", "machdep.cpu.brand_string") if sys.platform == "darwin" else _said("lscpu")
    return said or "None"


def _package_name(line: str) -> str:
    return line.partition("==")[0].lower()  # as pip sorts: onnx before onnx-ir


def _pip_lines() -> Iterator[str]:
    # pip prints the name that the package gives itself, which the folder's name only resembles
    lines = [
        f"{_own_name(Path(package.metadata)) or package.name}=={package.version}"
        for package in installed_packages()
        if package.metadata is not None
    ]
    chosen = [line for line in dict.fromkeys(lines) if any(pattern in line for pattern in _PIP)]
    yield from (f"[pip3] {line}" for line in sorted(chosen, key=_package_name) or ["No relevant packages"])


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
    chosen = [line for line in lines if any(pattern in line for pattern in _CONDA)]
    yield from (f"[conda] {line}" for line in chosen or ["No relevant packages"])

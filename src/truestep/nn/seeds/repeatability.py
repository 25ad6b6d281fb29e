# SPDX-License-Identifier: Apache-2.0
"""The flags that decide whether torch repeats itself, and what may still vary: between two runs, and between two machines."""

import inspect
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from truestep.core.environment_variables import set_environment_variables
from truestep.core.user_frames import warn_user

CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_REPEATS = (":4096:8", ":16:8")  # the values with which cuBLAS repeats itself, as torch checks them
LATE = f"{CUBLAS_VARIABLE} was set after CUDA had started, when cuBLAS may have read it already: its products may vary."
LATE_FIX = f"Seed before the first use of torch.cuda, or export {CUBLAS_VARIABLE}={CUBLAS_REPEATS[0]}."
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_SECTION = re.compile(
    r"operations will throw a\s+:class:`RuntimeError`.*?:\n(?P<items>.*?)\n\s*In addition", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags as they are in this process."""

    deterministic_algorithms: bool
    warn_only: bool
    cudnn_deterministic: bool
    cudnn_benchmark: bool
    cublas_workspace_config: str | None

    def restore(self) -> None:
        """Set every flag, and the environment variable, to what is recorded here."""
        now = read_determinism_flags()
        # Only where it differs: torch's setter imports its compiler's settings, which takes seconds (torch 2.13).
        if (self.deterministic_algorithms, self.warn_only) != (now.deterministic_algorithms, now.warn_only):
            torch.use_deterministic_algorithms(self.deterministic_algorithms, warn_only=self.warn_only)
        torch.backends.cudnn.deterministic = self.cudnn_deterministic
        torch.backends.cudnn.benchmark = self.cudnn_benchmark
        set_environment_variables({CUBLAS_VARIABLE: self.cublas_workspace_config})


def read_determinism_flags() -> Flags:
    """Return the flags as they are now."""
    return Flags(
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn_deterministic=torch.backends.cudnn.deterministic,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        cublas_workspace_config=os.environ.get(CUBLAS_VARIABLE),
    )


def make_deterministic(*, warn_only: bool = False) -> bool:
    """Choose deterministic algorithms everywhere; return whether it came in time for cuBLAS.

    A CUBLAS_WORKSPACE_CONFIG that is set already is kept. Where it is not, and CUDA has started, cuBLAS may have been
    set up without it: then a warning says so.
    """
    kept = bool(os.environ.get(CUBLAS_VARIABLE))
    in_time = kept or not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not kept:
        os.environ[CUBLAS_VARIABLE] = CUBLAS_REPEATS[0]
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    if not in_time:
        warn_user(f"{LATE} {LATE_FIX}")
    return in_time


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One thing that may vary, and what can be done about it."""

    name: str
    says: str
    fix: str | None = None


def repeatability_gaps(flags: Flags, *, in_time: bool) -> Iterator[Gap]:
    """Yield what may differ between two runs of the same program on this machine."""
    if not flags.deterministic_algorithms:
        yield Gap(
            name="algorithms",
            says="operations may add in another order each time (index_put and scatter_add, most of all on a GPU)",
            fix="ts.seed_everything(seed, deterministic=True)",
        )
    elif flags.warn_only:
        yield Gap(
            name="algorithms",
            says="operations without a deterministic form run all the same, with a warning",
            fix="deterministic=True makes them raise",
        )
    if torch.cuda.is_available():
        yield from _cuda_gaps(flags, in_time=in_time)
    if sys.flags.hash_randomization and not os.environ.get("PYTHONHASHSEED", "random").isdigit():
        yield Gap(
            name="hashes",
            says="sets of strings are in another order in every process; Python reads PYTHONHASHSEED only when it starts",
            fix="start it as: PYTHONHASHSEED=0 python train.py",
        )


def _cuda_gaps(flags: Flags, *, in_time: bool) -> Iterator[Gap]:
    if flags.cudnn_benchmark:
        yield Gap(
            name="cudnn",
            says="cuDNN's auto-tuner may pick another algorithm each time",
            fix="torch.backends.cudnn.benchmark = False",
        )
    if not in_time:
        yield Gap(name="cublas", says=LATE, fix=LATE_FIX)
    elif flags.cublas_workspace_config not in CUBLAS_REPEATS:
        yield Gap(
            name="cublas",
            says=f"{CUBLAS_VARIABLE} is {flags.cublas_workspace_config!r}: cuBLAS may vary when it works on several streams",
            fix=f"export {CUBLAS_VARIABLE}={CUBLAS_REPEATS[0]}",
        )


def repeatability_gaps_on_other_machines() -> Iterator[Gap]:
    """Yield in what another machine or version may give other bits, with what is in use here."""
    yield Gap(name="torch", says=f"{torch.__version__}; another release may draw and add otherwise")
    yield Gap(
        name="processor",
        says=f"kernels for {torch.backends.cpu.get_cpu_capability()}; those of another instruction set add in another order",
        fix="ATEN_CPU_CAPABILITY=default, set before torch is imported, is the same everywhere and slow",
    )
    yield Gap(
        name="threads",
        says=f"{torch.get_num_threads()}; sums are split by the number of threads",
        fix=f"torch.set_num_threads({torch.get_num_threads()}) on the other machine",
    )
    yield from _library_version_gaps()
    says = f"{np.__version__}; np.random keeps its stream, sums and linear algebra may change"
    yield Gap(name="numpy", says=says)
    if torch.cuda.is_available():
        cards = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
        yield Gap(name="cards", says=f"{', '.join(sorted(cards))}; another model has other kernels")
    yield Gap(name="devices", says="a GPU's stream gives other numbers than the CPU's, for the same seed")


def _library_version_gaps() -> Iterator[Gap]:
    built = torch.__config__.show()
    if torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        version = re.search(r"Math Kernel Library Version ([\d.]+)", built)
        mode = os.environ.get("MKL_CBWR")
        yield Gap(
            name="MKL",
            says=f"{version[1] if version else 'in this build'}; it picks kernels by processor and by alignment",
            fix=None if mode else "MKL_CBWR=COMPATIBLE, set before torch is imported, holds it to one kernel",
        )
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        version = re.search(r"MKL-DNN v([\d.]+)", built)
        yield Gap(
            name="oneDNN",
            says=f"{version[1] if version else 'in this build'}; it writes kernels for the processor that it finds",
        )


def operations_without_deterministic_form() -> tuple[str, ...]:
    """Return the operations for which the installed torch knows no deterministic algorithm on the devices here.

    Torch keeps no table of them but the list in the documentation of `torch.use_deterministic_algorithms`, so that is
    read; empty where docstrings were stripped (python -OO).
    """
    section = _SECTION.search(inspect.getdoc(torch.use_deterministic_algorithms) or "")
    if section is None:
        return ()
    items = re.split(r"\n +\* ", "\n" + _ROLE.sub(r"\1", section["items"]).replace("``", ""))[1:]
    listed = [" ".join(item.split()) for item in items]
    return tuple(item for item in listed if "CUDA" not in item or torch.cuda.is_available())

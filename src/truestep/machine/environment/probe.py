# SPDX-License-Identifier: Apache-2.0
"""Ask torch's compiled core about itself, in a process of its own: a broken torch may crash there.

Run as a script: `python probe.py core|import FOLDER SYSPATH`, the answer is one JSON line. "core" loads
only torch's compiled part, behind an empty package named torch: a sixth of the time of `import torch`,
and it finds what breaks most: libraries that are missing or don't fit. "import" is the real import.
This file imports nothing of Truestep, and nothing of torch at module level.
"""

import json
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any


def load_torch_core(folder: str) -> Any:
    """Return `torch._C` without running torch's Python code."""
    import ctypes
    from importlib import import_module

    package = types.ModuleType("torch")
    package.__path__ = [folder]
    sys.modules["torch"] = package
    dependencies = Path(folder, "lib", "libtorch_global_deps.so")
    if dependencies.exists():
        # as torch/__init__.py does before it imports its core, whose symbols are in there
        ctypes.CDLL(str(dependencies), mode=ctypes.RTLD_GLOBAL)
    return import_module("torch._C")


def torch_build_facts(core: Any, *, ask_cuda: bool) -> dict[str, Any]:
    """Return what a loaded core tells; `ask_cuda` starts the CUDA driver in this process."""
    settings = _call_or_none(core, "_show_config") or ""
    switches = dict(re.findall(r"\b(USE_\w+)=(\w+)", settings))
    cudnn = getattr(core, "_cudnn", None)
    return {
        "architectures": (_call_or_none(core, "_cuda_getArchFlags") or "").split(),
        "cudnn_version": _dotted_cudnn_version(_call_or_none(cudnn, "getRuntimeVersion")),
        "nccl_version": _nccl_version_text(core),
        **{name.lower(): _parse_on_off(switches.get(f"USE_{name}")) for name in ("GLOO", "MPI", "NCCL")},
        "num_threads": _call_or_none(core, "get_num_threads"),
        **(_cuda_facts(core) if ask_cuda else {}),
    }


def _call_or_none(owner: Any, name: str) -> Any:
    function = getattr(owner, name, None)
    try:
        return function() if function is not None else None
    except Exception:  # noqa: BLE001  a core that can't answer one question may answer the others
        return None


def _parse_on_off(switch: str | None) -> bool | None:
    return switch.upper() in ("ON", "1", "TRUE") if switch is not None else None


def _dotted_cudnn_version(numbers: Any) -> str | None:
    """Return cuDNN's (major, minor, patch) with dots."""
    return ".".join(map(str, numbers)) if numbers else None


def _nccl_version_text(core: Any) -> str | None:
    version = _call_or_none(core, "_nccl_version")
    if isinstance(version, int):
        version = (version >> 32, version >> 16 & 0xFFFF, version & 0xFFFF)
    return ".".join(map(str, version)) if version else None


def _cuda_facts(core: Any) -> dict[str, Any]:
    count = getattr(core, "_cuda_getDeviceCount", None)
    if count is None:
        return {"cuda_available": False, "cuda_error": None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            available, error = count() > 0, None
        except Exception as failure:  # noqa: BLE001  the failure is the answer
            available, error = False, str(failure).splitlines()[0]
    said = str(caught[0].message).split(" (Triggered")[0] if caught else None
    return {"cuda_available": available, "cuda_error": error or said}


def print_torch_build_facts() -> None:
    """Print what torch tells, as one JSON line."""
    way, folder, path = sys.argv[1:4]
    sys.path[:] = json.loads(path)
    try:
        if way == "core":
            core = load_torch_core(folder)
        else:
            import torch

            core = torch._C
        answer = {"error": None, **torch_build_facts(core, ask_cuda=True)}
    except BaseException as error:  # noqa: BLE001  anything that stops the import is the answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    print_torch_build_facts()

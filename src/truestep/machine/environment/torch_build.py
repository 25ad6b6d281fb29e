# SPDX-License-Identifier: Apache-2.0
"""Which torch is here, how it was built, and whether it loads; read without importing it."""

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from truestep.core.atomic_files import is_visible_folder
from truestep.core.errors import MissingPackageError
from truestep.machine.environment import probe

PROBE_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """A torch that is installed; what only a loaded one can tell is None when it does not load."""

    version: str | None
    folder: str
    cuda: str | None = None  # the CUDA it was built for
    hip: str | None = None  # the ROCm it was built for
    loads: bool | None = None
    error: str | None = None
    cuda_available: bool | None = None
    cuda_error: str | None = None
    architectures: tuple[str, ...] = ()
    cudnn_version: str | None = None
    nccl_version: str | None = None
    nccl: bool | None = None
    gloo: bool | None = None
    mpi: bool | None = None
    num_threads: int | None = None


class TorchProbe:
    """Torch as its files describe it at once, and as it describes itself when `finish` is called."""

    def __init__(self, *, path: Sequence[str] | None = None, real_import: bool = False) -> None:
        self.path = list(sys.path if path is None else path)
        self.folder = find_torch_folder(self.path)
        self.child: subprocess.Popen[str] | None = None
        self.real_import = real_import
        self.loaded = sys.modules.get("torch") if path is None else None
        if self.folder and not self.loaded:
            self.child = self._start_child_process("import" if real_import else "core")

    def _start_child_process(self, way: str) -> subprocess.Popen[str]:
        arguments = [way, str(self.folder), json.dumps(self.path)]
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", probe.__file__, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def finish(self) -> TorchBuild | None:
        """Return the build, or None where no torch is installed."""
        if self.folder is None:
            return None
        written = _read_torch_version_file(self.folder)
        if self.loaded is not None:
            return TorchBuild(
                folder=str(self.folder), loads=True, **written, **_facts_of_imported_torch(self.loaded)
            )
        answer = _read_child_answer(self.child)
        if answer["error"] and not self.real_import:
            # The short way failed, which may say nothing of torch: the real import decides, and words the error.
            answer = _read_child_answer(self._start_child_process("import"))
        answer["architectures"] = tuple(answer.get("architectures", ()))
        return TorchBuild(folder=str(self.folder), loads=answer["error"] is None, **written, **answer)


def _read_child_answer(child: subprocess.Popen[str] | None) -> dict[str, Any]:
    assert child is not None
    try:
        output, _ = child.communicate(timeout=PROBE_TIMEOUT_SECONDS)
        # the last line: what torch or a plugin prints as it loads comes before
        return dict(json.loads(output.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        child.kill()
        # once more, so that it leaves no zombie
        child.communicate()
        return {"error": f"torch did not load within {PROBE_TIMEOUT_SECONDS} seconds"}
    except (IndexError, ValueError):
        return {"error": f"the process that imports torch ended with status {child.returncode}"}


def _facts_of_imported_torch(torch: Any) -> dict[str, Any]:
    """Return the facts of a torch that is imported here, without starting CUDA."""
    core = getattr(torch, "_C", None)
    cuda = getattr(torch, "cuda", None)
    told = probe.torch_build_facts(core, ask_cuda=bool(cuda and cuda.is_initialized()))
    return {**told, "architectures": tuple(told["architectures"])}


def run_torch_collect_env() -> subprocess.CompletedProcess[str]:
    """Run torch's own report on this machine, `torch.utils.collect_env`, which also serves where torch does not load."""
    folder = find_torch_folder(sys.path)
    if folder is None:
        raise MissingPackageError(
            "torch is not installed, and this report comes with it. `truestep env` needs none; or write: "
            "pip install 'truestep[torch]'",
            name="torch",
        )
    # as a file: as a module it would be found through the import that may fail
    script = [sys.executable, "-P", "-W", "ignore", str(folder / "utils/collect_env.py")]
    return subprocess.run(script, stdout=subprocess.PIPE, text=True, check=False)


def find_torch_folder(path: Sequence[str]) -> Path | None:
    """Return the folder of the torch that `import torch` would take."""
    spec = PathFinder.find_spec("torch", list(path))
    if spec is None:
        return None
    if spec.origin:
        return Path(spec.origin).parent
    places = list(spec.submodule_search_locations or ())
    # a folder without __init__.py: what is left of an uninstalled torch, or any folder of that name
    return Path(places[0]) if places and is_visible_folder(Path(places[0], "lib")) else None


def _read_torch_version_file(folder: Path) -> dict[str, Any]:
    """Return the constants of torch/version.py, which every build writes."""
    found: dict[str, Any] = {"version": None}
    names = {"__version__": "version", "cuda": "cuda", "hip": "hip"}
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.parse((folder / "version.py").read_text("utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and target.id in names:
                    found[names[target.id]] = node.value.value
    return found

# SPDX-License-Identifier: Apache-2.0
"""Torch that is whole, missing, broken in several ways, or already imported."""

import subprocess
import sys

import pytest

from truestep.machine.environment import torch_build
from truestep.machine.environment.torch_build import TorchProbe


@pytest.fixture
def package(tmp_path):
    """Write a package named torch; returns the folder for the import path."""

    def write(init="", version="__version__ = '2.99.0+cu130'\ncuda: str = '13.0'\nhip = None\n", **files):
        folder = tmp_path / "site" / "torch"
        folder.mkdir(parents=True)
        for name, text in {"__init__": init, "version": version, **files}.items():
            (folder / f"{name}.py").write_text(text)
        return str(tmp_path / "site")

    return write


def test_the_installed_torch_is_described_without_being_imported_as_by_the_real_import():
    torch = pytest.importorskip("torch")
    code = """
import sys
from truestep.machine.environment.torch_build import TorchProbe
build = TorchProbe().finish()
print(build.version, build.loads, build.gloo, build.num_threads, build.cuda, "torch" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    gloo = "USE_GLOO=ON" in torch.__config__.show()
    path = [place for place in sys.path if place]
    imported = TorchProbe(path=path, real_import=True).finish()
    assert TorchProbe(path=path).finish() == imported
    assert result.stdout.split() == [
        torch.__version__,
        "True",
        str(gloo),
        str(imported.num_threads),
        str(torch.version.cuda),
        "False",
    ]


def test_a_torch_that_is_imported_here_is_asked_itself():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        build = TorchProbe().finish()
    finally:
        torch.set_num_threads(before)
    assert (build.num_threads, build.loads, build.cuda_available) == (1, True, None)


def test_no_torch_is_none():
    assert TorchProbe(path=["/nowhere"]).finish() is None


@pytest.mark.parametrize(
    ("init", "error"),
    [
        (
            "raise ImportError('libcudart.so.13: cannot open shared object file')",
            "ImportError: libcudart.so.13",
        ),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os.abort()", "ended with status -6"),
        ("import os; os._exit(0)", "ended with status 0"),
    ],
)
def test_a_torch_whose_import_fails_is_a_report_with_the_reason(package, init, error):
    build = TorchProbe(path=[package(init), *sys.path]).finish()
    assert (build.version, build.cuda, build.loads) == ("2.99.0+cu130", "13.0", False)
    assert error in build.error


def test_a_torch_that_hangs_is_given_up(package, monkeypatch):
    monkeypatch.setattr(torch_build, "PROBE_TIMEOUT_SECONDS", 1)
    build = TorchProbe(path=[package("import time; time.sleep(60)"), *sys.path], real_import=True).finish()
    assert build.error == "torch did not load within 1 seconds"


def test_a_torch_that_chatters_on_import_is_understood(package):
    build = TorchProbe(
        path=[package("import types; print('hello'); _C = types.SimpleNamespace()"), *sys.path]
    ).finish()
    assert (build.loads, build.error, build.num_threads) == (True, None, None)


def test_what_is_left_of_an_uninstalled_torch_does_not_load(tmp_path):
    (tmp_path / "torch/lib").mkdir(parents=True)
    build = TorchProbe(path=[str(tmp_path)]).finish()
    assert (build.version, build.loads) == (None, False)


def test_any_folder_named_torch_is_no_torch(tmp_path):
    (tmp_path / "torch").mkdir()
    assert TorchProbe(path=[str(tmp_path)]).finish() is None


@pytest.mark.parametrize("version", ["", "__version__ = compute()", "def (", "\x00"])
def test_a_version_file_that_says_nothing_is_an_unknown_version(package, version):
    build = TorchProbe(path=[package("raise ImportError('x')", version), *sys.path]).finish()
    assert build.version is None


CORE = """
class C:
    class _cudnn: getRuntimeVersion = staticmethod(lambda: (9, 10, 2))
    _cuda_getArchFlags = staticmethod(lambda: "sm_80 sm_90 compute_90")
    _nccl_version = staticmethod(lambda: (2 << 32) | (27 << 16) | 3)
    get_num_threads = staticmethod(lambda: 4)
    _show_config = staticmethod(lambda: "Build settings: USE_NCCL=1, USE_GLOO=ON, USE_MPI=OFF,")
    @staticmethod
    def _cuda_getDeviceCount(): {count}
_C = C
"""


@pytest.mark.parametrize(
    ("count", "available", "error"),
    [
        ("return 2", True, None),
        ("return 0", False, None),
        ("raise RuntimeError('Found no NVIDIA driver\\non your system')", False, "Found no NVIDIA driver"),
        (
            "import warnings; warnings.warn('CUDA initialization: too old (Triggered at x)'); return 0",
            False,
            "CUDA initialization: too old",
        ),
    ],
)
def test_what_a_cuda_core_tells(package, count, available, error):
    build = TorchProbe(path=[package(CORE.format(count=count)), *sys.path], real_import=True).finish()
    assert (build.cudnn_version, build.nccl_version) == ("9.10.2", "2.27.3")
    assert build.architectures == ("sm_80", "sm_90", "compute_90")
    assert (build.nccl, build.gloo, build.mpi) == (True, True, False)
    assert (build.cuda_available, build.cuda_error) == (available, error)

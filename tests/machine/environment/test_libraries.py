# SPDX-License-Identifier: Apache-2.0
"""Libraries that a loader would find, and the loader's own cache."""

import re
import shutil
import subprocess

import pytest

from truestep.machine.environment.libraries import cached_libraries, find_shared_libraries
from truestep.machine.environment.packages import InstalledPackage


def test_the_cache_is_read_as_ldconfig_prints_it():
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if ldconfig is None:
        pytest.skip("there is no ldconfig here")
    printed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    for prefix in ("libc.so", "libstdc", "libm"):
        expected = re.findall(rf"^\t{re.escape(prefix)}\S* .*=> (\S+)$", printed, re.MULTILINE)
        assert list(dict.fromkeys(expected)) == [str(path) for path in cached_libraries(prefix)]


@pytest.mark.parametrize(
    "content", [b"", b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1" + b"\xff" * 80, b"other"]
)
def test_a_cache_that_is_none_is_empty(tmp_path, content):
    (tmp_path / "cache").write_bytes(content)
    assert cached_libraries("libc", tmp_path / "cache") == []


@pytest.fixture
def library(tmp_path):
    def make(path):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
        return file

    return make


def test_places_in_the_loaders_order_and_each_file_once(tmp_path, library):
    library("ld/libcudnn.so.9.1.0")
    (tmp_path / "ld/libcudnn.so.9").symlink_to("libcudnn.so.9.1.0")
    library("site/nvidia/cudnn/lib/libcudnn.so.9")
    library("cuda/lib64/libcudnn.so.8")
    wheel = InstalledPackage(name="nvidia-cudnn-cu13", version="9.10.2.21", location=str(tmp_path / "site"))
    found = find_shared_libraries(
        "cudnn",
        [wheel],
        cuda_home=str(tmp_path / "cuda"),
        environment={"LD_LIBRARY_PATH": f"{tmp_path}/ld::/nowhere"},
        cache=tmp_path / "none",
    )
    expected = [
        ("9.1.0", "LD_LIBRARY_PATH"),
        ("9.10.2", "wheel nvidia-cudnn-cu13 9.10.2.21"),
        ("8", "CUDA_HOME"),
    ]
    assert expected == [(one.version, one.found_by) for one in found]


def test_a_header_beside_it_tells_the_version(tmp_path, library):
    library("cuda/lib64/libcudnn.so.9")
    header = library("cuda/include/cudnn_version.h")
    header.write_text("#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 7\n#define CUDNN_PATCHLEVEL 1\n")
    (found,) = find_shared_libraries(
        "cudnn", [], cuda_home=str(tmp_path / "cuda"), environment={}, cache=tmp_path / "none"
    )
    assert found.version == "9.7.1"

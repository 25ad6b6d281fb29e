# SPDX-License-Identifier: Apache-2.0
"""CUDA_HOME as torch finds it, and where that is wrong."""

import os

import pytest

from truestep.machine.environment.cuda_toolkit import read_toolkit

SCRIPT = """#!/bin/sh
echo "Cuda compilation tools, release 13.0, V13.0.88"
"""


@pytest.fixture
def toolkit(tmp_path):
    """A whole toolkit; its nvcc is a program that says its version."""

    def make(name="cuda-13.0", parts=("include", "lib64")):
        root = tmp_path / name
        for part in ("bin", *parts):
            (root / part).mkdir(parents=True)
        if "include" in parts:
            (root / "include/cuda_runtime.h").write_text("")
        nvcc = root / "bin/nvcc"
        nvcc.write_text(SCRIPT)
        nvcc.chmod(0o755)
        return root

    return make


@pytest.fixture
def wrapper(tmp_path):
    """A script called nvcc, as administrators put it into /usr/local/bin."""

    def make(target, folder="opt/bin"):
        path = tmp_path / folder / "nvcc"
        path.parent.mkdir(parents=True)
        path.write_text(f'#!/bin/sh\nexec "{target}" "$@"\n')
        path.chmod(0o755)
        return path

    return make


def read(tmp_path, **environment):
    return read_toolkit({"PATH": "", **environment}, default=tmp_path / "cuda")


def test_the_order_is_torchs(tmp_path, toolkit):
    one, two, three = toolkit("one"), toolkit("two"), toolkit("three")
    default = toolkit("cuda")
    everything = {"CUDA_HOME": str(one), "CUDA_PATH": str(two), "PATH": f"{three}/bin"}
    expected = [("CUDA_HOME", one), ("CUDA_PATH", two), ("which nvcc", three), (str(default), default)]
    for source, winner in expected:
        found = read(tmp_path, **everything)
        assert found.home().source == source
        assert found.home().path == str(winner)
        assert [home.source for home in found.homes] == [source for source, _ in expected]
        everything.pop(source, None) or everything.pop("PATH", None)


def test_the_order_is_the_one_of_the_installed_torch(tmp_path, toolkit, monkeypatch):
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    one, two, three = toolkit("one"), toolkit("two"), toolkit("three")
    for variables in (
        {"CUDA_HOME": str(one), "CUDA_PATH": str(two), "PATH": f"{three}/bin"},
        {"CUDA_PATH": str(two), "PATH": f"{three}/bin"},
        {"CUDA_HOME": "", "PATH": f"{three}/bin"},
        {"PATH": f"{three}/bin"},
    ):
        for name in ("CUDA_HOME", "CUDA_PATH"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert cpp_extension._find_cuda_home() == read_toolkit().home().path


def test_a_wrapper_script_is_seen_through(tmp_path, toolkit, wrapper):
    root = toolkit()
    nvcc = wrapper(f"{root}/bin/nvcc")
    found = read(tmp_path, PATH=str(nvcc.parent))
    home = found.home()
    assert (home.path, home.has_bin, home.has_include) == (str(tmp_path / "opt"), True, False)
    assert "is a wrapper" in home.wrong
    assert str(root) in home.wrong
    assert (found.compiler().wrapper, found.compiler().toolkit) == (True, str(root))
    assert found.compiler().version == "13.0.88"


def test_a_wrapper_that_names_no_path_is_still_a_wrapper(tmp_path, wrapper):
    nvcc = wrapper("nvcc-of-somewhere")
    home = read(tmp_path, PATH=str(nvcc.parent)).home()
    assert "can't be told" in home.wrong


def test_a_link_into_the_toolkit_is_seen_through(tmp_path, toolkit):
    root = toolkit()
    (root / "bin/nvcc").write_bytes(b"\x7fELF")
    link = tmp_path / "usr/bin/nvcc"
    link.parent.mkdir(parents=True)
    link.symlink_to(root / "bin/nvcc")
    home = read(tmp_path, PATH=str(link.parent)).home()
    assert home.path == str(tmp_path / "usr")
    assert str(root) in home.wrong


def test_a_distribution_that_keeps_its_headers_beside_its_link_is_right(tmp_path, toolkit):
    root = toolkit()
    usr = tmp_path / "usr"
    for part in ("bin", "include", "lib64"):
        (usr / part).mkdir(parents=True)
    (usr / "include/cuda_runtime.h").write_text("")
    (usr / "bin/nvcc").symlink_to(root / "bin/nvcc")
    assert read(tmp_path, PATH=f"{usr}/bin").home().wrong is None


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [(("include", "lib64"), None), (("include",), "it has no lib64"), (("lib64",), "it has no include")],
)
def test_what_a_toolkit_lacks_is_said(tmp_path, toolkit, parts, wrong):
    assert wrong == read(tmp_path, CUDA_HOME=str(toolkit(parts=parts))).home().wrong


def test_a_variable_that_names_nothing_wins_and_is_wrong(tmp_path, toolkit):
    toolkit("cuda")
    home = read(tmp_path, CUDA_HOME="/nowhere").home()
    assert (home.path, home.wrong) == ("/nowhere", "there is no such folder")


def test_no_toolkit_at_all(tmp_path):
    found = read(tmp_path)
    assert (found.home(), found.compiler(), found.nvccs) == (None, None, ())


def test_every_nvcc_is_found_once(tmp_path, toolkit):
    roots = [toolkit("cuda-12.8"), toolkit("cuda-13.0")]
    (tmp_path / "cuda").symlink_to(roots[1])
    found = read(tmp_path, PATH=os.pathsep.join(f"{root}/bin" for root in roots))
    assert len(found.nvccs) == 2
    assert {os.path.realpath(nvcc.path) for nvcc in found.nvccs} == {f"{root}/bin/nvcc" for root in roots}


def test_folders_of_the_path_that_this_user_may_not_look_into_are_no_obstacle(tmp_path, toolkit):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    root = toolkit("cuda")
    locked = tmp_path / "locked" / "bin"
    locked.mkdir(parents=True)
    locked.parent.chmod(0o700)
    places = [tmp_path, *tmp_path.parents]
    closed = [place for place in places if not place.stat().st_mode & 0o011]
    for place in closed:
        place.chmod(place.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        found = read(tmp_path, PATH=str(locked), CUDA_HOME=str(locked.parent))
    finally:
        os.seteuid(0)
        for place in closed:
            place.chmod(place.stat().st_mode & ~0o055)
    assert found.home().wrong == "there is no such folder" or "has no" in found.home().wrong
    assert [nvcc.path for nvcc in found.nvccs] == [f"{root}/bin/nvcc"]

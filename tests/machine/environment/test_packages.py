# SPDX-License-Identifier: Apache-2.0
"""Packages of pip, uv and conda, read from what each leaves on disk."""

import sys
from importlib.metadata import distributions

import pytest

from truestep.machine.environment.packages import (
    installed_packages,
    normalized_package_name,
    package_requirements,
    relevant_packages,
)


@pytest.fixture
def installed(tmp_path):
    def install(folder, **files):
        metadata = tmp_path / folder
        metadata.mkdir(parents=True)
        for name, text in files.items():
            (metadata / name.replace("__", ".")).write_text(text)
        return metadata

    return install


def test_the_same_packages_as_importlib_finds():
    expected = {(normalized_package_name(one.metadata["Name"]), one.version) for one in distributions()}
    assert expected == {(one.name, one.version) for one in installed_packages()}


def test_pip_uv_and_editable_packages(tmp_path, installed):
    installed("torch-2.13.0+cu130.dist-info", INSTALLER="uv\n")
    installed("Flash_Attn-2.8.1.dist-info", INSTALLER="pip\n")
    installed("numpy-2.4.6-py3.11.egg-info")
    installed(
        "accelerate-1.0.dist-info", direct_url__json='{"dir_info": {"editable": true}, "url": "file:///x"}'
    )
    installed("transformers-5.0.dist-info", direct_url__json='{"archive_info": {}, "url": "file:///x.whl"}')
    installed("unrelated-1.0.dist-info")
    found = {
        one.name: (one.version, one.installer, one.editable)
        for one in relevant_packages(installed_packages([str(tmp_path)]))
    }
    expected = {
        "accelerate": ("1.0", None, True),
        "flash-attn": ("2.8.1", "pip", False),
        "numpy": ("2.4.6", None, False),
        "torch": ("2.13.0+cu130", "uv", False),
        "transformers": ("5.0", None, False),
    }
    assert expected == found


def test_conda_packages_that_python_does_not_know(installed, monkeypatch, tmp_path):
    records = installed("conda-meta")
    (records / "cudatoolkit-11.8.0-h6a678d5_0.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    conda = [(one.name, one.version) for one in installed_packages() if one.installer == "conda"]
    assert conda == [("cudatoolkit", "11.8.0")]


def test_what_a_package_always_requires(installed, tmp_path):
    metadata = (
        "Name: torch\nRequires-Dist: typing-extensions>=4.10\nRequires-Dist: sympy (>=1.13.3)\n"
        "Requires-Dist: optree; extra == 'optree'\nRequires-Dist: setuptools; python_version >= '3.12'\n\n"
        "Requires-Dist: nothing\n"
    )
    installed("torch-2.13.0.dist-info", METADATA=metadata)
    (package,) = installed_packages([str(tmp_path)])
    assert package_requirements(package) == {"typing-extensions": ">=4.10", "sympy": ">=1.13.3"}


def test_folders_that_are_missing_or_strange_are_no_packages(tmp_path, installed):
    installed("no-version.dist-info")
    installed("dist-info")
    assert installed_packages([str(tmp_path), "/nowhere", ""]) is not None
    assert installed_packages([str(tmp_path)]) == []

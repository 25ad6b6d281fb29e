# SPDX-License-Identifier: Apache-2.0
"""What may be written for a mirror, and what the environment adds."""

import sys
from pathlib import Path

import pytest

import truestep as ts
from truestep.core.errors import MissingPackageError, OptionError
from truestep.mirror.address import check_mirror_address, lease_seconds, mirror_address_of_run


@pytest.mark.parametrize(
    "address", ["s3://bucket/x", "gs://bucket/a/b", "az://container/x/", "file:///shared/x"]
)
def test_addresses_are_taken_as_they_are(address):
    assert check_mirror_address(address) == address.rstrip("/")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("bucket/x", "give the address of a place in an object store"),
        ("https://host/x", "give the address of a place in an object store"),
        (Path("x"), "give the address of a place in an object store"),
        (True, "give the address of a place in an object store"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket//x", "without '.', '..', '//'"),
        ("s3://bucket/a/../x", "without '.', '..', '//'"),
        ("file:///shared/./x", "without '.', '..', '//'"),
        ("s3://bucket/%2e%2e/x", "without '.', '..', '//'"),
        ("s3://bucket/a%2F%2e%2e/x", "without '.', '..', '//'"),
        ("s3://bucket/a\nb", "control characters"),
        ("s3://bucket/a%0Ab", "control characters"),
        ("file://shared/x", "an absolute path"),
        ("s3://key:word@bucket/x", "Credentials and options are read from the environment alone"),
        ("s3://bucket/x?token=word", "Credentials and options are read from the environment alone"),
    ],
)
def test_what_is_no_address_is_refused_and_no_secret_is_repeated(address, said, tmp_path):
    with pytest.raises(OptionError, match=said) as raised:
        ts.Run(tmp_path / "x", mirror=address)
    assert "word" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "directory", "chosen", "expected"),
    [
        (None, "runs/x", "/home/me/runs/x", "s3://bucket/me/runs/x"),
        (None, "runs/x", "/home/me/runs/x-2", "s3://bucket/me/runs/x-2"),  # resume="anew"
        (None, "runs/x#1 a?", "/home/me/runs/x#1 a?", "s3://bucket/me/runs/x%231%20a%3F"),
        (None, "/scratch/17/x", "/scratch/17/x", "s3://bucket/me/x"),
        (None, None, "/home/me/runs/train-3", "s3://bucket/me/runs/train-3"),
        ("s3://other/y", "runs/x", "/home/me/runs/x", "s3://other/y"),
    ],
)
def test_the_environment_names_the_place_of_all_runs(given, directory, chosen, expected, monkeypatch):
    assert mirror_address_of_run(None, "runs/x", Path("/runs/x")) is None
    monkeypatch.setenv("TRUESTEP_MIRROR", "s3://bucket/me")
    assert mirror_address_of_run(given, directory, Path(chosen)) == expected


def test_a_directory_that_leads_upwards_has_no_place(monkeypatch):
    monkeypatch.setenv("TRUESTEP_MIRROR", "s3://bucket/me")
    with pytest.raises(OptionError, match="leads upwards"):
        mirror_address_of_run(None, "../x", Path("/home/x"))


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "0", "inf"])
def test_a_lease_that_is_no_time_is_refused(text, monkeypatch):
    monkeypatch.setenv("TRUESTEP_MIRROR_LEASE_SECONDS", text)
    with pytest.raises(OptionError, match="60 is usual"):
        lease_seconds()


@pytest.mark.parametrize("grace", [-1.0, float("nan")])
def test_grace_that_is_no_time_is_refused(grace):
    with pytest.raises(OptionError, match="grace_seconds"):
        ts.Saving(grace_seconds=grace)


def test_without_the_extra_the_message_names_it(monkeypatch, folder_store, tmp_path):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'truestep\[remote\]'"):
        ts.Run(tmp_path / "x", mirror=folder_store, quiet=True)

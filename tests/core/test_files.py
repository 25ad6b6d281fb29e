# SPDX-License-Identifier: Apache-2.0
"""A file that is replaced is the old one or the new one, and nobody's umask is touched for it."""

import os
import stat

import pytest

from truestep.core.atomic_files import replacing_file


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_permissions_that_the_umask_leaves_without_anybody_changing_it(
    tmp_path, monkeypatch
):
    usual = tmp_path / "usual"
    usual.touch()
    # it belongs to the whole process: another thread would make its files with whatever it is meanwhile
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
    with replacing_file(tmp_path / "new") as file:
        file.write(b"new")
    assert permissions(tmp_path / "new") == permissions(usual)


def test_permissions_that_were_asked_for_are_given(tmp_path):
    for mode in (0o600, 0o755):
        with replacing_file(tmp_path / "file", mode) as file:
            file.write(b"x")
        assert permissions(tmp_path / "file") == mode


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted():
        with replacing_file(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

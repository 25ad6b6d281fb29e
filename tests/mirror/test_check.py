# SPDX-License-Identifier: Apache-2.0
"""`truestep mirror check` finds a store that is fit, and one that is not, and leaves nothing behind."""

import json

import pytest
from support.mirrors import mirror_of
from typer.testing import CliRunner

from truestep.cli.mirror import app
from truestep.core.errors import RunDirectoryError
from truestep.mirror.store_check import check_mirror
from truestep.mirror.store_requests import MirrorObjectStore


def test_a_fit_store_is_said_to_be_and_left_as_it_was(store):
    assert check_mirror(store).is_fit
    objects = MirrorObjectStore(store)
    assert objects.names("probe/") == {}
    objects.close()


def test_a_store_that_ignores_create_only_is_found_and_refused(folder_store, tmp_path, monkeypatch):
    monkeypatch.setattr(MirrorObjectStore, "create", lambda objects, path, data, **_: objects.put(path, data))
    done = CliRunner().invoke(app, ["check", folder_store, "--json"])
    assert done.exit_code == 1
    problems = [each["problem"] for each in json.loads(done.stdout)["trials"] if each["problem"]]
    assert len(problems) == 2
    assert "create-only is ignored" in problems[0]
    assert "of 8 that created one object at once 8 succeeded" in problems[1]
    with pytest.raises(RunDirectoryError, match="ignores create-only"):
        mirror_of(folder_store, tmp_path / "a")

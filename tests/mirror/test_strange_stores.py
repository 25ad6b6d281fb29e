# SPDX-License-Identifier: Apache-2.0
"""Stores, disks and names that are not as one expects: what is the matter is said, and nothing is begun anew."""

import errno
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.mirrors import check_store, mirror_of, newest, requests_of, save, sent

import truestep as ts
from truestep.core.errors import OptionError, RunDirectoryError
from truestep.mirror import store_requests as objects_module
from truestep.mirror.store_requests import MirrorObjectStore, StoreRefusesError


@pytest.mark.sliced(3)
@pytest.mark.parametrize(
    "name", ["a b", "x#1", "x%20y", "ü", "a+b", "x?y", "(x)", "a=b&c", "'x'", "~x", "a:b", "*"]
)
def test_directories_of_any_name_have_places_of_their_own(name, tmp_path, monkeypatch, s3_store):
    monkeypatch.chdir(tmp_path)
    base = s3_store.rpartition("/")[0]
    monkeypatch.setenv("TRUESTEP_MIRROR", base)
    with ts.Run(f"runs/{name}", quiet=True, progress=False) as run:
        run.close()
    address = run._shared.mirrored.address
    objects = MirrorObjectStore(base)
    assert [path for path in objects.names(f"runs/{name}/lease/") if path.endswith("000001")]
    objects.close()
    assert [each.directory for each in ts.runs(base).runs] == [address]


def test_who_may_not_delete_is_told_at_the_start(folder_store, tmp_path):
    def refuses(_, words):
        if words.startswith("remove"):
            raise StoreRefusesError("Access Denied (AccessDenied)")

    with (
        requests_of(before=refuses),
        pytest.raises(RunDirectoryError, match=r"Access Denied .*that may read, write and delete"),
    ):
        mirror_of(folder_store, tmp_path / "a")


def test_who_may_delete_no_more_is_told_and_what_is_new_is_sent(folder_store, tmp_path, monkeypatch):
    monkeypatch.setattr("truestep.mirror.mirror.SAID_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("truestep.mirror.mirror.PATIENCE_SECONDS", 0.3)
    may = [True]

    def refuses(_, words):
        if words.startswith("remove") and not may[0]:
            raise StoreRefusesError("Access Denied (AccessDenied)")

    with requests_of(before=refuses):
        mirror = mirror_of(folder_store, tmp_path / "a")
        may[0] = False
        for step in (1, 2, 3, 4):
            save(tmp_path / "a", step)
            sent(mirror, step)
        mirror.close()
    assert any("Access Denied" in each for each in mirror.said)
    assert not any("did not reach" in each for each in mirror.said)
    check_store(folder_store)
    mirror_of(folder_store, tmp_path / "b").close()
    assert newest(tmp_path / "b") == (4, 4.0)


def test_a_disk_that_is_full_at_a_start_is_said_and_the_next_start_goes_on(
    folder_store, tmp_path, monkeypatch
):
    save(tmp_path / "a", 1)
    mirror_of(folder_store, tmp_path / "a").close()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("truestep.mirror.pull.sync_file", full)
        with pytest.raises(RunDirectoryError, match=r"can't be put here: .*No space left on device"):
            mirror_of(folder_store, tmp_path / "b")
    assert [path.name for path in (tmp_path / "b" / "checkpoints").iterdir()] == [".lock"]
    mirror_of(folder_store, tmp_path / "b").close()
    assert newest(tmp_path / "b") == (1, 1.0)


def test_what_a_store_says_is_repeated_and_not_the_head_of_its_page():
    error = Exception(
        'Generic S3 error: 403 Forbidden: <?xml version="1.0"?>\n<Error><Code>RequestTimeTooSkewed</Code>'
        "<Message>The difference between the request time and the server's time is too large.</Message></Error>"
    )
    said = str(objects_module._short_store_error(error))
    assert (
        said
        == "The difference between the request time and the server's time is too large. (RequestTimeTooSkewed)"
    )


def test_a_store_that_knows_no_such_key_is_told_as_such_by_whatever_asks(s3_store, monkeypatch, tmp_path):
    class Refuses(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self):
            said = b"<Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message></Error>"
            self.send_response(403)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        answering = threading.Thread(target=server.serve_forever)
        answering.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        try:
            for ask in (ts.runs, ts.read_checkpoint, lambda address: mirror_of(address, tmp_path / "a")):
                with pytest.raises(RunDirectoryError, match=r"can't be used: No such key.*Say the bucket"):
                    ask(s3_store)
        finally:
            server.shutdown()
            answering.join()


def test_no_bucket_and_no_credentials_are_said(s3_server, s3_store, tmp_path, monkeypatch):
    with pytest.raises(RunDirectoryError, match="there is no such bucket"):
        mirror_of("s3://bucket-of-nobody/x", tmp_path / "a")
    assert not (tmp_path / "a" / "config.json").exists()
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(RunDirectoryError, match=r"can't be used: .*Account must be specified.*the account"):
        mirror_of("az://container/x", tmp_path / "a")
    said = objects_module._short_store_error(
        Exception("Error performing PUT http://169.254.169.254/latest/api/token")
    )
    assert "has no credentials" in str(said)


def test_two_runs_at_one_address_are_told(folder_store, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUESTEP_MIRROR_LEASE_SECONDS", "4")
    options = {"quiet": True, "progress": False, "mirror": folder_store}
    with (
        ts.Run(tmp_path / "a", config={"rate": 1}, **options),
        pytest.raises(RunDirectoryError, match="which is at work"),
    ):
        ts.Run(tmp_path / "b", config={"rate": 2}, **options)
    assert not Path(tmp_path / "b" / "config.json").exists()


@pytest.mark.parametrize("place", ["x", "x/store"])
def test_a_mirror_in_the_run_s_own_directory_is_refused(place, tmp_path):
    with pytest.raises(OptionError, match="would be lost with it"):
        ts.Run(tmp_path / "x", mirror=(tmp_path / place).as_uri(), quiet=True)
    assert not (tmp_path / place / "lease").exists()


def test_a_run_below_another_s_address_is_listed_too(folder_store, tmp_path):
    for name, address in (("a", folder_store), ("b", f"{folder_store}/b")):
        save(tmp_path / name, 1)
        mirror_of(address, tmp_path / name).close()
    assert {run.directory for run in ts.runs(folder_store).runs} == {folder_store, f"{folder_store}/b"}


@pytest.mark.parametrize("gone", ["metrics", "all"])
def test_what_is_deleted_under_a_run_is_not_asked_for_without_a_pause(
    gone, folder_store, tmp_path, monkeypatch
):
    looks, directory = [], tmp_path / "a"
    mirror = mirror_of(folder_store, directory)
    names = mirror._files.names
    monkeypatch.setattr(mirror._files, "names", lambda folder: looks.append(folder) or names(folder))
    save(directory, 1)
    sent(mirror, 1)
    if gone == "all":
        shutil.rmtree(directory)
    else:
        save(directory, 2, logbook={"mark": [1_000_000, 1]})
    looks.clear()
    time.sleep(1.2)
    assert len(looks) < 12  # one each half second, and one for each change
    mirror.close()
    said = sum("the metrics before 000002-step-2 are gone" in each for each in mirror.said)
    assert said == len(mirror.said) == (gone == "metrics")
    check_store(folder_store)

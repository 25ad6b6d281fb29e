# SPDX-License-Identifier: Apache-2.0
"""What is kept of a run's metrics is what reading them gives, whatever happened to the file in between."""

import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.core import disk_cache as store
from truestep.report import listing
from truestep.report.listing import metrics_digest, runs

TICK_SECONDS = 0.02  # longer than the kernel's clock of files takes to move on
LINE = '{"step": 7, "epoch": 0, "elapsed_seconds": 1.0, "values": {"loss": 0.125}}\n'


@pytest.fixture
def folder(tmp_path, monkeypatch, log):
    """A run whose metrics are kept as soon as they are read, in a folder of this test alone."""
    monkeypatch.setattr(store, "cache_folder", lambda part: tmp_path / "kept" / part)
    monkeypatch.setattr(listing, "LEAST_BYTES", 0)
    later(monkeypatch, 60)
    return log(tmp_path / "run", [(step, 0, {"loss": 1 / step, "note": 3.0}) for step in range(1, 30)])


def later(monkeypatch, seconds):
    now = time.time
    monkeypatch.setattr(listing.time, "time", lambda: now() + seconds)


def append(path):
    with path.open("a") as file:
        file.write(LINE)


def rewrite(path):
    text = path.read_text()
    path.write_text(text[:-4] + ("1" if text[-4] != "1" else "2") + text[-3:])


def replace(path):
    other = path.with_name("other")
    other.write_text(LINE)
    other.replace(path)


def back_in_time(path):
    before = path.stat()
    rewrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


CHANGES = [append, rewrite, replace, back_in_time, truncate]


@settings(max_examples=12, deadline=None)
@given(changes=st.lists(st.sampled_from(CHANGES), max_size=4))
def test_it_is_never_stale(tmp_path_factory, changes):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("run")
        patch.setattr(store, "cache_folder", lambda part: folder / "kept" / part)
        patch.setattr(listing, "LEAST_BYTES", 0)
        later(patch, 60)
        path = folder / "metrics.jsonl"
        path.write_text(LINE.replace("7", "3") * 5)
        for change in [None, *changes]:
            if change:
                time.sleep(TICK_SECONDS)
                change(path)
            for _ in range(2):
                assert metrics_digest(folder) == listing._read_metrics_digest(folder)


def test_what_did_not_change_is_not_read_again(folder, monkeypatch):
    first = metrics_digest(folder)
    monkeypatch.setattr(listing, "read_curves", None)
    assert metrics_digest(folder) == first
    assert first.extremes["loss"].lowest.step == 29
    assert "note" not in first.extremes  # nobody knows which way is better


def test_a_list_of_kept_runs_says_what_one_that_reads_says(folder, monkeypatch):
    first = runs(folder).to_dict()
    monkeypatch.setattr(listing, "read_curves", None)
    assert runs(folder).to_dict() == first


def test_what_was_changed_a_moment_ago_is_read_and_not_kept(folder, tmp_path, monkeypatch):
    later(monkeypatch, -60)
    metrics_digest(folder)
    assert not (tmp_path / "kept").exists()


def test_a_file_that_grows_while_it_is_read_is_not_kept(folder, tmp_path, monkeypatch):
    read = listing._read_metrics_digest
    monkeypatch.setattr(
        listing, "_read_metrics_digest", lambda path: (append(path / "metrics.jsonl"), read(path))[1]
    )
    metrics_digest(folder)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "harm", [lambda raw: b"", lambda raw: raw[:-7], lambda raw: raw.replace(b"29", b"30")]
)
def test_a_damaged_document_is_as_if_it_were_not_there(folder, tmp_path, harm):
    first = metrics_digest(folder)
    (entry,) = (tmp_path / "kept" / "runs").iterdir()
    entry.write_bytes(harm(entry.read_bytes()))
    assert metrics_digest(folder) == first


@pytest.mark.parametrize(
    "document", [None, [], {}, {"last_step": 1}, {"last_step": 1, "elapsed_seconds": 1, "extremes": 3}]
)
def test_a_document_of_another_shape_is_none(document):
    assert listing._decode_metrics_digest(document) is None


def test_the_oldest_go_first(tmp_path, monkeypatch):
    for number in range(5):
        store.write_cached(tmp_path, str(number), number)
        os.utime(tmp_path / str(number), (number, number))
    store.forget_oldest_cached(tmp_path, 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["3", "4"]


def test_a_folder_that_can_not_be_written_to_keeps_nothing(folder, tmp_path):
    (tmp_path / "kept").write_text("a file")
    assert metrics_digest(folder) == metrics_digest(folder)

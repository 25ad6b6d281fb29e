# SPDX-License-Identifier: Apache-2.0
"""Media lie under the run's directory, one file a name and step, and go back with the metrics."""

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trainings import digest
from torture import kills

import truestep as ts
from truestep.report.metrics import is_metric_name, read_metrics
from truestep.run.media.folder import media_folder_name, remove_unlisted_media, write_media_files

STEPS = 8


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.glob("media/*/*"))
    }


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=300).filter(is_metric_name), min_size=1, max_size=4, unique=True)
)
def test_any_name_has_a_folder_of_its_own_inside(tmp_path_factory, names):
    directory = tmp_path_factory.mktemp("run")
    written = write_media_files(directory, 3, {name: ts.Text(name) for name in names})
    assert len({each.path for each in written}) == len(names)
    for each in written:
        assert each.path.parent.parent == directory / "media"
        assert each.path.read_bytes() == each.name.encode()


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("samples", "samples"),
        ("test/a b", "test%2Fa%20b"),
        ("..", "%2E%2E"),
        ("aux", "%61ux"),
        ("con.1", "%63on.1"),
        ("console", "console"),
        ("ends.", "ends%2E"),
        ("ß", "%C3%9F"),
        ("a.b-c", "a.b-c"),
    ],
)
def test_names_are_escaped(name, folder):
    assert media_folder_name(name) == folder


def test_log_takes_numbers_and_media_together(tmp_path):
    with ts.Run(tmp_path / "run", progress=False, quiet=True) as run:
        run.log(accuracy=0.5, samples=ts.Image(torch.rand(8, 8)), **{"a/b": ts.Text("first")})
        run.log(**{"a/b": ts.Text("second")})
        run.log(**{"a/b": ts.Text("second")})
    lines = list(read_metrics(run.directory / "metrics.jsonl"))
    assert [dict(line.values) for line in lines] == [{"accuracy": 0.5}, {}, {}]
    assert [line.media["a/b"].file for line in lines] == [
        "media/a%2Fb/00000000.txt",
        "media/a%2Fb/00000000-2.txt",
        "media/a%2Fb/00000000-2.txt",
    ]
    assert lines[0].media["samples"].kind == "image"
    assert set(files(run.directory)) == {each.file for line in lines for each in line.media.values()}


def test_what_log_does_not_take_is_told_what_it_takes(tmp_path):
    with ts.Run(tmp_path / "run", progress=False, quiet=True) as run:
        with pytest.raises(ts.OptionError, match=r"ts.Text\(value\)"):
            run.log(text="words")
        with pytest.raises(ts.OptionError, match="by name"):
            run.log({"samples": ts.Text("x")})
        with pytest.raises(ts.OptionError, match="control codes"):
            run.log(**{"a\nb": ts.Text("x")})


def trained(directory: Path) -> str:
    """Log a picture, a sound or a text of the weights in every step; save after every third."""
    torch.set_num_threads(1)
    with ts.Run(
        directory, saving=ts.Saving(every_steps=3, every_seconds=None), progress=False, quiet=True
    ) as run:
        net = run.learner(torch.nn.Linear(4, 4), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        for step in run.steps(STEPS):
            net.update(lambda rows: net(rows).square().mean(1), torch.ones(2, 4))
            weights = net.weight.detach().clamp(-1, 1)
            kinds = [ts.Image(weights, low=-1), ts.Audio(weights[0], 8_000), ts.Text(str(weights))]
            run.log(**{f"kind {step % 3}": kinds[step % 3]})
    found = hashlib.sha256(repr(files(directory)).encode())
    return digest(run, [net]) + found.hexdigest()


def test_a_killed_run_ends_with_the_same_files(tmp_path):
    report = kills.torture(tmp_path, 4, trainer=trained, where="checkpoints")
    assert report.wrong_ends == []
    assert len(files(tmp_path / "undisturbed")) == STEPS


def test_files_after_the_checkpoint_are_cut_off_with_their_lines(tmp_path):
    def attempt(last: int) -> None:
        run = ts.Run(tmp_path, saving=ts.Saving(every_steps=2, background=False), progress=False, quiet=True)
        for step in run.steps(6):
            run.log(text=ts.Text(f"{step} of the start that comes to {last}"))
            if step == last:
                os._exit(0)
        run.close()

    number = os.fork()
    if number == 0:
        attempt(4)
    os.waitpid(number, 0)
    (tmp_path / "media" / "text" / "mine.md").write_text("not the run's")
    assert "5" in str(sorted(files(tmp_path)))
    attempt(9)
    texts = files(tmp_path)
    assert texts.pop("media/text/mine.md") == b"not the run's"
    assert [text[:1] for text in texts.values()] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [text[-1:] for text in texts.values()] == [b"4"] * 4 + [b"9"] * 2
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["media"]["text"]["file"] for line in lines if "media" in line] == sorted(texts)


def test_what_a_kept_history_names_stays(tmp_path):
    kept = write_media_files(tmp_path, 5, {"text": ts.Text("newer")})[0]
    write_media_files(tmp_path, 6, {"text": ts.Text("of no line")})
    line = {
        "step": 5,
        "epoch": 0,
        "elapsed_seconds": 1.0,
        "values": {},
        "media": {"text": kept.line._asdict()},
    }
    (tmp_path / ".metrics-0.jsonl").write_text(json.dumps(line) + "\n")
    remove_unlisted_media(tmp_path / "metrics.jsonl")
    assert set(files(tmp_path)) == {kept.line.file}
    (tmp_path / ".metrics-0.jsonl").unlink()
    remove_unlisted_media(tmp_path / "metrics.jsonl")
    assert not list((tmp_path / "media").iterdir())


@pytest.mark.parametrize("place", ["media", "media/text"])
def test_nothing_is_written_or_removed_behind_a_link(tmp_path, place):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "text").mkdir(parents=True)
    (elsewhere / "text" / "00000001.txt").write_text("somebody else's")
    (elsewhere / "00000001.txt").write_text("somebody else's")
    run = tmp_path / "run"
    (run / place).parent.mkdir(parents=True)
    (run / place).symlink_to(elsewhere)
    with pytest.raises(
        ts.RunDirectoryError, match=r"run.log\(text=...\) could not be written .* symbolic link"
    ):
        write_media_files(run, 1, {"text": ts.Text("x")})
    remove_unlisted_media(run / "metrics.jsonl")
    assert len(list(elsewhere.rglob("*.txt"))) == 2

# SPDX-License-Identifier: Apache-2.0
"""Pictures, sounds and texts in the report: the right ones, as data, and nothing that a file's text could do."""

import base64
import html
import json
import re

import numpy as np
import pytest

import truestep as ts
from truestep.report import media_samples, render_report
from truestep.run.media.folder import write_media_files


def log(folder, step, **media):
    lines = {each.name: each.line._asdict() for each in write_media_files(folder, step, media)}
    add(folder, step, lines)


def add(folder, step, lines):
    line = {"step": step, "epoch": 0, "elapsed_seconds": 1.0, "values": {"loss": 1.0}, "media": lines}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def embedded(page, kind):
    return [base64.b64decode(found) for found in re.findall(rf'src="data:{kind};base64,([^"]*)"', page)]


def test_each_kind_is_shown_with_its_step_and_what_was_lost(tmp_path):
    picture, sound = ts.Image(np.full((2, 2), 1.5)), ts.Audio(np.zeros(9), 8_000)
    log(tmp_path, 1200, samples=picture, speech=sound, words=ts.Text("\n  <b>&</pre>"))
    page = render_report(tmp_path)
    assert embedded(page, "image/png") == [picture.content]
    assert embedded(page, "audio/wav") == [sound.content]
    assert 'width="192" height="192" class="enlarged"' in page
    assert "<audio controls" in page
    assert "\n\n  &lt;b&gt;&amp;&lt;/pre&gt;</pre>" in page
    assert "4 of 4 values lie outside [0, 1]" in page
    assert page.count("step 1,200</") + page.count("step 1,200<span") == 3


def test_of_many_the_first_the_last_and_some_between_are_shown(tmp_path):
    for step in range(100):
        log(tmp_path, step, words=ts.Text(f"text {step}."))
    page = render_report(tmp_path)
    shown = list(map(int, re.findall(r"text (\d+)\.", page)))
    assert shown[0] == 0
    assert shown[-1] == 99
    assert len(shown) == media_samples.MAX_SHOWN
    assert max(np.diff(shown)) - min(np.diff(shown)) <= 1
    assert "12 of 100, at even distances; all are in media/words." in page


def test_what_would_make_the_page_too_large_is_named_instead(tmp_path, monkeypatch):
    monkeypatch.setattr(media_samples, "MAX_BYTES", 250)
    for step in range(3):
        log(tmp_path, step, words=ts.Text(f"{step}" * 100))
    page = render_report(tmp_path)
    assert "2" * 100 in page  # the newest come first
    assert "0" * 100 not in page
    assert "media/words/00000000.txt (100 B) would make this page too large" in page


def test_a_missing_file_costs_itself_alone(tmp_path):
    log(tmp_path, 1, words=ts.Text("first"))
    log(tmp_path, 2, words=ts.Text("second"))
    (tmp_path / "media/words/00000001.txt").unlink()
    page = render_report(tmp_path)
    assert "second</pre>" in page
    assert "media/words/00000001.txt could not be read: No such file" in page


LEADING_AWAY = [
    {"kind": "text", "file": "../secret.txt"},
    {"kind": "text", "file": "media/../../secret.txt"},
    {"kind": "text", "file": "/etc/hostname"},
    {"kind": "text", "file": "media/words/../1.txt"},
    {"kind": "text", "file": "media/.words/1.txt"},
    {"kind": "script", "file": "media/words/1.txt"},
    {"kind": "text", "file": "media/words/1.png"},
    {"kind": "text"},
    {"kind": "text", "file": 3},
    7,
]


@pytest.mark.parametrize("entry", LEADING_AWAY)
@pytest.mark.parametrize("spoilt", [False, True])
def test_a_changed_line_leads_nowhere_and_spoils_nothing(tmp_path, entry, spoilt):
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret words")
    if spoilt:  # read one by one then
        (folder / "metrics.jsonl").write_text("no line\n")
    add(folder, 1, {"words": entry})
    log(folder, 2, words=ts.Text("shown"))
    page = html.unescape(render_report(folder))
    assert "secret words" not in page
    assert "shown</pre>" in page
    assert page.count('<figure class="text"') == 1


def test_a_link_is_not_followed(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret words")
    log(folder, 1, words=ts.Text("x"))
    file = folder / "media/words/00000001.txt"
    file.unlink()
    file.symlink_to(tmp_path / "secret.txt")
    assert "secret words" not in render_report(folder)


def test_no_rule_of_the_style_swallows_the_next(tmp_path):
    """A rule without its end takes the rules behind it along, and nothing says so."""
    style = re.search(r"<style>(.*?)</style>", render_report(tmp_path), re.DOTALL)[1]
    depth = deepest = 0
    for brace in re.findall(r"[{}]", style):
        depth += 1 if brace == "{" else -1
        deepest = max(deepest, depth)
        assert depth >= 0
    assert (depth, deepest) == (0, 2)  # a media query holds rules

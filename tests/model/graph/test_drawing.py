# SPDX-License-Identifier: Apache-2.0
"""The drawings: nothing overlaps, every word is in its box, and the page works in a browser."""

import json
import re
import shutil
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from typing import NamedTuple

import pytest
import torch
from support.graphs import ARCHITECTURES, WORDS, Transformer, large
from torch import nn

import truestep as ts
from truestep.model.graph import drawing
from truestep.model.graph.page import MAX_DRAWN

needs_graphviz = pytest.mark.skipif(find_spec("pygraphviz") is None, reason="pygraphviz is not installed")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Place(NamedTuple):
    left: float
    top: float
    width: float
    height: float


def numbers(points):
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", points)]


def laid_out(picture):
    """Return where boxes and frames lie (of a box with two edges the inner one), and the tips of arrows by their ends."""
    places, tips = {}, {}
    for group in unescape(drawing.graphviz_svg(picture)).split("<g ")[2:]:
        name = re.search(r"<title>(?:cluster_)?(.*?)</title>", group)[1]
        shapes = [numbers(points) for points in re.findall(r' (?:d|points)="([^"]*)"', group)]
        if "->" not in name:
            across, along = zip(*shapes[0], strict=True)
            left, top = min(across), min(along)
            places[name] = Place(left, top, max(across) - left, max(along) - top)
        elif len(shapes) > 1:
            tips[name] = shapes[1][1]
    return places, tips


def apart(first, second):
    return (
        first.left + first.width <= second.left + 0.1
        or second.left + second.width <= first.left + 0.1
        or first.top + first.height <= second.top + 0.1
        or second.top + second.height <= first.top + 0.1
    )


def inside(inner, outer):
    return (
        outer.left <= inner.left
        and outer.top <= inner.top
        and inner.left + inner.width <= outer.left + outer.width
        and inner.top + inner.height <= outer.top + outer.height
    )


def overlaps(picture, places):
    above = {each.id: each.frame for each in (*picture.boxes, *picture.frames)}

    def holders(name):
        while (name := above[name]) is not None:
            yield name

    names = list(places)
    wrong = [
        (name, holder)
        for name in names
        for holder in holders(name)
        if not inside(places[name], places[holder])
    ]
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            if (
                one not in holders(other)
                and other not in holders(one)
                and not apart(places[one], places[other])
            ):
                wrong.append((one, other))
    return wrong


@pytest.mark.sliced(3)
@needs_graphviz
@pytest.mark.parametrize(
    "name", ["transformer", "ResNet-50", "U-Net", "mixture of experts", "siamese, bilinear"]
)
def test_nothing_overlaps_at_any_depth(name):
    found = large(name)
    for picture in (*found.modules, *found.autograd):
        if len(picture.boxes) > MAX_DRAWN:
            continue
        places, _ = laid_out(picture)
        assert set(places) == {each.id for each in (*picture.boxes, *picture.frames)}
        assert overlaps(picture, places) == []
        for box in picture.boxes:
            wanted, place = drawing.box_size(box), places[box.id]
            assert (place.width, place.height) == pytest.approx(wanted, abs=1)


@needs_graphviz
def test_the_measure_finds_what_overlaps():
    picture = large("U-Net").picture()
    places, _ = laid_out(picture)
    first, second = (box.id for box in picture.boxes[:2])
    assert overlaps(picture, places | {second: places[first]}) != []


@needs_graphviz
def test_an_arrow_ends_at_its_box():
    picture = large("U-Net").picture()
    places, tips = laid_out(picture)
    assert len(tips) == len([arrow for arrow in picture.arrows if not arrow.is_weight])
    for name, (x, y) in tips.items():
        place = places[name.rpartition(">")[2]]
        # A box of several has a second edge around it.
        assert place.left - 6 <= x <= place.left + place.width + 6
        assert place.top - 6 <= y <= place.top + place.height + 6


def test_without_graphviz_the_message_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    found = ts.graph(nn.Linear(2, 2), torch.zeros(1, 2))
    for write in (found.svg, lambda: found.save(tmp_path / "g.html")):
        with pytest.raises(ts.MissingPackageError, match=r"truestep\[graph\]"):
            write()
    assert "Linear" in found._repr_html_()
    assert not (tmp_path / "g.html").exists()


@needs_graphviz
def test_a_page_is_one_file_and_a_drawing_a_file_of_its_own(tmp_path):
    found = ts.graph(Transformer(2), WORDS, saved=True)
    page = found.save(tmp_path / "g.html").read_text()
    assert page.count('class="view"') == len(found.modules) + len(found.autograd)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    svg = found.svg(depth=1)
    assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "prefers-color-scheme" in svg
    assert found._repr_html_().startswith("<img")


@needs_graphviz
def test_words_stay_words_in_a_drawing():
    model = nn.Sequential()
    model.add_module('a id="b" <!-- c -->', nn.Linear(2, 2))
    svg = ts.graph(model, torch.zeros(1, 2)).svg()
    assert 'a id="b" &lt;!-- c --&gt; Linear' in svg
    assert "<title>box" not in svg
    assert 'id="node' not in svg


# Says what is wrong with the words of the drawing that is shown, and whether the buttons work; runs in the page.
MEASURE = """<script>
addEventListener("load", () => {
  const wrong = [];
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is too wide");
  for (const view of document.querySelectorAll(".view:not([hidden])"))
    for (const group of view.querySelectorAll("g.node")) {
      const rects = [...group.querySelectorAll("path")].map((each) => each.getBoundingClientRect());
      for (const text of group.querySelectorAll("text")) {
        const box = text.getBoundingClientRect();
        if (rects.length && !(box.right <= rects.at(-1).right && box.bottom <= rects.at(-1).bottom)) wrong.push(text.textContent);
      }
    }
  const section = document.querySelector(".graphs");
  section.querySelector("[data-depth='1']").click();
  const shown = [...section.querySelectorAll(".view:not([hidden])")].map((view) => view.dataset.depth);
  const before = section.querySelector(".view:not([hidden]) svg").getBoundingClientRect().width;
  section.querySelector("[data-zoom='1.25']").click();
  const after = section.querySelector(".view:not([hidden]) svg").getBoundingClientRect().width;
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify({ wrong, shown, zoom: after / before, ground: getComputedStyle(document.body).backgroundColor });
  document.body.append(out);
});
</script></body>"""


@needs_graphviz
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1200)])
def test_the_page_in_a_browser(tmp_path, scheme, width):
    each = ARCHITECTURES["mixture of experts"]
    path = ts.graph(each.make(), each.batch(), saved=True, attributes=True).save(tmp_path / "g.html")
    path.write_text(path.read_text().replace("</body>", MEASURE))
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
        f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", f"--window-size={width},1500",
        "--virtual-time-budget=3000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    seen = json.loads(unescape(dom.partition('<pre id="measured">')[2].partition("</pre>")[0]))
    assert seen["wrong"] == []
    assert seen["shown"] == ["1"]
    assert seen["zoom"] == pytest.approx(1.25, rel=0.01)
    assert (sum(map(int, seen["ground"].strip("rgb()").split(","))) < 150) == (scheme == "dark")

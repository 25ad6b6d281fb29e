# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser: sizes, overlaps, overflow, contrast, hover values, light and dark.

A browser starts in half a second and more, so one shows all pages of a scheme, one after the other in one frame.
"""

import functools
import json
import shutil
import subprocess
from html import unescape
from typing import NamedTuple

import pytest

from truestep.report import render_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
    pytest.mark.xdist_group("browser"),  # that one worker starts it
]

NAMES = ["plain", "two learners", "three lines", "extremes", "samples", "several"]
WIDTHS = [400, 1200]
SCHEMES = {"dark": 0, "light": 1}

# Returns what is wrong with the page as one sees it; runs in the page.
MEASURE = """
<script>
addEventListener("load", () => {
  const wrong = [], boxes = [];
  const luminance = (color) => {
    const parts = color.map((part) => part / 255).map((part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
    return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
  };
  const parsed = (text) => {
    const numbers = text.match(/[\\d.]+/g).map(Number), isUnit = text.startsWith("color(srgb");
    return [...numbers.slice(0, 3).map((part) => isUnit ? part * 255 : part), numbers[3] ?? 1];
  };
  const over = (top, bottom) => [0, 1, 2].map((index) => top[index] * top[3] + bottom[index] * (1 - top[3]));
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = parsed(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(element.parentElement));
  };
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  HOVER
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement, words = node.data.trim();
    if (!words || element.closest("script, style, title, desc, .hidden")) continue;
    if (element.closest("details:not([open])") && !element.closest("summary")) continue;
    const style = getComputedStyle(element), isSvg = element instanceof SVGElement;
    if (parseFloat(style.fontSize) < 11) wrong.push(`${words}: ${style.fontSize}`);
    const back = ground(isSvg ? element.closest("div") : element), ink = parsed(isSvg ? style.fill : style.color);
    const [a, b] = [luminance(over(ink, back)), luminance(back)].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) wrong.push(`${words}: contrast ${((a + .05) / (b + .05)).toFixed(2)}`);
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.left < -.5 || box.right > innerWidth + .5) wrong.push(`${words}: from ${box.left} to ${box.right}`);
      const card = element.closest(".card, .tile");
      if (card && !element.closest(".tip") && box.right > card.getBoundingClientRect().right)
        wrong.push(`${words}: beyond its card`);
      if (!element.closest(".tip")) boxes.push([words, box]);
    }
  }
  boxes.sort((a, b) => a[1].top - b[1].top);
  for (let i = 0; i < boxes.length; i++)
    for (let j = i + 1; j < boxes.length && boxes[j][1].top < boxes[i][1].bottom; j++) {
      const [p, q] = [boxes[i][1], boxes[j][1]];
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > .5 && down > 3) wrong.push(`"${boxes[i][0]}" and "${boxes[j][0]}" overlap by ${across} x ${down}`);
    }
  const page = getComputedStyle(document.body).backgroundColor;
  const result = { width: innerWidth, page, texts: boxes.length, wrong, tips: window.tips || [] };
  parent.postMessage(JSON.stringify(result), "*");
});
</script></body>
"""

# A window is no narrower than 500 pixels, a frame may be. The next page comes into it when one is measured.
FRAMES = """<!doctype html><body><iframe style="border:0"></iframe><script>
const pages = PAGES, frame = document.querySelector("iframe"), found = [];
const show = ([address, width]) => {
  frame.style = `width:${width}px;height:1500px;border:0`;
  frame.src = address;
};
addEventListener("message", (event) => {
  found.push(event.data);
  if (found.length < pages.length) return show(pages[found.length]);
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
});
show(pages[0]);
</script></body>"""

HOVER = """
  window.tips = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const box = plot.getBoundingClientRect();
    for (const place of [0.001, .5, .999]) {
      plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + place * box.width, clientY: box.top + 20 }));
      const tip = plot.querySelector(".tip"), at = tip.getBoundingClientRect();
      window.tips.push(tip.innerText);
      if (at.left < 0 || at.right > innerWidth) wrong.push(`values from ${at.left} to ${at.right}`);
      const others = document.querySelectorAll(".cursor").length;
      if (others !== document.querySelectorAll(".plot").length) wrong.push(`${others} cursors`);
    }
    plot.dispatchEvent(new PointerEvent("pointerleave"));
    if (document.querySelector(".cursor, .tip, .at")) wrong.push("the values stay when the pointer leaves");
  }
"""


def browse(tmp_path, *arguments, scheme):
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        f"--user-data-dir={tmp_path / 'profile'}", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


class Page(NamedTuple):
    """A report, and how it is looked at."""

    name: str
    width: int
    scheme: str = "light"
    hover: str = ""
    planted: str = ""
    by: str = "step"
    most: int | None = None  # of its runs


@pytest.fixture(scope="module")
def shown(example_runs):
    """Return the folders that a page is of, by its name."""
    several = [example_runs[name] for name in ("plain", "two learners", "extremes")]
    return {name: [folder] for name, folder in example_runs.items()} | {"several": several}


@pytest.fixture(scope="module")
def measured(shown, tmp_path_factory):
    """Return the function that gives what was seen of a page; all of its scheme are looked at with the first."""

    @functools.cache
    def report(name, most):
        return render_report(*shown[name][:most])

    def write(page, path):
        html = report(page.name, page.most).replace("</style>", page.planted + "</style>")
        path.write_text(html.replace("</body>", MEASURE.replace("HOVER", page.hover)), "utf-8")

    @functools.cache
    def seen(scheme):
        pages, folder = [page for page in PAGES if page.scheme == scheme], tmp_path_factory.mktemp(scheme)
        for number, page in enumerate(pages):
            write(page, folder / f"{number}.html")
        addresses = [(f"{number}.html#by-{page.by}", page.width) for number, page in enumerate(pages)]
        frames = folder / "frames.html"
        frames.write_text(FRAMES.replace("PAGES", json.dumps(addresses)), "utf-8")
        window = ["--window-size=1300,1600", "--virtual-time-budget=60000"]
        dom = browse(folder, *window, "--dump-dom", frames.as_uri(), scheme=scheme)
        found = json.loads(unescape(dom.partition('<pre id="measured">')[2].partition("</pre>")[0]))
        return dict(zip(pages, map(json.loads, found), strict=True))

    return lambda page: seen(page.scheme)[page]


def scheme_of(name, width):
    return "dark" if (NAMES.index(name) + WIDTHS.index(width)) % 2 else "light"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_text_is_legible_and_nothing_overlaps_or_overflows(measured, name, width):
    seen = measured(Page(name, width, scheme_of(name, width)))
    assert seen["wrong"] == []
    assert seen["width"] == width
    assert seen["texts"] > 20


PLANTED = [
    (".legend small { font-size: 10px }", "10px"),
    (":root { --soft: #aaaaaa }", "contrast 2."),
    (".plot text { font-size: 24px }", "overlap by"),
    (".tiles { width: 500px }", "the page is"),
]


@pytest.mark.parametrize(("planted", "found"), PLANTED)
def test_the_measure_finds_what_is_planted(measured, planted, found):
    seen = measured(Page("plain", 400, planted=planted))
    assert any(found in wrong for wrong in seen["wrong"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_follows_the_system_between_light_and_dark(measured, scheme):
    seen = measured(Page("two learners", 1200, scheme))
    brightness = sum(map(int, seen["page"].strip("rgb()").split(",")))
    assert (brightness < 150) == (scheme == "dark")
    assert seen["wrong"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_values_show_under_the_pointer_inside_the_window(measured, width):
    seen = measured(Page("two learners", width, hover=HOVER))
    assert seen["wrong"] == []
    assert "step 2,996 · epoch 10 · 0:30" in seen["tips"][2]
    assert "discriminator" in seen["tips"][2]
    assert any("NaN" in tip for tip in seen["tips"])


TURN = """
  window.tips = [];
  const drawn = () => [...document.querySelectorAll(".plot")].map((plot) => plot.querySelector("svg").outerHTML);
  const before = drawn(), slider = document.querySelector("#controls input");
  const smooth = (value) => { slider.value = value; slider.dispatchEvent(new Event("input")); };
  const turn = () => document.querySelectorAll("figcaption button").forEach((button) => button.click());
  const check = (what) => document.querySelectorAll(".plot path, .plot line, .plot text").forEach((each) => {
    for (const { name, value } of each.attributes)
      if (/NaN|Infinity|undefined/.test(value)) wrong.push(`${what}: ${name}="${value.slice(0, 60)}"`);
  });
  smooth(0.9); check("smooth");
  const soft = document.querySelectorAll("path.soft").length;
  turn(); check("smooth, turned");
  const turns = [...document.querySelectorAll(".plot")].map((plot) => plot.parentElement.querySelector("button"));
  if (drawn().some((plot, index) => turns[index] && plot === before[index]))
    wrong.push("a chart did not turn");
  turn(); smooth(0);
  if (drawn().some((plot, index) => plot !== before[index])) wrong.push("a chart is not what it was");
  turn(); check("turned");
  URL.createObjectURL = () => "#"; URL.revokeObjectURL = () => {};
  window.Blob = class { constructor(parts) { window.tips.push(parts[0], String(soft)); } };
  document.querySelector("#controls > button").click();
"""


@pytest.mark.parametrize("name", ["plain", "several"])
def test_smoothing_and_axes_turn_and_turn_back(measured, name):
    seen = measured(Page(name, 1200, hover=TURN))
    assert seen["wrong"] == []
    table, num_soft = seen["tips"]
    header, *rows = table.splitlines()
    assert header == "chart,curve,step,mean,min,max,values"
    assert {"Loss", "accuracy", "Learning rate"} <= {row.split(",")[0] for row in rows}
    assert int(num_soft) > 5


SWITCH = """
  window.tips = [];
  const plots = [...document.querySelectorAll(".plot")];
  const drawn = () => plots.map((plot) => plot.querySelector("svg").outerHTML);
  const slider = document.querySelector("#controls input"), turn = document.querySelector("figcaption button");
  const by = (kind) => [...document.querySelectorAll(".switch button")].find((button) => button.textContent === kind).click();
  const pressed = () => [...document.querySelectorAll(".switch [aria-pressed=true]")].map((button) => button.textContent).join();
  const ticks = (plot) => [...plot.querySelectorAll(".steps-grid text")].map((text) => text.textContent).join(" ");
  const check = (what) => document.querySelectorAll(".plot path, .plot rect, .plot line, .plot text").forEach((each) => {
    for (const { name, value } of each.attributes)
      if (/NaN|Infinity|undefined/.test(value)) wrong.push(`${what}: ${name}="${value.slice(0, 60)}"`);
  });
  const before = drawn(), lines = plots[0].querySelectorAll("path.line").length;
  const shades = document.querySelectorAll("rect.spoiled").length;
  for (const kind of ["epoch", "time"]) {
    by(kind);
    check(kind);
    if (pressed() !== kind) wrong.push(`${kind} is not shown as chosen, but ${pressed()}`);
    if (drawn().some((plot, index) => plot === before[index])) wrong.push(`a chart is not drawn by ${kind}`);
    if (plots[0].querySelectorAll("path.line").length !== lines) wrong.push(`lines are lost by ${kind}`);
    if (!shades !== !document.querySelectorAll("rect.spoiled").length) wrong.push(`NaN is not shaded by ${kind}`);
    window.tips.push(ticks(plots[0]));
    const box = plots[0].getBoundingClientRect();
    plots[0].dispatchEvent(new PointerEvent("pointermove", { clientX: box.right - 1, clientY: box.top + 20 }));
    window.tips.push(plots[0].querySelector(".tip").innerText);
    plots[0].dispatchEvent(new PointerEvent("pointerleave"));
  }
  turn.click();
  slider.value = 0.9;
  slider.dispatchEvent(new Event("input"));
  by("epoch");
  check("turned, smooth");
  if (!document.querySelector("path.soft") || plots.every((plot) => plot.dataset.axis !== "other"))
    wrong.push("the switch forgets what was chosen");
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
  turn.click();
  by("step");
  if (drawn().some((plot, index) => plot !== before[index])) wrong.push("a chart is not what it was");
"""


@pytest.mark.parametrize("name", ["two learners", "several"])
def test_the_x_axis_turns_to_epochs_and_to_time_and_keeps_what_was_chosen(measured, name):
    seen = measured(Page(name, 1200, hover=SWITCH, most=2))
    assert seen["wrong"] == []
    epochs, by_epoch, seconds, by_time = seen["tips"]
    assert seconds == "s 0 10 20 30"
    if name == "two learners":
        assert epochs == "epoch 0 2 4 6 8 10"
        assert by_epoch.startswith("step 2,996 · epoch 10 · 0:30")
        assert by_time.startswith("step 2,996 · epoch 10 · 0:30")
    else:  # 20 epochs of the one, 10 of the other
        assert epochs == "epoch 0 5 10 15 20"
        assert by_epoch.startswith("epoch 19.98")
        assert by_time.startswith("0:30")


TOLD = "window.tips = [document.querySelector('.steps-grid text').textContent];"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("by", ["epoch", "time"])
def test_the_address_keeps_the_x_axis_and_nothing_overlaps_on_it(measured, by, width):
    seen = measured(Page("several", width, hover=TOLD, by=by))
    assert seen["wrong"] == []
    assert seen["tips"] == [{"epoch": "epoch", "time": "d"}[by]]


# what the tests above look at
PAGES = [
    *(Page(name, width, scheme_of(name, width)) for name in NAMES for width in WIDTHS),
    *(Page("plain", 400, planted=planted) for planted, _ in PLANTED),
    *(Page("two learners", 1200, scheme) for scheme in SCHEMES),
    *(Page("two learners", width, hover=HOVER) for width in WIDTHS),
    *(Page(name, 1200, hover=TURN) for name in ("plain", "several")),
    *(Page(name, 1200, hover=SWITCH, most=2) for name in ("two learners", "several")),
    *(Page("several", width, hover=TOLD, by=by) for by in ("epoch", "time") for width in WIDTHS),
]
PAGES = [*dict.fromkeys(PAGES)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_screenshot_can_be_taken(shown, tmp_path, scheme):
    image = pytest.importorskip("PIL.Image")
    page = tmp_path / "page.html"
    page.write_text(render_report(*shown["plain"]), "utf-8")
    picture = tmp_path / "picture.png"
    browse(tmp_path, "--window-size=400,1500", f"--screenshot={picture}", page.as_uri(), scheme=scheme)
    with image.open(picture) as opened:
        assert opened.size == (400, 1500)
        colours = {colour: count for count, colour in opened.convert("RGB").getcolors(maxcolors=2**24)}
    commonest = max(colours, key=colours.get)
    assert (sum(commonest) < 150) == (scheme == "dark")
    assert len(colours) > 100

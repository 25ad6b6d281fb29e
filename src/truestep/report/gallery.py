# SPDX-License-Identifier: Apache-2.0
"""Pictures, sounds and texts on the page, as data of its own: it loads nothing."""

import base64
import struct
from collections.abc import Callable, Iterator

from truestep.core.charts.markup import Html, html_tag
from truestep.report.samples import MediaOnPage, ReportedMedia

SMALL = 192  # pixels; pictures that are narrower are enlarged by a whole factor, each pixel a square


def media_cards(groups: list[ReportedMedia]) -> Iterator[Html]:
    """Return one card a name, its files in the order of their steps."""
    for group in groups:
        yield html_tag(
            "div",
            html_tag("h3", group.name),
            html_tag("div", *(_figure(group.name, sample) for sample in group.shown), class_="samples"),
            html_tag("p", _left_out(group), class_="note") if len(group.shown) < group.num_logged else None,
            class_="card",
        )


def _left_out(group: ReportedMedia) -> str:
    folder = group.shown[-1].file.rpartition("/")[0]
    return f"{len(group.shown)} of {group.num_logged:,}, at even distances; all are in {folder}."


def _figure(name: str, sample: MediaOnPage) -> Html:
    label = f"{name} at step {sample.step:,}"
    shown = SHOWN[sample.kind](sample.content, label) if sample.content is not None else None
    caption = html_tag(
        "figcaption",
        f"step {sample.step:,}",
        html_tag("span", sample.note, class_="lost") if sample.note else None,
    )
    return html_tag("figure", shown, caption, class_=sample.kind)


def _image(content: bytes, label: str) -> Html:
    width, height = struct.unpack(">II", content[16:24].ljust(8, b"\0"))  # of the PNG's header
    factor = max(1, SMALL // max(width, 1))
    return html_tag(
        "img",
        src=_address("image/png", content),
        alt=label,
        width=width * factor,
        height=height * factor,
        class_="enlarged" if factor > 1 else None,
    )


def _audio(content: bytes, label: str) -> Html:
    return html_tag("audio", controls="controls", aria_label=label, src=_address("audio/wav", content))


def _text(content: bytes, label: str) -> Html:
    text = content.decode("utf-8", "replace")
    # A browser does not show the first line end in a pre.
    return html_tag("pre", "\n" + text, aria_label=label, tabindex=0)


def _address(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


SHOWN: dict[str, Callable[[bytes, str], Html]] = {"image": _image, "audio": _audio, "text": _text}

# SPDX-License-Identifier: Apache-2.0
"""Draw what `truestep read` prints on the README's first loop: python docs/make_readme_figure.py

The loop is taken from the README itself, and `tests/docs/test_readme.py` draws it again and compares.
"""

import contextlib
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from truestep.core.result_display import print_results
from truestep.doctor.linting import read_paths
from truestep.doctor.reporting.finding_layout import counted_findings, render_findings

HERE = Path(__file__).parent
COLUMNS = 102  # as wide as its longest line, so that none is broken
COLOURS = TerminalTheme(  # on a ground of its own: it reads the same on a light page and on a dark one
    (22, 27, 34),
    (230, 237, 243),
    [
        *((72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (118, 227, 234), (230, 237, 243)),
    ],
)
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>What truestep read prints on the loop</title>
<style>
.{unique_id}-matrix {{
  font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}}
.{unique_id}-title {{ font: bold 18px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def loop() -> str:
    """Return the loop that the README begins with."""
    readme = (HERE.parent / "README.md").read_text("utf-8")
    found = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def figure() -> str:
    """Return the picture as SVG."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("train.py").write_text(loop(), "utf-8")
        reading = read_paths([Path("train.py")])
    print_results(render_findings(reading.findings, reading.lines), console)
    console.print(counted_findings(reading.findings))
    return console.export_svg(
        title="truestep read train.py", theme=COLOURS, code_format=SVG, unique_id="read"
    )


if __name__ == "__main__":
    (HERE / "figures" / "three-mistakes.svg").write_text(figure(), "utf-8")

# SPDX-License-Identifier: Apache-2.0
"""Train the README's loop and the GAN of `howto/gan-samples.md`, and photograph their reports: python docs/make_report_picture.py

Needs Chromium. Run it again when the report's looks change: a photograph can't be compared, as times differ.
"""

import contextlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SIZE = 1080, 790
SAMPLES_SIZE = 1100, 290
SAMPLES_ALONE = (
    "main > :not(section:has(.samples)) { display: none !important }"
    "main { padding-top: 2px } h2 { margin-top: 10px }"
)
SCHEMES = {"report.png": 1, "report-dark.png": 0}  # as Chromium counts them


def train(folder: Path, page: Path, block: int, name: str) -> Path:
    """Run a block of a page and return the report of its run."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    with contextlib.chdir(folder):
        exec(compile(blocks[block], page.name, "exec"), {"__name__": "__main__"})  # noqa: S102
    return folder / "runs" / name / "report.html"


def photograph(page: Path, target: Path, scheme: int, size: tuple[int, int]) -> None:
    """Write the top of a page as PNG."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        f"--window-size={size[0]},{size[1]}",
        "--hide-scrollbars",
    ]
    scheme_setting = f"--blink-settings=preferredColorScheme={scheme}"
    subprocess.run(
        [*command, scheme_setting, f"--screenshot={target}", page.as_uri()],
        check=True,
        capture_output=True,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        report = train(Path(folder), HERE.parent / "README.md", 1, "readme")
        for name, scheme in SCHEMES.items():
            photograph(report, HERE / "figures" / name, scheme, SIZE)
        report = train(
            Path(folder), HERE / "howto" / "gan-samples.md", 0, "gan-samples"
        )
        html = report.read_text("utf-8").replace("</style>", f"{SAMPLES_ALONE}</style>")
        report.write_text(html, "utf-8")
        photograph(report, HERE / "figures" / "gan-samples.png", 1, SAMPLES_SIZE)

# SPDX-License-Identifier: Apache-2.0
"""Train as the README, the tutorial and `howto/gan-samples.md` do, and photograph the reports: python docs/make_report_picture.py

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
TUTORIAL = "## Shuffle, evaluate, log"  # its first block, and all before it
TUTORIAL_SIZE = 1080, 830
SAMPLES_SIZE = 1100, 290
SAMPLES_ALONE = (
    "main > :not(section:has(.samples)) { display: none !important }"
    "main { padding-top: 2px } h2 { margin-top: 10px }"
)
SCHEMES = {"report.png": 1, "report-dark.png": 0}  # as Chromium counts them


def code_of(text: str) -> list[str]:
    """Return the blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def train(folder: Path, code: str, name: str) -> Path:
    """Run code of a page and return the report of its run."""
    with contextlib.chdir(folder):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})  # noqa: S102
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
        readme = code_of((HERE.parent / "README.md").read_text("utf-8"))
        report = train(Path(folder), readme[1], "readme")
        for name, scheme in SCHEMES.items():
            photograph(report, HERE / "figures" / name, scheme, SIZE)
        before, _, after = (HERE / "tutorial.md").read_text("utf-8").partition(TUTORIAL)
        code = "\n".join([*code_of(before), code_of(after)[0], "run.finish()"])
        report = train(Path(folder), code, "second")
        photograph(report, HERE / "figures" / "tutorial.png", 1, TUTORIAL_SIZE)
        page = (HERE / "howto" / "gan-samples.md").read_text("utf-8")
        report = train(Path(folder), code_of(page)[0], "gan-samples")
        html = report.read_text("utf-8").replace("</style>", f"{SAMPLES_ALONE}</style>")
        report.write_text(html, "utf-8")
        photograph(report, HERE / "figures" / "gan-samples.png", 1, SAMPLES_SIZE)

# SPDX-License-Identifier: Apache-2.0
"""Train the README's loop and photograph its report, in light and dark: python docs/make_report_picture.py

Needs Chromium. Run it again when the report's looks change: a photograph can't be compared, as times differ.
"""

import contextlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SIZE = "1080,758"
SCHEMES = {"report.png": 1, "report-dark.png": 0}  # as Chromium counts them


def train(folder: Path) -> Path:
    """Run the README's second block and return the report."""
    readme = (HERE.parent / "README.md").read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[1]
    with contextlib.chdir(folder):
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    return folder / "runs/readme/report.html"


def photograph(page: Path, target: Path, scheme: int) -> None:
    """Write the top of a page as PNG."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        f"--window-size={SIZE}",
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
        report = train(Path(folder))
        for name, scheme in SCHEMES.items():
            photograph(report, HERE / "figures" / name, scheme)

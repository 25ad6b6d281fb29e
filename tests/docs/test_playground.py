# SPDX-License-Identifier: Apache-2.0
"""The playground in a real browser: Python comes up in the page, finds what `truestep read` finds, and fixes it.

Its folder is built by `make playground`; where that was not done, or no Chromium is installed, the browser's part is skipped.
"""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from functools import partial
from pathlib import Path

import pytest

from truestep.doctor.linting import read_text

ROOT = Path(__file__).parents[2]
BUILT = Path(os.environ.get("TRUESTEP_PLAYGROUND", ROOT / "docs/_build/html/playground"))
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
OPTIONS += ["--disable-component-update", "--disable-sync", "--disable-quic"]

# Served with the page: reports what stands there once it has read, makes the fixes, and reports again.
PROBE = b"""
const report = (name) => fetch("/told", { method: "POST", body: JSON.stringify({ name, state: document.body.dataset.state,
  said: document.getElementById("state").textContent, code: document.getElementById("code").value,
  found: [...document.querySelectorAll("#findings h2")].map((each) => each.textContent),
  wide: document.documentElement.scrollWidth > innerWidth }) });
const settled = async () => {
  delete document.body.dataset.state;
  while (!document.body.dataset.state) await new Promise((go) => setTimeout(go, 50));
};
await settled();
await report("read");
document.getElementById("fix").click();
await settled();
await report("fixed");
"""


class Served(http.server.SimpleHTTPRequestHandler):
    told: list[dict]
    done: threading.Event

    def do_GET(self):
        if self.path == "/probe.js":
            return self._send(PROBE, "text/javascript")
        if self.path == "/":
            page = (BUILT / "index.html").read_bytes()
            return self._send(
                page.replace(b"</html>", b'<script type="module" src="probe.js"></script></html>'),
                "text/html",
            )
        return super().do_GET()

    def do_POST(self):
        type(self).told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._send(b"", "text/plain")
        if len(type(self).told) == 2:
            type(self).done.set()

    def _send(self, content, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def told(tmp_path):
    Served.told, Served.done = [], threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Served, directory=str(BUILT))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/"
        browser = subprocess.Popen(
            [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path}/user", "--remote-debugging-port=0", address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            Served.done.wait(200)
        finally:
            browser.terminate()
            browser.wait(30)
            server.shutdown()
            thread.join()
    return Served.told


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.skipif(
    not (BUILT / "truestep.whl").exists(), reason="the playground is not built: make playground"
)
def test_the_page_reads_and_fixes_in_the_browser(told):
    assert [each["name"] for each in told] == ["read", "fixed"], told
    read, fixed = told
    expected = [f"{each.severity.value} {each.code}" for each in read_text(read["code"]).findings]
    assert [" ".join(title.split()[2:4]) for title in read["found"]] == expected
    assert len(expected) == 3
    assert [each.code for each in read_text(fixed["code"]).findings] == [
        "LOSS001",
        "EVAL002",
    ]  # these take a choice
    assert fixed["said"] == "2 findings"
    assert not any(each["wide"] for each in told)


def test_reading_and_fixing_need_the_standard_library_and_pyflakes_alone(tmp_path):
    code = (
        "import sys\nfrom truestep.doctor.fixing import rewritten_by_findings\nfrom truestep.doctor.linting import read_text\n"
        "assert read_text('import torch\\nprint(torch, absent)\\n').num_files == 1\n"
        "own = {'truestep', *sys.stdlib_module_names}\n"
        "print(sorted({each.partition('.')[0] for each in sys.modules} - own - set(sys.argv[1:])))"
    )
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*{each.partition('.')[0] for each in sys.modules})"],
        check=True,
        capture_output=True,
        text=True,
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *bare.stdout.split()], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "['pyflakes']"


def test_the_page_brings_pyflakes_along(tmp_path):
    sys.path.insert(0, str(ROOT / "docs/playground"))
    try:
        from build import PYTHON, build
    finally:
        sys.path.remove(str(ROOT / "docs/playground"))
    pyodide, wheel = tmp_path / "pyodide", tmp_path / "any.whl"
    pyodide.mkdir()
    for each in (*(pyodide / name for name in PYTHON), wheel):
        each.write_text("")
    build(wheel, pyodide, tmp_path / "out")
    assert "pyflakes/checker.py" in zipfile.ZipFile(tmp_path / "out/pyflakes.zip").namelist()
    assert "./pyflakes.zip" in (tmp_path / "out/worker.js").read_text("utf-8")


def test_each_example_has_what_its_title_says():
    sys.path.insert(0, str(ROOT / "docs/playground"))
    try:
        from examples import examples
    finally:
        sys.path.remove(str(ROOT / "docs/playground"))
    first, *pages = examples()
    assert sorted(each.code for each in read_text(first["code"]).findings) == [
        "EVAL002",
        "GRAD001",
        "LOSS001",
    ]
    for each in pages:
        assert each["title"].split()[0] in {found.code for found in read_text(each["code"]).findings}


def test_what_the_page_runs_in_python_finds_and_fixes_here_too():
    """The worker's Python, without a browser: a name that went is seen in every run of the tests."""
    worker = (ROOT / "docs/playground/worker.js").read_text("utf-8")
    scope = {}
    exec(worker.split("const READING = `")[1].split("`;")[0], scope)
    text = "import torch\n\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return torch.symeig(x)\n"
    for kind in ("read", "fix"):
        answer = json.loads(scope["answer"](kind, text))
        assert answer["problem"] == ""
        assert [each["code"] for each in answer["findings"]] == (
            [each.code for each in read_text(answer["text"], "script.py").findings]
        )

# SPDX-License-Identifier: Apache-2.0
"""`make kill`: the kills are real, the training is started again until it ends, and the comparison's status is the status."""

import re
import runpy
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "kill.py"
STANDIN = """
import sys, time
from pathlib import Path
if sys.argv[1] == "checkpoints":
    sys.exit(7)
folder = Path(sys.argv[sys.argv.index("--out") + 1])
folder.mkdir(parents=True, exist_ok=True)
starts = len(list(folder.glob("start-*"))) + 1
(folder / f"start-{starts}").touch()
with (folder / "metrics.jsonl").open("w") as file:
    file.write('{"step": %d}\\n{"st' % (10 * starts))
print("epoch 1/9  step 1", file=sys.stderr, flush=True)
if folder.name == "killed" and starts < 3:
    time.sleep(60)
(folder / "ended").touch()
"""


def test_a_training_is_killed_and_started_again_until_it_ends(tmp_path, capsys):
    program = tmp_path / "standin.py"
    program.write_text(STANDIN)
    show = runpy.run_path(str(TOOL))["show"]
    show.__globals__["TRUESTEP"] = [sys.executable, str(program)]
    assert show(epochs=1, kills=2, folder=tmp_path / "runs", seed=0) == 7
    starts = [len(list((tmp_path / "runs" / name).glob("start-*"))) for name in ("undisturbed", "killed")]
    assert starts == [1, 3]
    assert (tmp_path / "runs/killed/ended").exists()
    assert re.findall(r"kill (\d): after step (\d+)", capsys.readouterr().out) == [("1", "10"), ("2", "20")]


SHOWN = "0 of 168,688 bytes differ"


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_readme_shows_how_it_ends(page):
    assert f"`{SHOWN}`" in (TOOL.parents[1] / page).read_text("utf-8")


@pytest.mark.slow
def test_no_byte_differs(tmp_path, capfd):
    assert runpy.run_path(str(TOOL))["show"](epochs=20, kills=3, folder=tmp_path, seed=None) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith(SHOWN)

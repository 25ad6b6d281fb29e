# SPDX-License-Identifier: Apache-2.0
"""`make kill`: the kills are real, starts behind them must go on from a checkpoint, and the status is that of the comparison."""

import re
import runpy
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "kill.py"
# Trains for ever until it has been killed as often as the test wants, and says from where it goes on.
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
    file.write('{"step": %d}\\n{"st' % (1000 * starts))
if KILLS >= starts - 1 > KILLS - GOING_ON:
    print(f"truestep: going on from 00001-step-{starts} (step {starts},500, 1 epoch done); the rest is", file=sys.stderr)
print("epoch 1/9  step 1", file=sys.stderr, flush=True)
if folder.name == "killed" and starts <= KILLS:
    time.sleep(60)
(folder / "ended").touch()
"""


def show(tmp_path, *, kills, going_on):
    program = tmp_path / "standin.py"
    program.write_text(f"KILLS, GOING_ON = {kills}, {going_on}\n{STANDIN}")
    function = runpy.run_path(str(TOOL))["show"]
    function.__globals__["TRUESTEP"] = [sys.executable, str(program)]
    return function(epochs=1, kills=kills, folder=tmp_path / "runs", seed=0)


def test_a_training_is_killed_and_started_again_until_it_ends(tmp_path, capsys):
    assert show(tmp_path, kills=2, going_on=2) == 7
    starts = [len(list((tmp_path / "runs" / name).glob("start-*"))) for name in ("undisturbed", "killed")]
    assert starts == [1, 3]
    assert (tmp_path / "runs/killed/ended").exists()
    told = re.findall(
        r"kill (\d): after step (\d+); started again, went on from step (\d+)", capsys.readouterr().out
    )
    assert told == [("1", "1000", "2500"), ("2", "2000", "3500")]


@pytest.mark.parametrize(("going_on", "status"), [(0, 1), (2, 1), (3, 7), (5, 7)])
def test_starts_that_began_anew_prove_nothing(tmp_path, capsys, going_on, status):
    assert show(tmp_path, kills=5, going_on=going_on) == status
    said = f"{going_on} of 5 starts behind a kill went on from a checkpoint past step 0, and 3 are needed"
    assert (said in capsys.readouterr().out) == (status == 1)


SHOWN = "0 of 168,688 bytes differ"


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_readme_shows_how_it_ends(page):
    assert f"`{SHOWN}`" in (TOOL.parents[1] / page).read_text("utf-8")


@pytest.mark.slow
def test_no_byte_differs(tmp_path, capfd):
    assert runpy.run_path(str(TOOL))["show"](epochs=20, kills=3, folder=tmp_path, seed=None) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith(SHOWN)

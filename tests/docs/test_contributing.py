# SPDX-License-Identifier: Apache-2.0
"""CONTRIBUTING shows the house as it is: every room, the files on the three ways, and a way of a batch that was made."""

import re
import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "truestep"
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
# How often a batch comes back to a room that it has left; it may only fall.
MOST_RETURNS = 7


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(REPOSITORY / "tools" / "way_of_a_batch.py"))


def part(heading: str) -> str:
    return re.search(rf"^#+ {heading}\n(.*?)(?=^#)", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_every_room_is_in_the_picture():
    rooms = {each.parent.name for each in PACKAGE.glob("*/__init__.py")}
    drawn = set(re.findall(r"\b[a-z]+\b", re.search(r"```text\n(.*?)```", part("The house"), re.DOTALL)[1]))
    assert sorted(rooms - drawn) == [], "add the room to the picture in CONTRIBUTING.md"


@pytest.mark.parametrize(
    ("heading", "room"),
    [
        ("The way of a batch", ""),
        ("The way of a source text", "doctor/source"),
        ("The way of a checkpoint", "checkpoints"),
    ],
)
def test_what_lies_on_the_way_exists(heading, room):
    steps = "\n".join(re.findall(r"^\d\. .*$", part(heading), re.MULTILINE))
    named = re.findall(r"`([\w/]+(?:\.py)?)`", steps)
    assert len(named) >= 6
    assert [
        name for name in named if not ((PACKAGE / name).exists() or (PACKAGE / room / name).exists())
    ] == []


def test_the_list_of_the_way_is_made_and_its_files_exist(script):
    rows = re.findall(r"^\| \d+ \| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    files = [f"{room}/{file}" for room, listed in rows for file in re.findall(r"`([^`]+)`", listed)]
    assert len(files) > 20
    gone = [file for file in files if not (PACKAGE / file).exists()]
    assert gone == [], "run: python tools/way_of_a_batch.py --write"


def test_a_batch_goes_from_room_to_room_no_more_than_it_did(script):
    way = script["way"]()
    assert way[0] == ("run/loop.py", "RunLoop.batches")
    assert way[-1] == ("engine/fused.py", "FusedOptimizerStep.__call__")
    assert script["num_returns"](way) <= MOST_RETURNS

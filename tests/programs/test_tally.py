# SPDX-License-Identifier: Apache-2.0
"""The table that is kept, habit by law: slices are added once, and what it shows is what was counted."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from programs.draws import drawn_program
from programs.habits import all_habits
from programs.laws import LAWS
from programs.tally import ENDS, KEPT, SliceTally, read_table, shares, table, tallied, total_of, with_slices

NAMES = ["all", *(habit.name for habit in all_habits()[:20])]
KEYS = st.tuples(st.sampled_from([*LAWS]), st.sampled_from(NAMES), st.sampled_from(ENDS))
ROWS = (("all", 95, 3, 2), ("a", 95, 1, 2), ("b", 8, 2, 0), ("c", 1, 0, 0))
COUNTS = st.dictionaries(KEYS, st.integers(1, 3000), min_size=1).map(Counter)


@given(st.lists(COUNTS, min_size=1, max_size=4))
def test_slices_are_added_once_however_often_they_are_kept(slices):
    tally = {
        f"{200 * number}-{200 * number + 150}@c0ffee": {
            "counts": {" ".join(key): n for key, n in each.items()}
        }
        for number, each in enumerate(slices)
    }
    text = ""
    for number, each in tally.items():
        text = with_slices(text, {number: each})
    assert with_slices(text, tally) == text == with_slices("", tally)
    assert text.startswith("slices " + " ".join(tally) + "\n")
    assert read_table(text.partition("\n")[2]) == total_of(tally)


def test_the_kept_table_is_one_that_can_be_added_to():
    text = KEPT.read_text("utf-8")
    assert with_slices(text, {}) == text
    total = read_table(text.partition("\n")[2])
    assert {law for law, name, _ in map(str.split, total) if name == "all"} == {*LAWS}


def test_the_shares_name_the_rarest_habit_and_the_one_most_refused():
    total = Counter(
        {
            f"plain {name} {end}": count
            for name, *counts in ROWS
            for end, count in zip(ENDS, counts, strict=True)
        }
    )
    assert shares(total) == (
        "100 laws held over programs, 2 broken, 3.0 in 100 refused; the habit most refused: b (20 in 100 of 10); "
        "the rarest: c (1.0 in 100)"
    )


def test_a_slice_is_written_and_read_again(tmp_path):
    drawn = drawn_program(1)
    path, held = tmp_path / "build" / "programs.json", SliceTally(1400, "c0ffee")
    names = [habit.name for habit in drawn.habits]
    held.count(1400, "plain", names, "run", 2.0)
    tallied(path, held)
    held.count(1401, "plain", names, "run", 4.0)
    kept = tallied(path, held)
    assert tallied(path, held) == kept
    assert [*kept] == ["1400-1401@c0ffee"]
    assert held.speed() == "20.0 laws held a minute: plain 3.0 s"
    assert read_table(table(total_of(kept))) == total_of(kept)

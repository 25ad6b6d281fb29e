# SPDX-License-Identifier: Apache-2.0
"""`python -m programs.naming [--each 20] [--run]`: how many planted mistakes the doctor names, by reading and by running.
With `--habits`: which habits silence reading. A mistake is named in the plainest program, and not beside this one habit.

An abstention counts as not named. The table of kinds that have a check comes first, then that of kinds that have none.
"""

import argparse
import tempfile
from functools import cache
from pathlib import Path

from programs.compose import Program
from programs.draws import filled, suited
from programs.habits import Habit, all_habits, named
from programs.laws.reading import findings_of
from programs.laws.running import written
from programs.laws.watched import doctored
from programs.planting import Plant, planted, plants


@cache
def read_codes(program: Program) -> set[str]:
    """Return the codes of what is found by reading a program."""
    return {finding.code for finding in findings_of(program.files())}


def run_codes(program: Program) -> set[str]:
    """Return the codes of what `truestep doctor` says of a program."""
    with tempfile.TemporaryDirectory() as folder:
        place = written(Path(folder) / "program", program.files({"own watch": ", doctor=False"}))
        return {finding["code"] for finding in doctored(program, place, Path(folder) / "report.json")[1]}


def is_named(plant: Plant, program: Program) -> tuple[bool, bool]:
    """Return whether reading names the mistake in a program, and whether `truestep doctor`, which reads first, does.

    Only what reading doesn't name is run.
    """
    read = bool(read_codes(program) & plant.codes)
    return read, read or bool(run_codes(program) & plant.codes)


def row(plant: Plant, each: int, runs: bool) -> tuple[int, int, int | None]:
    """Return how many programs have a mistake in them, and how many are named by reading, and by running as well."""
    wrong = planted(plant, each)
    if not runs or not plant.codes:
        return len(wrong), sum(bool(read_codes(program) & plant.codes) for program in wrong), None
    told = [is_named(plant, program) for program in wrong]
    return len(wrong), sum(read for read, _ in told), sum(both for _, both in told)


def silencing(plant: Plant) -> list[str] | None:
    """Return the habits each of which, alone, hides a mistake from reading; None where it isn't named in the plainest program."""
    needed = [named(name) for name in plant.words["habits"].split()]
    needed = [named("plain"), *(habit for habit in needed if habit.slot != "framework")]

    def is_read(*more: Habit) -> bool | None:
        program = filled([*needed, *more])
        wrong = None if program is None else plant.into(program)
        return None if wrong is None else bool(read_codes(wrong) & plant.codes)

    taken = {habit.slot for habit in needed}
    others = [habit for habit in suited(all_habits(), needed) if habit.slot not in taken]
    return [habit.name for habit in others if is_read(habit) is False] if is_read() else None


def table(rows: dict[Plant, tuple[int, int, int | None]]) -> str:
    """Return the shares of plants, with their sum."""
    lines = [f"{'plant':32}{'kind':56}{'code':20}{'read':>8}{'+ run':>8}"]
    for plant, (count, read, run) in rows.items():
        shown = "-" if run is None else f"{run}/{count}"
        lines.append(
            f"{plant.name:32}{plant.kind[:54]:56}{plant.words['code']:20}{f'{read}/{count}':>8}{shown:>8}"
        )
    total = sum(count for count, _, _ in rows.values())
    lines.append(f"named by reading: {sum(read for _, read, _ in rows.values())} of {total}")
    if any(run is not None for _, _, run in rows.values()):
        lines.append(
            f"named by reading and running: {sum(run or 0 for _, _, run in rows.values())} of {total}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=20, help="how many programs for each plant")
    parser.add_argument("--run", action="store_true", help="run them, too")
    parser.add_argument(
        "--habits", action="store_true", help="only which habits hide which mistake from reading"
    )
    asked = parser.parse_args()
    if asked.habits:
        for plant in plants():
            hidden = silencing(plant) if plant.codes else []
            print(f"{plant.name}: {'not named at all' if hidden is None else ' '.join(hidden) or 'none'}")
        return
    rows = {plant: row(plant, asked.each, asked.run) for plant in plants()}
    print("Kinds that have a check\n" + table({plant: each for plant, each in rows.items() if plant.codes}))
    rest = [f"{plant.name}: {plant.kind}" for plant in rows if not plant.codes]
    print("\nKinds that have none\n" + "\n".join(rest))


if __name__ == "__main__":
    main()

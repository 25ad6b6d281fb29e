# SPDX-License-Identifier: Apache-2.0
"""What a seed does not settle, as a screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from truestep.nn.seeds.gaps import Gap

if TYPE_CHECKING:
    from truestep.nn.seeds.seeded import Seeded


def screen(seeded: "Seeded") -> RenderableType:
    """Return the report: the seed, what may vary between runs, what between machines."""
    parts: list[RenderableType] = [Text(f"seed {seeded.seed}: {', '.join(seeded.streams)}")]
    parts += _section("may differ between two runs here", seeded.between_runs)
    parts += _section("may differ elsewhere", seeded.between_machines)
    if seeded.without_deterministic_form:
        verb = "may vary"
        if seeded.flags.deterministic_algorithms:
            verb = "warn" if seeded.flags.warn_only else "raise"
        parts.append(Text(f"\noperations without a deterministic form, which {verb}", style="bold"))
        parts += [Text(f"  {operation}") for operation in seeded.without_deterministic_form]
    return Group(*parts)


def _section(title: str, gaps: Sequence[Gap]) -> list[RenderableType]:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for gap in gaps:
        fix = f"\nfix: {gap.fix}" if gap.fix else ""
        table.add_row(Text(f"  {gap.name}"), Text(f"{gap.says}{fix}"))
    return [Text(f"\n{title}", style="bold"), table if gaps else Text("  nothing that is known", style="dim")]

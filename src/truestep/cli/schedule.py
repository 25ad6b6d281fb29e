# SPDX-License-Identifier: Apache-2.0
"""`truestep schedule`: the learning rate of every update, before the first one is made."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from truestep.cli.options import Json
from truestep.cli.usage import EXAMPLE

app = typer.Typer(add_completion=False)


@app.command(epilog=f"{EXAMPLE}truestep schedule train.py:make_schedule --steps 1000")
def schedule(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py:NAME...",
            help="Functions that make a schedule of the optimizer they are given, or of one of their own.",
        ),
    ],
    *,
    steps: Annotated[int, typer.Option("--steps", help="Updates of the training.")],
    lr: Annotated[
        float, typer.Option("--lr", help="Learning rate of the optimizer that is scheduled.")
    ] = 1.0,
    steps_per_epoch: Annotated[
        int | None,
        typer.Option("--steps-per-epoch", help="Updates in an epoch; schedules that count epochs need it."),
    ] = None,
    by: Annotated[Literal["steps", "epochs"], typer.Option("--by", help="What the axis counts.")] = "steps",
    out: Annotated[
        list[Path] | None, typer.Option("--out", help="Also write a file: .svg, .csv, .png or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plot the learning rate that a schedule gives over a training, with warm-up, peak and end.

    The schedule is stepped on a dummy parameter; several are drawn in one plot.
    """
    from truestep.cli.command_output import show_result, warn_on_screen
    from truestep.cli.object_arguments import load_command_target
    from truestep.model.schedules.plot import plot_schedule
    from truestep.model.schedules.schedule_simulation import factory_taking_optimizer

    factories = {
        target.rpartition(":")[2]: factory_taking_optimizer(load_command_target(target)) for target in targets
    }
    plot = plot_schedule(factories, steps, optimizer=lr, steps_per_epoch=steps_per_epoch, by=by)
    for path in out or []:
        warn_on_screen(f"wrote {plot.save(path)}")
    show_result(plot, as_json=as_json)

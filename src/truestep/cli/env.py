# SPDX-License-Identifier: Apache-2.0
"""`truestep env`: what this machine offers to training, and what is wrong with it."""

import sys
from typing import Annotated

import typer

from truestep.cli.options import Json
from truestep.cli.statuses import EXIT_FAILED
from truestep.core.errors import OptionError

app = typer.Typer(add_completion=False)


@app.command()
def env(
    *,
    as_json: Json = False,
    collect_env: Annotated[
        bool,
        typer.Option(
            "--collect-env", help="Print the format of python -m torch.utils.collect_env, for bug reports."
        ),
    ] = False,
    real_import: Annotated[
        bool,
        typer.Option(
            "--import",
            help="Run the whole `import torch` in a child process, not only its compiled part (about 1 s).",
        ),
    ] = False,
) -> None:
    """Report on torch, CUDA, Python and the machine, with a verdict on each; works without torch.

    The exit status is 1 when a verdict fails.
    """
    from truestep.cli.command_output import show_result
    from truestep.machine.environment import environment
    from truestep.machine.environment.torch_build import run_torch_collect_env

    if as_json and collect_env:
        raise OptionError("--json and --collect-env are two formats. Write one of them.")
    if collect_env:
        done = run_torch_collect_env()
        sys.stdout.write(done.stdout.partition("\n")[2])  # without the line that says that it begins
        raise typer.Exit(done.returncode)
    report = environment(real_import=real_import)
    show_result(report, as_json=as_json)
    raise typer.Exit(EXIT_FAILED if report.failed else 0)

# SPDX-License-Identifier: Apache-2.0
"""`truestep launch`: run a training file in several processes, on one machine or on many."""

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from truestep.cli.command_output import warn_on_screen
from truestep.cli.script_options import END_OF_OPTIONS, OptionsBehindFile
from truestep.cli.statuses import EXIT_USAGE
from truestep.cli.usage import EXAMPLE, refuse_command_option
from truestep.core.errors import did_you_mean_path

app = typer.Typer(add_completion=False)

MOST_PROCESSES = 4096
_SELDOM_OF_A_FILE = ("--processes", "-n", "--nodes", "--rendezvous")  # such as this command itself takes
_MEETS = re.compile(
    r"truestep|distributed|accelerat|lightning|fabric|Trainer|deepspeed|horovod|ignite|composer|megatron|RANK\b|WORLD_SIZE"
)
_MOST_READ = 200  # files in the script's folder and below it


@app.command(
    epilog=f"{EXAMPLE}truestep launch --processes 4 train.py",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def launch(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The training file; what follows are its own arguments.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the file.")] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-n", min=1, help="Processes on this machine; one a GPU by default."),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines; start this command on each of them.")] = 1,
    node_rank: Annotated[int, typer.Option(min=0, help="Which of the machines this is, from 0.")] = 0,
    rendezvous: Annotated[
        str | None,
        typer.Option(help="HOST:PORT where the machines meet: the first one's name, and a free port."),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="Start all processes again, so often, when one fails; a run resumes.")
    ] = 0,
    grace_seconds: Annotated[int, typer.Option(min=0, help="Time to save after being asked to stop.")] = 30,
    logs: Annotated[Path, typer.Option(help="Folder for what each process writes.")] = Path("logs"),
) -> None:
    """Run a training file in several processes, on one machine or on many; it needs no line for it.

    What the first process writes is shown; what each writes is in the folder of logs. When a process fails, all stop, and the
    first lines say which was first, its exception and where in your code it was raised.
    """
    refuse_command_option(str(file), context)
    if (processes or 0) > MOST_PROCESSES:
        warn_on_screen(
            f"--processes {processes}: at most {MOST_PROCESSES:,} are started on a machine; one for each GPU is usual."
        )
        raise typer.Exit(EXIT_USAGE)
    if not file.is_file():
        warn_on_screen(
            f"there is no file {str(file)!r}.{did_you_mean_path(file)} Give the training file: truestep launch -n 2 train.py"
        )
        raise typer.Exit(EXIT_USAGE)
    text = file.read_text("utf-8", errors="replace")
    given = arguments or []
    _refuse_options_behind(OptionsBehindFile.among(context, [str(file)], given, text), file, given, text)
    if given[:1] == [END_OF_OPTIONS]:  # what follows is the file's for certain
        given = given[1:]
    from truestep.run.launching.agent import LaunchOptions
    from truestep.run.launching.spawn import launch_python

    plan = LaunchOptions(
        processes=processes or _num_gpus_or_one(),
        nodes=nodes,
        node_rank=node_rank,
        rendezvous=rendezvous,
        restarts=restarts,
        grace_seconds=grace_seconds,
        logs=logs,
    )
    _warn_processes_never_meet(file, text, plan.processes * plan.nodes)
    raise typer.Exit(launch_python(plan, [str(file), *given]))


def _warn_processes_never_meet(file: Path, text: str, count: int) -> None:
    """Say that several processes never meet, where neither the file nor one beside it that it names has what they meet by."""
    if count == 1 or "torch" not in text or _MEETS.search(text):
        return
    beside = [*file.parent.glob("*.py"), *file.parent.glob("*/*.py")][:_MOST_READ]
    texts = (each.read_text("utf-8", errors="replace") for each in beside if each.stem in text)
    if not any(map(_MEETS.search, texts)):
        warn_on_screen(
            f"{file.name} names nothing by which processes meet, such as ts.Run, torch.distributed, Accelerate or Lightning: each "
            f"of the {count} does all of it by itself, and writes the same files. Write run = ts.Run(directory), with net = "
            f"run.learner(...), or start it once: python {file}"
        )


def _refuse_options_behind(behind: OptionsBehindFile | None, file: Path, given: list[str], text: str) -> None:
    """End where options of this command stand behind the file, of which the file's text knows nothing."""
    if behind is None:
        return
    seldom = [each for each in behind.meant if each.startswith(_SELDOM_OF_A_FILE)]
    own = [each for each in seldom if len(name := each.partition("=")[0].strip("-")) == 1 or name not in text]
    if own:
        warn_on_screen(
            f"{behind}. Nothing was started. If the file reads it all the same: "
            f"{shlex.join(['truestep', 'launch', str(file), END_OF_OPTIONS, *given])}"
        )
        raise typer.Exit(EXIT_USAGE)


def _num_gpus_or_one() -> int:
    import torch

    return max(1, torch.cuda.device_count())

# SPDX-License-Identifier: Apache-2.0
"""`truestep gpus`: show the cards; pick, claim, free and set them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truestep.cli.options import Json
from truestep.cli.statuses import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_NO_COMMAND, EXIT_UNMET
from truestep.cli.usage import EXAMPLE, CommandGroupWithSuggestions
from truestep.core.errors import OptionError
from truestep.core.os_specific import replace_process

if TYPE_CHECKING:
    from truestep.machine.gpus.read import GpuReport
    from truestep.machine.gpus.records import Gpu
    from truestep.machine.gpus.select import CardChoice, CardConditions


app = typer.Typer(cls=CommandGroupWithSuggestions, add_completion=False, invoke_without_command=True)

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this the command is only shown.")]
Cards = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CARD]...", help="Numbers or UUIDs; all cards if none is named."),
]
Count = Annotated[int, typer.Option("--count", help="How many cards.")]
Free = Annotated[str, typer.Option("--free-memory", help="Free memory that each must have: 20GiB.")]
By = Annotated[str, typer.Option("--by", help="Preference: freest, coolest, least-used or edge.")]
Wait = Annotated[str, typer.Option("--wait", help="How long to wait for the cards: 90s, 30m, 2h.")]
Steady = Annotated[
    str,
    typer.Option(
        "--steady", help="How long a card must have met the conditions: a job between epochs is idle."
    ),
]
MaxUtil = Annotated[float | None, typer.Option("--max-utilization", help="At most this busy, in percent.")]
MaxTemp = Annotated[float | None, typer.Option("--max-temperature", help="At most this warm, in °C.")]
Idle = Annotated[bool, typer.Option("--idle", help="Only cards without any process.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Only this card: its number or UUID. Repeatable.")
]


@app.callback()
def gpus(
    context: typer.Context,
    *,
    as_json: Json = False,
    form: Annotated[
        str,
        typer.Option("--format", help="uuid: lines as of nvidia-smi -L. index: bare numbers, for a loop."),
    ] = "table",
    legend: Annotated[bool, typer.Option("--legend", help="Explain each column.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show again and again, until Ctrl-C.")] = False,
    sample: Annotated[
        Path | None, typer.Option("--sample", help="Append readings to this JSONL file, until Ctrl-C.")
    ] = None,
    every: Annotated[str, typer.Option("--every", help="The time between readings.")] = "2s",
    readings: Annotated[
        int | None, typer.Option("--readings", min=1, help="End after so many readings.")
    ] = None,
) -> None:
    """Show every NVIDIA card: memory, load, heat, power, settings and processes.

    The exit status is 3 where there is no card to show.
    """
    if context.invoked_subcommand is not None:
        return
    if form not in ("table", "index", "uuid"):
        raise OptionError(f"There is no format {form!r}. There are: index, uuid.")
    if legend:
        _print_gpu_legend(as_json)
    elif watch or sample is not None:
        if as_json:
            raise OptionError("--json prints one document. For readings over time write --sample FILE.jsonl.")
        _print_gpus_repeatedly(sample, every, readings)
    else:
        _print_gpus_once(as_json, form)


def _print_gpus_once(as_json: bool, form: str) -> None:
    from truestep.cli.command_output import show_result, warn_on_screen
    from truestep.machine.gpus import gpus as read

    report = read()
    if as_json or form == "table":
        show_result(report, as_json=as_json)
    else:
        sys.stdout.writelines(f"{line}\n" for card in report.gpus for line in _card_lines(card, form))
        if report.error:
            warn_on_screen(report.error)
    raise typer.Exit(0 if report.gpus else EXIT_MISSING)


def _card_lines(card: "Gpu", form: str) -> Iterable[str]:
    if form == "index":
        yield str(card.index)
        return
    yield f"GPU {card.index}: {card.name or 'unknown'} (UUID: {card.uuid or card.error or 'unknown'})"
    for place, instance in enumerate(card.mig_instances):
        name = (instance.name or "MIG").rpartition(" ")[2]
        yield f"  MIG {name:<14} Device {place:>2}: (UUID: {instance.uuid or 'unknown'})"


def _print_gpu_legend(as_json: bool) -> None:
    from truestep.cli.command_output import print_json_document, print_result_on_screen
    from truestep.machine.gpus.legend import GpuTableLegend, gpu_legend_document

    print_json_document(gpu_legend_document()) if as_json else print_result_on_screen(GpuTableLegend())


def _print_gpus_repeatedly(sample: Path | None, every: str, readings: int | None) -> None:
    from truestep.core.quantities import parse_seconds
    from truestep.machine.gpus.usage_recording import append_card_reading, watch_cards

    period = parse_seconds(every)
    if period <= 0:
        raise OptionError(f"Readings {every} apart make no sense. Write --every with a time above 0.")
    report: GpuReport | None = None
    try:
        with _reading_display(sample is None) as draw:
            for number, report in enumerate(watch_cards(period), start=1):
                append_card_reading(report, sample) if sample else draw(report)
                if number == readings or (report.error and not report.gpus):
                    break
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except OSError as error:
        if sample is None:  # the screen's own: a full disk, a reader that is gone
            raise
        raise OptionError(
            f"{sample} can't be written ({error.strerror}). Name a file in a folder that is there."
        ) from error
    raise typer.Exit(0 if report and report.gpus else EXIT_MISSING)


@contextmanager
def _reading_display(is_shown: bool) -> Iterator[Callable[["GpuReport"], None]]:
    """Give what draws readings: in place on a terminal, one below the other elsewhere."""
    from truestep.cli.command_output import command_console, print_result_on_screen
    from truestep.core.rich_imports import Live

    screen = command_console()

    def print_at_once(report: "GpuReport") -> None:
        print_result_on_screen(report)
        sys.stdout.flush()  # a pipe's reader sees each as it comes

    if not (is_shown and screen.is_terminal):
        yield print_at_once
        return
    with Live(console=screen, auto_refresh=False, screen=True) as live:
        yield lambda report: live.update(report, refresh=True)


def _parse_card_conditions(free_memory: str, *, only: list[str] | None, **given: Any) -> "CardConditions":
    from truestep.core.quantities import parse_bytes
    from truestep.machine.gpus.select import CardConditions

    return CardConditions(free_memory_bytes=parse_bytes(free_memory), only=tuple(only or ()), **given)


def _pick_and_claim_cards(
    wanted: "CardConditions", wait: str, steady: str, hold: float | None
) -> "CardChoice":
    """Pick and claim: for `hold` seconds, or, without it, by descriptors that stay open through exec."""
    from truestep.cli.command_output import warn_on_screen
    from truestep.core.quantities import parse_seconds
    from truestep.machine.gpus.claims import CardClaims
    from truestep.machine.gpus.pick import CardWaiter, CardWaitingLimits

    claims = CardClaims()

    def claim_card(uuid: str) -> None:
        if hold is None:
            os.set_inheritable(claims.hold(uuid), True)
        elif hold > 0:
            claims.reserve(uuid, hold)

    patience = CardWaitingLimits(wait_seconds=parse_seconds(wait), steady_seconds=parse_seconds(steady))
    choice = CardWaiter(wanted, claims).pick(claim_card, patience)
    for message in choice.warnings:
        warn_on_screen(message)
    return choice


def _exit_if_no_card_fits(choice: "CardChoice") -> None:
    from truestep.cli.command_output import warn_on_screen

    if not choice.met:
        warn_on_screen(choice.explain())
        raise typer.Exit(EXIT_MISSING if choice.error else EXIT_UNMET)


@app.command()
def pick(
    *,
    count: Count = 1,
    free_memory: Free = "0",
    by: By = "freest",
    wait: Wait = "0",
    steady: Steady = "0",
    max_utilization: MaxUtil = None,
    max_temperature: MaxTemp = None,
    idle: Idle = False,
    only: Only = None,
    hold: Annotated[
        str, typer.Option("--hold", help="How long the cards stay claimed for you to start.")
    ] = "60s",
    as_json: Json = False,
) -> None:
    """Print the UUIDs of the cards that fit best, in order of preference.

    CUDA_VISIBLE_DEVICES=$(truestep gpus pick | paste -sd,) takes them as they are. The exit status is 4
    where the conditions are not met, with the nearest miss, and 3 where there is no card at all.
    """
    from truestep.cli.command_output import print_json_document
    from truestep.core.quantities import parse_seconds

    most = {"max_utilization_percent": max_utilization, "max_temperature_celsius": max_temperature}
    wanted = _parse_card_conditions(
        free_memory, count=count, by=by, only=only, without_processes=idle, **most
    )
    choice = _pick_and_claim_cards(wanted, wait, steady, parse_seconds(hold))
    if as_json:
        says = None if choice.met else choice.explain()
        print_json_document({**choice.to_dict(), "uuids": list(choice.uuids), "says": says})
    else:
        sys.stdout.writelines(f"{uuid}\n" for uuid in choice.uuids)
    _exit_if_no_card_fits(choice)


@app.command(epilog=f"{EXAMPLE}truestep gpus run --count 2 -- python train.py")
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run on the cards.")],
    *,
    count: Count = 1,
    free_memory: Free = "0",
    by: By = "freest",
    wait: Wait = "0",
    steady: Steady = "0",
    max_utilization: MaxUtil = None,
    max_temperature: MaxTemp = None,
    idle: Idle = False,
    only: Only = None,
) -> None:
    """Run a command on picked cards, claimed until it ends; its exit status is passed on.

    truestep gpus run --count 2 --free-memory 20GiB -- python train.py
    """
    from truestep.cli.command_output import warn_on_screen
    from truestep.machine.gpus.visible_devices import cuda_environment_variables

    most = {"max_utilization_percent": max_utilization, "max_temperature_celsius": max_temperature}
    wanted = _parse_card_conditions(
        free_memory, count=count, by=by, only=only, without_processes=idle, **most
    )
    choice = _pick_and_claim_cards(wanted, wait, steady, None)
    _exit_if_no_card_fits(choice)
    sys.stdout.flush()
    try:
        # The command takes this process's place: signals, status and claims are then its own.
        replace_process(command[0], command[1:], {**os.environ, **cuda_environment_variables(choice)})
    except OSError as error:
        warn_on_screen(f"{command[0]} can't be started: {error.strerror}")
        raise typer.Exit(EXIT_NO_COMMAND) from error


@app.command()
def free(
    *,
    end: Annotated[
        list[int] | None, typer.Option("--end", help="End this process of yours. Repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Kill it: it can't clean up.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="How long it may take to end.")] = "10s",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Show which processes hold the cards' memory; end those of yours that you name.

    Memory inside a running Python process is freed there: truestep.free_memory().
    """
    from truestep.cli.command_output import print_json_document, print_result_on_screen, warn_on_screen
    from truestep.core.quantities import parse_seconds
    from truestep.core.result_display import result_to_plain
    from truestep.machine.gpus import gpus as read
    from truestep.machine.memory.processes import end_process, holding_processes

    report = read()
    holding = holding_processes(report)
    seconds = parse_seconds(timeout)
    endings = [end_process(pid, holding, force=force, timeout_seconds=seconds) for pid in end or () if yes]
    if as_json:
        said = {
            "processes": result_to_plain(holding),
            "endings": result_to_plain(endings),
            "error": report.error,
        }
        print_json_document({"schema_version": 1, **said})
    else:
        from truestep.machine.memory.screen import holding_processes_table

        nobody = report.error or "No process holds a card."
        print_result_on_screen(holding_processes_table(holding) if holding else nobody)
        for ending in endings:
            warn_on_screen(f"process {ending.pid}: {ending.says}")
        if end and not yes:
            warn_on_screen(f"would end {', '.join(map(str, end))}; add --yes to do it")
    if not report.gpus:
        raise typer.Exit(EXIT_MISSING)
    raise typer.Exit(EXIT_FAILED if any(not ending.ended for ending in endings) else 0)


@app.command(epilog=f"{EXAMPLE}truestep gpus persistence on --yes")
def persistence(
    state: Annotated[str, typer.Argument(metavar="on|off", help="Whether the driver stays loaded.")],
    cards: Cards = None,
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Show, or run with --yes, the command that keeps the driver loaded while no process uses a card."""
    from truestep.machine.gpus.admin import persistence_command

    if state not in ("on", "off"):
        raise OptionError(f"Persistence is on or off, not {state!r}.")
    _run_admin_command_on_cards(
        cards or [], lambda card: persistence_command(card, state == "on"), yes, as_json
    )


@app.command()
def reset(cards: Cards = None, *, yes: Yes = False, as_json: Json = False) -> None:
    """Show, or run with --yes, the command that resets cards after an error that stays."""
    from truestep.machine.gpus.admin import reset_command

    _run_admin_command_on_cards(cards or [], reset_command, yes, as_json)


def _run_admin_command_on_cards(
    names: list[str], command_for: Callable[["Gpu"], list[str]], yes: bool, as_json: bool
) -> None:
    """Show each card's command; run it only with --yes, as root, and on a card that nobody uses."""
    from truestep.cli.command_output import print_json_document, warn_on_screen
    from truestep.machine.gpus import gpus as read
    from truestep.machine.gpus.admin import reason_not_to_run_card_command, select_cards_by_name

    report = read()
    if not report.gpus:
        warn_on_screen(report.error or "there is no card")
        raise typer.Exit(EXIT_MISSING)
    cards = select_cards_by_name(report, names)
    if as_json:
        shown = [{"index": card.index, "command": command_for(card)} for card in cards]
        print_json_document({"schema_version": 1, "commands": shown, "run": yes})
    else:
        sys.stdout.writelines(" ".join(command_for(card)) + "\n" for card in cards)
    if not yes:
        warn_on_screen("nothing was done; add --yes to run this, as root, on cards that no process uses")
        return
    refused = {card.index: why for card in cards if (why := reason_not_to_run_card_command(card))}
    for index, why in refused.items():
        warn_on_screen(f"card {index}: not done, {why}")
    if refused:
        raise typer.Exit(EXIT_FAILED)
    sys.stdout.flush()
    statuses = [subprocess.run(command_for(card), check=False).returncode for card in cards]
    raise typer.Exit(max(statuses))

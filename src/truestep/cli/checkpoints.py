# SPDX-License-Identifier: Apache-2.0
"""`truestep checkpoints`: what a run has saved, whether it is sound, and what can be done with it."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from truestep.checkpoints.checkpoint import Checkpoint, PassedOver
from truestep.checkpoints.checkpoint_lookup import read_newest_checkpoint
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.foreign_formats import describe_path_without_run
from truestep.checkpoints.listing import (
    checkpoint_contents,
    checkpoint_overview,
    find_checkpoint_damage,
    select_checkpoint,
)
from truestep.cli import command_output
from truestep.cli.options import Json
from truestep.cli.statuses import EXIT_FAILED
from truestep.cli.usage import EXAMPLE, CommandGroupWithSuggestions
from truestep.core.errors import OptionError
from truestep.core.metric_direction import MEASURED
from truestep.core.result_display import result_to_plain
from truestep.core.text_formatting import bytes_text, plural
from truestep.mirror.address import mirror_address_or_none
from truestep.mirror.local_mirror_state import CHECKPOINTS
from truestep.mirror.reading import StoredFiles, read_local_or_stored_run
from truestep.report.listing import reportable_runs_in

if TYPE_CHECKING:
    from truestep.checkpoints.state_diff import StateChange

app = typer.Typer(
    cls=CommandGroupWithSuggestions,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="List, verify, show, compare, export and prune the checkpoints of a run.",
)

Run = Annotated[
    str, typer.Argument(help="The run's directory, its checkpoints, or one of them; or its mirror's address.")
]
Which = Annotated[
    str | None,
    typer.Argument(
        help='A step or a name as `list` shows it, or "highest METRIC", "lowest METRIC"; the newest sound one if left out.'
    ),
]

LONG_LIST = 16


@app.command("list", epilog=f"{EXAMPLE}truestep checkpoints list runs/digits")
def list_checkpoints(run: Run, as_json: Json = False) -> None:
    """List the checkpoints, newest first, from their manifests alone."""
    found = read_local_or_stored_run(run, checkpoint_overview)
    if as_json:
        _print_json({"checkpoints": [_checkpoint_json_entry(item) for item in found]})
    elif not found:
        command_output.print_line_on_screen(f"no checkpoints in {run}.{_no_checkpoints_hint(run)}")
    else:
        _print_table(
            ["name", "saved at", "why", "size", "state", "metrics"],
            [_checkpoint_table_row(item) for item in found],
        )
    if not found and not _run_folders_at(run):  # one may have saved nothing yet
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog=f"{EXAMPLE}truestep checkpoints verify runs/digits")
def verify(run: Run, as_json: Json = False) -> None:
    """Read every byte of every checkpoint and compare it with its checksum; exit 1 if any is damaged."""
    results: list[dict[str, Any]] = []

    def verify_checkpoints_at(path: Path, files: CheckpointFiles) -> None:
        for item in checkpoint_overview(path, files):
            problem = item.reason if isinstance(item, PassedOver) else find_checkpoint_damage(item)
            results.append({"name": item.name, "sound": problem is None, "problem": problem})
            if not as_json:
                command_output.print_line_on_screen(
                    f"{item.name}  {'sound' if problem is None else f'DAMAGED  {problem}'}"
                )

    read_local_or_stored_run(run, verify_checkpoints_at)
    if as_json:
        _print_json({"checkpoints": results})
    if not results:
        command_output.warn_on_screen(
            f"{run} has no checkpoints: there was nothing to verify.{_no_checkpoints_hint(run)}"
        )
    if not results or not all(result["sound"] for result in results):
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog=f"{EXAMPLE}truestep checkpoints show runs/digits")
def show(run: Run, which: Which = None, as_json: Json = False) -> None:
    """Show what a checkpoint holds: its tensors with dtype and shape, and every other value."""
    checkpoint = read_local_or_stored_run(run, lambda path, files: _select_with_warnings(path, files, which))
    values = checkpoint_contents(checkpoint)
    if as_json:
        _print_json({**_checkpoint_json_entry(checkpoint), "contents": values})
        return
    created, reason, size, state = _checkpoint_table_row(checkpoint)[1:5]
    metrics = (f"  {name}={_format_metric(metric)}" for name, metric in checkpoint.metrics.items())
    held = (f"  {name}  {value}" for name, value in _without_long_lists(values).items())
    command_output.print_wrapped_lines(
        [f"{checkpoint.name}  {reason}, {state}, {size}, {created}", *metrics, *held]
    )


@app.command(epilog=f"{EXAMPLE}truestep checkpoints diff runs/a runs/b")
def diff(
    run: Run,
    first: Annotated[
        str, typer.Argument(metavar="OTHER|FIRST", help="Another run; or, with SECOND, a checkpoint of RUN.")
    ],
    second: Annotated[
        str | None, typer.Argument(metavar="[SECOND]", help="A second checkpoint of RUN.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the newest checkpoints of two runs, or two checkpoints of one run, bit for bit; exit 1 if they differ.

    Times that the clock gave are not compared, nor whether a run was resumed, nor the words of its command line.
    """
    from truestep.checkpoints.state_diff import compare_states

    before, old = _load_checkpoint_state(run, None if second is None else first)
    after, new = (
        _load_checkpoint_state(first, None) if second is None else _load_checkpoint_state(run, second)
    )
    found = compare_states(old, new)
    if as_json:
        paths = {"first": before, "second": after}
        _print_json({**paths, **found.to_dict()})
    else:
        command_output.print_wrapped_lines([*_change_lines(found.changes), str(found)])
    if found.changes:
        raise typer.Exit(EXIT_FAILED)


def _change_lines(changes: "Sequence[StateChange]") -> list[str]:
    """Return the lines of changes: of the models first, then of values, as settings, then of optimizers; of each kind some."""
    kinds: list[list[str]] = [[], [], []]
    for each in changes:
        kinds[0 if "/modules/" in each.name else 1 if not each.differing_bytes else 2].append(str(each))
    shown = [
        kind[:LONG_LIST] + [f"... and {len(kind) - LONG_LIST} more; --json has all"] * (len(kind) > LONG_LIST)
        for kind in kinds
    ]
    return [line for kind in shown for line in kind]


@app.command(epilog=f"{EXAMPLE}truestep checkpoints export runs/digits weights.safetensors")
def export(
    run: Run,
    target: Annotated[Path, typer.Argument(help="A file to write: .safetensors, .pt or .pth.")],
    which: Annotated[
        str | None,
        typer.Option(
            help='A step, a name, "highest METRIC" or "lowest METRIC"; the newest sound one if left out.'
        ),
    ] = None,
    learner: Annotated[
        str | None, typer.Option(help="Whose weights, where a run has several learners.")
    ] = None,
    averages: Annotated[
        bool, typer.Option("--averages", help="The moving averages in place of the weights.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the weights alone into one plain file that other programs read."""
    from truestep.mirror.state_sources import export_weights

    with _print_warnings_on_screen():
        path = str(export_weights(run, target, checkpoint=which, learner=learner, averages=averages))
    _print_json({"path": path}) if as_json else command_output.print_line_on_screen(path)


@app.command(epilog=f"{EXAMPLE}truestep checkpoints prune runs/digits --last 2")
def prune(
    run: Run,
    *,
    last: Annotated[int, typer.Option(help="Keep this many of the newest.")] = 2,
    best: Annotated[int, typer.Option(help="Keep this many of the best.")] = 0,
    best_metric: Annotated[str | None, typer.Option(help="The metric that says which are best.")] = None,
    best_mode: Annotated[
        Literal["max", "min"] | None,
        typer.Option(help="Whether the highest or the lowest is best; of a loss it must be said."),
    ] = None,
    every: Annotated[int | None, typer.Option(help="Keep those whose step is a multiple.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what is not to be kept, once what is kept was found sound. Refused while the run goes on."""
    from truestep.checkpoints.listing import prune_checkpoints_in
    from truestep.checkpoints.retention import Retention

    retention = Retention(
        last=last,
        best=best,
        best_metric=best_metric,
        best_mode=best_mode,
        every=every,
    )
    if (address := mirror_address_or_none(run)) is not None:
        raise OptionError(
            f"{address} is a mirror, and what a mirror keeps is what the run's ts.Saving says: no other process removes anything "
            "there. Give a folder to prune."
        )
    names = prune_checkpoints_in(Path(run), retention, dry_run=dry_run)
    if as_json:
        _print_json({"names": names, "removed": not dry_run})
        return
    for name in names:
        command_output.print_line_on_screen(f"{'would remove' if dry_run else 'removed'} {name}")
    if not names:
        command_output.warn_on_screen(
            f"nothing was removed from {run}: {plural(len(checkpoint_overview(Path(run))), 'checkpoint')} there."
        )


def _run_folders_at(run: str) -> list[Path]:
    return [] if mirror_address_or_none(run) else reportable_runs_in(Path(run))


def _no_checkpoints_hint(run: str) -> str:
    """Return what there is where no checkpoint is, as a sentence behind a blank."""
    runs = _run_folders_at(run)
    if runs == [Path(run)]:
        return " The run has saved none yet."
    if runs:
        return f" `truestep runs {run}` lists the runs in it."
    instead = "" if mirror_address_or_none(run) else describe_path_without_run(Path(run))
    return instead or " Write the folder of a run: truestep checkpoints list runs/digits"


def _select_with_warnings(path: Path, files: CheckpointFiles, which: str | None) -> Checkpoint:
    """Return a checkpoint; what was passed over to reach it is said on stderr."""
    with _print_warnings_on_screen():
        if which is None and isinstance(files, StoredFiles):  # what is read of it later is checked then
            return read_newest_checkpoint(path, lambda _: None, files)[0]
        return select_checkpoint(path, which, files)


def _load_checkpoint_state(run: str, which: str | None) -> tuple[str, Any]:
    """Return where a checkpoint is, and its state."""

    def load_from(path: Path, files: CheckpointFiles) -> tuple[str, Any]:
        checkpoint = _select_with_warnings(path, files, which)
        address = mirror_address_or_none(run)
        where = f"{address}/{CHECKPOINTS}/{checkpoint.name}" if address else str(checkpoint.path)
        return where, checkpoint.load()

    return read_local_or_stored_run(run, load_from)


@contextmanager
def _print_warnings_on_screen() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        command_output.warn_on_screen(str(warning.message))


def _checkpoint_json_entry(item: Checkpoint | PassedOver) -> dict[str, Any]:
    if isinstance(item, PassedOver):
        return {"name": item.name, "problem": item.reason}
    told = result_to_plain(item.summary) | {"size_bytes": item.bytes, "metrics": item.metrics}
    del told["sequence"]
    return {"name": item.name, **told}


def _checkpoint_table_row(item: Checkpoint | PassedOver) -> list[str]:
    if isinstance(item, PassedOver):
        return [item.name, "", "", "", f"damaged: {item.reason}", ""]
    summary = item.summary
    words = [] if summary.healthy else ["unhealthy"]
    words += [] if summary.complete else ["mid-step"]
    metrics = " ".join(
        f"{name}={_format_metric(value)}"
        for name, value in item.metrics.items()
        if name.rpartition("/")[2] not in MEASURED  # nobody chooses a checkpoint by these
    )
    created = summary.created[:16].replace("T", " ")
    return [item.name, created, summary.reason, bytes_text(item.bytes), " ".join(words) or "whole", metrics]


def _without_long_lists(values: dict[str, str]) -> dict[str, str]:
    """Return the values with one line for each long list of numbers, as the state of a generator is; JSON has them all."""
    counts = Counter(name.rpartition("/")[0] for name in values)
    shown: dict[str, str] = {}
    for name, value in values.items():
        parent, _, last = name.rpartition("/")
        if last.isdigit() and counts[parent] > LONG_LIST:
            shown[parent] = f"{counts[parent]} values"
        else:
            shown[name] = value
    return shown


def _format_metric(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_table(columns: list[str], rows: list[list[str]]) -> None:
    from truestep.core.rich_imports import Table, Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    command_output.print_result_on_screen(table)


def _print_json(document: dict[str, Any]) -> None:
    command_output.print_json_document({"schema_version": 1, **document})

# SPDX-License-Identifier: Apache-2.0
"""A summary in a terminal: the tree of layers, then the totals."""

from typing import TYPE_CHECKING, Any

from truestep.core.line_breaking import WrappingText
from truestep.core.rich_imports import Group, RenderableType, Table, Text
from truestep.core.text_formatting import bytes_text, plural, short_number

if TYPE_CHECKING:
    from truestep.model.summaries.summary import Layer, Summary


def model_summary_table(summary: "Summary") -> RenderableType:
    """Return what rich draws."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("layer", overflow="fold", ratio=3)
    table.add_column("output", overflow="fold", ratio=2)
    is_timed = any(layer.seconds is not None for layer in summary.layers)
    for heading in ("parameters", "share", "mult-adds", *(("time",) if is_timed else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in summary.layers:
        if summary.depth is None or layer.depth <= summary.depth:
            table.add_row(
                *_layer_cells(layer, summary, is_timed=is_timed), style="" if layer.num_calls else "dim"
            )
    return Group(
        table,
        Text(),
        *(Text(line) for line in _totals_lines(summary)),
        *(Text(note, "yellow") for note in summary.notes),
    )


def _layer_cells(layer: "Layer", summary: "Summary", *, is_timed: bool) -> list[RenderableType]:
    own_name = layer.name.rpartition(".")[2]
    title = Text("  " * layer.depth + (f"{own_name}: {layer.type}" if own_name else layer.type))
    if layer.same_as:
        title.append(f" (= {layer.same_as})", "cyan")
    if layer.kernel_size:
        title.append(f" {'×'.join(map(str, layer.kernel_size))}", "dim")
    for shared in layer.shared_parameters:
        title.append(f" ({shared})", "cyan")
    if layer.num_calls != 1:
        title.append(f" {plural(layer.num_calls, 'call')}" if layer.num_calls else " not called", "yellow")
    is_counted = layer.num_parameters and not layer.same_as
    cells: list[RenderableType] = [
        WrappingText(title, 2 * layer.depth + 2),
        _shapes_text(layer.output_shapes),
        f"{layer.num_parameters:,}" if is_counted else "-",
        f"{layer.num_parameters / max(1, summary.num_parameters):.1%}" if is_counted else "-",
        short_number(layer.multiply_adds) if layer.multiply_adds else "-",
    ]
    if is_timed:
        cells.append("-" if layer.seconds is None else f"{1000 * layer.seconds:.3g} ms")
    return cells


def _shapes_text(shapes: Any) -> str:
    if isinstance(shapes, list):
        return ", ".join(map(_shapes_text, shapes[:3])) + (" …" if len(shapes) > 3 else "")
    return "×".join(map(str, shapes)) or "-"


def _totals_lines(summary: "Summary") -> list[str]:
    frozen = summary.num_parameters - summary.num_trainable
    count, size = f"{summary.num_parameters:,} ({frozen:,} frozen)", bytes_text(summary.parameters_bytes)
    adds = f"{summary.multiply_adds:,} ({short_number(summary.multiply_adds)})"
    lines = [
        f"Parameters {count}, {size}; buffers {bytes_text(summary.buffers_bytes)}",
        f"Multiply-adds {adds} in one forward of this batch",
    ]
    memory = summary.memory
    if memory:
        lines.append(
            f"Training with {memory.optimizer} in {memory.precision}: peak {bytes_text(memory.peak_bytes)}: weights "
            f"{bytes_text(memory.weights_bytes)}, gradients {bytes_text(memory.gradients_bytes)}, optimizer "
            f"{bytes_text(memory.optimizer_bytes)}, activations {bytes_text(memory.activations_bytes)}, batch "
            f"{bytes_text(memory.batch_bytes)}"
            + (f", and {bytes_text(memory.passing_bytes)} for a moment" if memory.passing_bytes > 0 else "")
        )
    return lines

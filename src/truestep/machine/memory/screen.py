# SPDX-License-Identifier: Apache-2.0
"""Memory reports as screens."""

from collections.abc import Iterable, Iterator, Sequence

from truestep.core.rich_imports import Group, RenderableType, Table, Text
from truestep.core.text_formatting import bytes_text
from truestep.machine.gpus.columns import UNKNOWN
from truestep.machine.gpus.table import Cell, gpu_table, process_command_text
from truestep.machine.memory.amounts import MemoryAmounts
from truestep.machine.memory.free import MemoryReport
from truestep.machine.memory.processes import HoldingProcess
from truestep.machine.memory.tensors import LiveTensor


def memory_report_table(report: MemoryReport) -> RenderableType:
    """Return a memory report as a screen."""
    parts: list[RenderableType] = [_amounts_table(report.before, report.after)]
    parts += _tensors_table(report.tensors, report.num_storages, "live tensors")
    if report.unseen_bytes:
        size = bytes_text(report.unseen_bytes)
        unseen = "on devices that Python does not see: kept by graphs of autograd, or in C++"
        parts.append(Text(f"{size} more {unseen}"))
    if report.last_error_kept:
        said = "The last error's traceback keeps its variables: free_memory(forget_last_error=True)"
        parts.append(Text(said))
    parts += [Text(f"process {ending.pid}: {ending.says}") for ending in report.endings]
    if report.processes:
        parts += ["", holding_processes_table(report.processes)]
    return Group(*parts)


def leftover_memory_table(
    before: MemoryAmounts, after: MemoryAmounts | None, tensors: Sequence[LiveTensor], num_storages: int
) -> RenderableType:
    """Return what a block left behind as a screen."""
    if after is None:
        return Text("The block has not ended yet.")
    parts: list[RenderableType] = [_amounts_table(before, after)]
    if not num_storages:
        parts.append(Text("The block left no tensor behind."))
    parts += _tensors_table(tensors, num_storages, "tensors left behind")
    return Group(*parts)


def _amounts_table(before: MemoryAmounts, after: MemoryAmounts) -> Table:
    rows = []
    for name, old, new in _amounts_before_and_after(before, after):
        change = None if old is None or new is None else new - old
        sign = "+" if change and change > 0 else ""
        rows.append((name, bytes_text(old), bytes_text(new), f"{sign}{bytes_text(change)}"))
    headings = [("Memory", False), ("Before", True), ("After", True), ("Change", True)]
    return gpu_table(headings, rows, flexible=0)


def _amounts_before_and_after(
    before: MemoryAmounts, after: MemoryAmounts
) -> Iterator[tuple[str, int | None, int | None]]:
    yield "this process", before.process_bytes, after.process_bytes
    old = {device.device: device for device in before.devices}
    for device in after.devices:
        earlier = old.get(device.device)
        yield f"{device.device} allocated", earlier.allocated_bytes if earlier else 0, device.allocated_bytes
        yield f"{device.device} reserved", earlier.reserved_bytes if earlier else 0, device.reserved_bytes
        yield f"{device.device} used by all", earlier.used_bytes if earlier else None, device.used_bytes


def _tensors_table(tensors: Sequence[LiveTensor], num_storages: int, title: str) -> list[RenderableType]:
    if not tensors:
        return []
    headings = [("Size", True), ("Tensor", False), ("Held by", False)]
    table = gpu_table(headings, [_tensor_cells(tensor) for tensor in tensors], flexible=2)
    heading = Text(f"\n{title}: the {len(tensors)} largest of {num_storages}\n", style="bold")
    return [heading, table]


def _tensor_cells(tensor: LiveTensor) -> tuple[Cell, ...]:
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    graph = "\nkeeps its graph" if tensor.keeps_graph else ""
    held = "\n".join(tensor.held_by) or "nothing in Python: a graph of autograd, or C++"
    return bytes_text(tensor.storage_bytes), f"{shape} {tensor.dtype} {tensor.device}{graph}", Text(held)


def holding_processes_table(processes: Iterable[HoldingProcess]) -> Table:
    """Return the processes that hold cards as a table."""
    rows = [_process_cells(one) for one in processes]
    headings = [("PID", True), ("User", False), ("Memory", True), ("Cards", False), ("Command", False)]
    return gpu_table(headings, rows, flexible=4)


def _process_cells(one: HoldingProcess) -> tuple[Cell, ...]:
    process = one.process
    command = f"(this process) {process.command or ''}" if one.own else process.command
    return (
        str(process.pid),
        Text(process.user or UNKNOWN),
        bytes_text(process.memory_used_bytes),
        ",".join(map(str, one.cards)) or "open",
        process_command_text(command),
    )

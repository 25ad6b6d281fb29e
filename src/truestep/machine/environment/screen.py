# SPDX-License-Identifier: Apache-2.0
"""The environment as a screen: the verdicts first, then the facts in sections."""

from collections.abc import Iterator, Sequence

from truestep.core.rich_imports import Console, ConsoleOptions, Group, Padding, RenderableType, Table, Text
from truestep.core.text_formatting import bytes_text
from truestep.machine.environment.container import ContainerLimits
from truestep.machine.environment.cuda_toolkit import CudaHomeCandidate
from truestep.machine.environment.facts import Machine
from truestep.machine.environment.report import Environment
from truestep.machine.environment.verdicts import EnvironmentVerdict

# a verdict's mark, the same where a terminal knows only ASCII, and its style
_MARKS = {  # the worst first, as they are shown
    "fail": ("✗", "x", "bold red"),
    "warn": ("!", "!", "bold yellow"),
    "pass": ("✓", "+", "green"),
    "skip": ("·", "-", "dim"),
}
Rows = Iterator[tuple[str, str]]


def environment_table(environment: Environment) -> RenderableType:
    """Return the whole report."""
    machine = environment.machine
    sections = {
        "torch": _torch_rows(machine),
        "GPUs": _gpu_rows(machine),
        "CUDA toolkit": _toolkit_rows(machine),
        "Python": _python_rows(machine),
        "packages": _package_rows(machine),
        "machine": _machine_rows(machine),
        "variables": iter(machine.variables.items()),
    }
    parts: list[RenderableType] = [
        Text("verdicts", style="bold"),
        Padding(_verdict_counts_line(environment.verdicts), (0, 0, 0, 2)),
        Padding(_VerdictsTable(environment.verdicts), (0, 0, 1, 2)),
    ]
    for title, rows in sections.items():
        if listed := list(rows):
            parts += [Text(title, style="bold"), Padding(_two_column_table(listed), (0, 0, 1, 2))]
    return Group(*parts)


def _verdict_counts_line(verdicts: Sequence[EnvironmentVerdict]) -> Text:
    """Return how many are wrong in one line, since that is what is asked first."""
    failed, warned = (sum(each.status == status for each in verdicts) for status in ("fail", "warn"))
    if not failed and not warned:
        return Text("Nothing is wrong here.", style="green")
    counts = [f"{failed} {'fails' if failed == 1 else 'fail'}"] if failed else []
    counts += [f"{warned} {'warning' if warned == 1 else 'warnings'}"] if warned else []
    return Text(", ".join(counts), style="bold red" if failed else "bold yellow")


def _two_column_table(rows: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", max_width=30, overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


class _VerdictsTable:
    """Draws the verdicts in characters that the screen knows."""

    def __init__(self, verdicts: Sequence[EnvironmentVerdict]) -> None:
        self.verdicts = verdicts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        arrow = "->" if options.ascii_only else "→"
        table = Table.grid(padding=(0, 1))
        table.add_column(width=1)
        table.add_column(overflow="fold")
        for verdict in sorted(self.verdicts, key=lambda each: [*_MARKS].index(each.status)):
            if verdict.status != "skip":
                fix = f"\n{arrow} {verdict.fix}" if verdict.fix else ""
                table.add_row(_verdict_mark(verdict.status, options), Text(f"{verdict.says}{fix}"))
        skipped = dict.fromkeys(verdict.says for verdict in self.verdicts if verdict.status == "skip")
        if skipped:
            says = Text(f"not judged here: {'; '.join(skipped)}", style="dim")
            table.add_row(_verdict_mark("skip", options), says)
        yield table


def _verdict_mark(status: str, options: ConsoleOptions) -> Text:
    mark, ascii_mark, style = _MARKS[status]
    return Text(ascii_mark if options.ascii_only else mark, style=style)


def _torch_rows(machine: Machine) -> Rows:
    torch = machine.torch
    if torch is None:
        yield "torch", "not installed"
        return
    yield "torch", f"{torch.version or 'of unknown version'} in {torch.folder}"
    yield "built for", f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "the CPU"
    if not torch.loads:
        yield "loads", f"no: {torch.error}"
        return
    if torch.architectures:
        yield "architectures", " ".join(torch.architectures)
    if torch.cuda or torch.hip:
        yield "sees a device", {True: "yes", False: "no", None: "unknown"}[torch.cuda_available]
    versions = ("cuDNN", torch.cudnn_version), ("NCCL", torch.nccl_version)
    yield from ((name, version) for name, version in versions if version)
    backends = {"nccl": torch.nccl, "gloo": torch.gloo, "mpi": torch.mpi}
    yield "distributed", ", ".join(name for name, there in backends.items() if there) or "none"
    yield "threads", str(torch.num_threads)


def _gpu_rows(machine: Machine) -> Rows:
    gpus = machine.gpus
    if gpus.driver_version:
        yield "driver", f"{gpus.driver_version}, supports CUDA up to {gpus.cuda_version or 'unknown'}"
    for card in gpus.gpus:
        facts = [card.name or "unknown", f"capability {card.compute_capability or 'unknown'}"]
        yield f"card {card.index}", card.error or ", ".join([*facts, bytes_text(card.memory_total_bytes)])
    if gpus.error:
        yield "NVIDIA", gpus.error
    for pci in machine.cards_on_bus:
        if pci.vendor != "NVIDIA" or not gpus.gpus:
            yield f"bus {pci.bus_id}", f"{pci.vendor} {pci.device}, kernel driver {pci.driver or 'none'}"


def _toolkit_parts_text(home: CudaHomeCandidate) -> str:
    parts = {"bin": home.has_bin, "include": home.has_include, "lib64": home.has_lib64}
    there = " ".join(name for name, present in parts.items() if present)
    missing = " ".join(name for name, present in parts.items() if not present)
    return f"has {there or 'nothing'}" + (f", lacks {missing}" if missing else "")


def _toolkit_rows(machine: Machine) -> Rows:
    for home in machine.toolkit.homes:
        if home.path:
            taker = "torch takes" if machine.torch and machine.torch.cuda else "a CUDA build would take"
            takes = f"{taker} it: " if home.wins else ""
            wrong = f"; {home.wrong}" if home.wrong else ""
            yield home.source, f"{takes}{home.path} {_toolkit_parts_text(home)}{wrong}"
        else:
            yield home.source, "-"
    for nvcc in machine.toolkit.nvccs:
        behind = f", a wrapper of {nvcc.toolkit or 'an unknown toolkit'}" if nvcc.wrapper else ""
        yield "nvcc", f"{nvcc.version or 'unknown'} at {nvcc.path}{behind}"
    for name, found in (("cuDNN", machine.cudnn), ("NCCL", machine.nccl)):
        for library in found:
            yield name, f"{library.version or 'unknown'} at {library.path} ({library.found_by})"


def _python_rows(machine: Machine) -> Rows:
    python = machine.python
    yield "Python", f"{python.version} ({python.implementation}) at {python.executable}"
    yield "environment", f"{python.prefix}{'' if python.virtual else ' (not a virtual environment)'}"


def _package_rows(machine: Machine) -> Rows:
    for package in machine.packages:
        by = f"  {package.installer}" if package.installer not in (None, "pip") else ""
        yield package.name, f"{package.version}{by}{'  editable' if package.editable else ''}"


def _machine_rows(machine: Machine) -> Rows:
    system, cpu, memory = machine.system, machine.processor, machine.memory
    yield "system", f"{system.name}, kernel {system.kernel}, {system.libc or 'no glibc'}"
    yield "compilers", ", ".join(map(" ".join, system.compilers.items())) or "none"
    named = f"{cpu.model or 'unknown'} ({cpu.architecture})"
    yield "processor", f"{named}, {cpu.cores or '?'} cores, {cpu.threads} threads"
    yield "usable CPUs", f"{cpu.usable}; {' '.join(cpu.instruction_sets)}"
    yield "memory", f"{bytes_text(memory.total_bytes)}, {bytes_text(memory.available_bytes)} available"
    free = bytes_text(memory.shared_free_bytes)
    yield "/dev/shm", f"{bytes_text(memory.shared_total_bytes)}, {free} free"
    for disk in machine.disks:
        free = f"{bytes_text(disk.free_bytes)} free of {bytes_text(disk.total_bytes)}"
        yield disk.purpose, f"{disk.path}: {free} ({disk.file_system or 'unknown'})"
    yield "container", _container_limits_text(machine.container)
    open_files = machine.limits.open_files
    yield "open files", str(open_files) if open_files else "unlimited"


def _container_limits_text(found: ContainerLimits) -> str:
    limits = [f"{found.cpu_limit:g} CPUs"] if found.cpu_limit else []
    limits += [f"memory {bytes_text(found.memory_limit_bytes)}"] if found.memory_limit_bytes else []
    return f"{found.kind or 'none seen'}; limits: {', '.join(limits) or 'none'}"

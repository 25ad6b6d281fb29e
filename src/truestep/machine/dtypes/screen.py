# SPDX-License-Identifier: Apache-2.0
"""The dtypes as tables that fit 80 columns."""

from collections.abc import Iterator, Sequence

from truestep.core.rich_imports import Group, RenderableType, Text
from truestep.machine.dtypes.report import DtypeReport, DtypeRow
from truestep.machine.gpus.columns import UNKNOWN
from truestep.machine.gpus.table import Heading, gpu_table

Line = tuple[str, ...]


def dtype_report_table(report: DtypeReport) -> RenderableType:
    """Return the report as tables: the numbers, where they compute, the old names, and times where they were taken."""
    asked = ", ".join(
        f"{device.name} ({device.count} x {device.model})" if device.model else device.name
        for device in report.devices
    )
    parts: list[RenderableType] = [Text(f"torch {report.torch_version}; asked: {asked}\n", style="dim")]
    parts += _dtype_table(_NUMBERS, [_numeric_limits_cells(row) for row in report.dtypes])
    devices = [device.name for device in report.devices]
    places = [(name, False) for name in ("dtype", *devices, "NumPy", "safetensors", "ONNX")]
    title = "computes here (+ a sum, @ a matrix product), and is carried by"
    parts += _dtype_table(places, [_device_support_cells(row) for row in report.dtypes], title=title)
    title = "other names, and the old ones of its tensors"
    parts += _dtype_table(_OLD, [_legacy_names_cells(row) for row in report.dtypes], title=title)
    if report.matmul_size:
        title = f"seconds for a product of {report.matmul_size} x {report.matmul_size} (median; repeats)"
        headings = [("dtype", False), *((name, True) for name in devices)]
        parts += _dtype_table(headings, [_matmul_times_cells(row) for row in report.dtypes], title=title)
    return Group(*parts, Text(f"\nONNX: {report.onnx_source}", style="dim"))


_NUMBERS: list[Heading] = [
    ("dtype", False),
    *((name, True) for name in ("bits", "least", "most", "above 0", "eps", "digits")),
]
_OLD: list[Heading] = [("dtype", False), ("also", False), ("on the CPU", False), ("on CUDA", False)]


def _dtype_table(
    headings: Sequence[Heading], lines: Sequence[Line], *, title: str | None = None
) -> Iterator[RenderableType]:
    """Yield a table of the dtypes about which it has something to say, and name the others."""
    told = [line for line in lines if any(cell != UNKNOWN for cell in line[1:])]
    if title:
        yield Text(f"\n{title}\n", style="bold")
    yield gpu_table(headings, told, flexible=-1)
    others = [line[0] for line in lines if line not in told]
    if others:
        yield Text(f"\nnothing for {', '.join(others)}", style="dim")


def _numeric_limits_cells(row: DtypeRow) -> Line:
    numbers = row.numbers
    cells = (numbers.least, numbers.most, numbers.smallest, numbers.eps, row.decimal_digits)
    return (row.name, str(numbers.bits), *map(_number_in_8_characters, cells))


def _number_in_8_characters(number: float | None) -> str:
    """Return a number in at most 8 characters: large whole ones by their power of two."""
    if number is None:
        return UNKNOWN
    if isinstance(number, int) and abs(number) >= 2**16 - 1:
        power = round(abs(number) + 1).bit_length() - 1
        return f"-2^{power}" if number < 0 else f"2^{power}-1"
    if abs(number) < 1e6 and number == int(number):
        return str(int(number))
    return f"{number:.2g}"


def _device_support_cells(row: DtypeRow) -> Line:
    signs = [" ".join("+" * each.add + "@" * each.matmul) or UNKNOWN for each in row.devices]
    return (row.name, *signs, *(name or UNKNOWN for name in (row.numpy, row.safetensors, row.onnx)))


def _legacy_names_cells(row: DtypeRow) -> Line:
    legacy = (row.legacy.get(place, UNKNOWN) for place in ("cpu", "cuda"))
    return (row.name, ", ".join(row.aliases) or UNKNOWN, *legacy)


def _matmul_times_cells(row: DtypeRow) -> Line:
    seconds = ((each.matmul_seconds, each.repeats) for each in row.devices)
    return (row.name, *(f"{median:.2g} ({repeats})" if median else UNKNOWN for median, repeats in seconds))

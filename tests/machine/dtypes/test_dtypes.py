# SPDX-License-Identifier: Apache-2.0
"""`ts.dtypes`: every dtype of the installed torch, and each cell true."""

import io
import json
import math
import sys
import types
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from support import warm

import truestep as ts
from truestep.core.errors import OptionError
from truestep.machine.dtypes import dtype_support
from truestep.machine.dtypes.dtype_values import numeric_limits_of_dtype
from truestep.machine.dtypes.report import onnx_dtype_names

DTYPES = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}


@pytest.fixture(scope="module")
def report():
    return ts.dtypes()


@pytest.fixture(scope="module")
def rows(report):
    return {row.name: row for row in report.dtypes}


def test_every_dtype_has_one_row_with_all_its_names(report, rows):
    assert len(report.dtypes) == len(rows) == len(DTYPES)
    named = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    assert {name for row in report.dtypes for name in (row.name, *row.aliases)} == set(named)
    for row in report.dtypes:
        assert all(named[name] is named[row.name] for name in row.aliases)
        assert row.bytes == named[row.name].itemsize


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
def test_ranges_are_those_that_torch_knows(dtype):
    numbers = numeric_limits_of_dtype(dtype)
    assert numbers.kind != "unknown"
    if dtype.is_floating_point and "x2" not in str(dtype):
        known = torch.finfo(dtype)
        assert (numbers.least, numbers.most, numbers.bits) == (known.min, known.max, known.bits)
        if dtype != torch.float8_e5m2fnuz:  # of which torch 2.13 says 0.125
            assert numbers.eps == known.eps
    elif "quint4x2" not in str(dtype) and "quint2x4" not in str(dtype):
        try:
            known = torch.iinfo(dtype)
        except TypeError:
            return
        assert (numbers.least, numbers.most, numbers.bits) == (known.min, known.max, known.bits)


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_the_numbers_of_8_bits_are_those_of_all_256_patterns(name):
    every = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).double()
    finite = every[every.isfinite()]
    numbers = numeric_limits_of_dtype(getattr(torch, name))
    assert (numbers.least, numbers.most) == (finite.min(), finite.max())
    assert numbers.smallest == finite[finite > 0].min()
    assert numbers.eps == finite[finite > 1].min() - 1


def test_the_packed_float_holds_the_sixteen_values_of_its_specification():
    numbers = numeric_limits_of_dtype(
        torch.float4_e2m1fn_x2
    )  # 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
    assert (numbers.bits, numbers.least, numbers.most, numbers.smallest, numbers.eps) == (4, -6, 6, 0.5, 0.5)


@pytest.mark.parametrize(
    ("name", "digits"), [("float32", 7.2), ("float64", 16.0), ("float16", 3.3), ("bfloat16", 2.4)]
)
def test_digits_are_those_of_the_precision(rows, name, digits):
    assert rows[name].decimal_digits == digits


def test_the_smallest_float64_is_pythons(rows):
    assert rows["float64"].numbers.smallest == math.ulp(0)


def test_numpy_agrees_where_it_has_the_dtype(rows):
    for row in rows.values():
        if row.numpy and row.numbers.kind == "float":
            known = np.finfo(row.numpy)
            assert (row.numbers.eps, row.numbers.smallest) == (known.eps, float(known.smallest_subnormal))
    assert rows["bfloat16"].numpy is None
    assert rows["uint64"].numpy == "uint64"


def test_what_computes_here_computes(rows):
    for row in rows.values():
        (cpu,) = [one for one in row.devices if one.device == "cpu"]
        if row.name in ("float32", "float64", "int64", "complex64"):
            assert (cpu.add, cpu.matmul) == (True, True)
        if row.name.startswith(("bits", "q", "uint1", "float4")) and row.name != "uint16":
            assert (cpu.add, cpu.matmul) == (False, False)
        assert cpu.matmul_seconds is None
    assert not rows["bool"].devices[0].matmul


def test_safetensors_codes_are_those_that_come_back(rows):
    assert {
        name: rows[name].safetensors
        for name in ("float32", "bfloat16", "bool", "float8_e5m2", "qint8", "bits8")
    } == {
        "float32": "F32",
        "bfloat16": "BF16",
        "bool": "BOOL",
        "float8_e5m2": "F8_E5M2",
        "qint8": None,
        "bits8": None,
    }


def test_onnx_names_are_those_that_torchs_exporter_knows(rows):
    known = pytest.importorskip("torch.onnx.ops._dtype_mappings").ONNX_DTYPE_TO_TORCH_DTYPE
    exported = {str(dtype).removeprefix("torch.") for dtype in known.values()}
    assert exported <= {row.name for row in rows.values() if row.onnx}


def test_an_installed_onnx_is_asked_instead_of_the_table(monkeypatch, report):
    if "onnx" not in sys.modules and "table" in report.onnx_source:
        kinds = types.SimpleNamespace(DataType={"FLOAT": 1, "STRING": 8})
        made = types.SimpleNamespace(__version__="0.1", TensorProto=kinds, __spec__=object())
        monkeypatch.setitem(sys.modules, "onnx", made)
        assert onnx_dtype_names() == ({"float32": "FLOAT"}, "onnx 0.1")


def test_the_old_names_are_torchs_own(rows):
    assert rows["float16"].legacy["cuda"] == "torch.cuda.HalfTensor"
    assert rows["bool"].legacy == {"cpu": "torch.BoolTensor", "cuda": "torch.cuda.BoolTensor"}
    assert rows["float32"].legacy["cuda sparse"] == "torch.cuda.sparse.FloatTensor"
    assert rows["float8_e5m2"].legacy == {}
    for row in rows.values():
        if "cpu" in row.legacy:
            assert torch.empty(0, dtype=getattr(torch, row.name)).type() == row.legacy["cpu"]


def test_times_are_taken_where_there_is_a_product():
    timed = ts.dtypes(time_matmul=True, size=4)
    assert timed.matmul_size == 4
    for row in timed.dtypes:
        cpu = row.devices[0]
        assert (cpu.matmul_seconds is not None) == cpu.matmul
        assert (cpu.repeats > 0) == cpu.matmul


@pytest.mark.parametrize("size", [0, -1, 1.5, True, 16385, "4"])
def test_a_size_that_can_not_be_is_refused(size):
    with pytest.raises(OptionError, match="from 1 to 16384"):
        ts.dtypes(time_matmul=True, size=size)


def test_nothing_of_the_process_changes():
    state, always, default = torch.get_rng_state(), torch.is_warn_always_enabled(), torch.get_default_dtype()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.dtypes(time_matmul=True, size=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert (torch.is_warn_always_enabled(), torch.get_default_dtype()) == (always, default)


def test_warnings_that_torch_gives_once_are_left_for_the_user():
    code = """
import warnings, torch, truestep as ts
ts.dtypes()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.empty(1, dtype=torch.complex32)
print([str(warning.message)[:11] for warning in caught])
"""
    assert warm.run("-c", code).stdout == "['ComplexHalf']\n"


def test_one_card_of_each_model_is_asked(monkeypatch):
    cards = ["H200", "H200", "L4"]
    module = types.SimpleNamespace(get_device_name=lambda index: cards[index])
    kind = types.SimpleNamespace(type="cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: kind)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    devices = dtype_support.available_dtype_devices()
    assert [(one.name, one.model, one.count) for one in devices] == [
        ("cpu", None, 1),
        ("cuda:0", "H200", 2),
        ("cuda:2", "L4", 1),
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_the_screen_fits_also_with_a_card(report, width):
    card = dtype_support.DtypeDevice(name="cuda:0", model="NVIDIA H200", count=8)
    rows = [
        replace(
            row,
            devices=(*row.devices, replace(row.devices[0], device="cuda:0", matmul_seconds=0.12, repeats=7)),
        )
        for row in report.dtypes
    ]
    wide = replace(report, devices=(*report.devices, card), dtypes=tuple(rows), matmul_size=512)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(wide)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    for name in ("float8_e4m3fnuz", "torch.cuda.BFloat16Tensor", "FLOAT8E4M3FNUZ", "8 x NVIDIA H200"):
        assert any(name in line for line in lines), name


def test_the_report_becomes_json(report):
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert document["schema_version"] == 1
    by_name = {row["name"]: row for row in document["dtypes"]}
    assert by_name["uint64"]["numbers"]["most"] == 2**64 - 1
    assert by_name["bits8"]["numbers"]["most"] is None

# SPDX-License-Identifier: Apache-2.0
"""`ts.to_numpy`, `ts.from_numpy`, `ts.rounding`: every bit arrives, or the reason why not is said."""

import json
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import truestep as ts
from truestep.core.errors import OptionError
from truestep.nn.arrays.dtype_conversion import NUMPY, dtype_has_numbers

DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
FLOAT8 = [dtype for dtype in DTYPES if str(dtype).startswith("torch.float8")]
WIDENING = [torch.bfloat16, torch.float16, *FLOAT8]
quick = settings(deadline=None, max_examples=60)


def empty(dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex32 is experimental, quantised types are deprecated
        return torch.empty(2, dtype=dtype)


def bits(values):
    """Return the bytes of an array or tensor, in the machine's order."""
    if isinstance(values, torch.Tensor):
        return values.contiguous().reshape(-1).view(torch.uint8).tolist() if values.numel() else []
    return list(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")).tobytes())


def any_bits(dtype, shape):
    """Return arrays of every pattern of bits, so NaNs with payloads, -0.0 and subnormals among them."""
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind == "b":
        return hnp.arrays(dtype, shape)
    return st.binary(min_size=count, max_size=count).map(lambda raw: np.frombuffer(raw, dtype).reshape(shape))


@st.composite
def arrays(draw):
    """Draw an array of any dtype of the table, any strides, either order of bytes, writable or not."""
    dtype = draw(st.sampled_from(list(NUMPY.values())))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    array = draw(any_bits(dtype, shape)).copy()
    if draw(st.booleans()):
        array = array.view(dtype.newbyteorder())  # other bytes, and as valid
    if array.ndim and draw(st.booleans()):
        array = array[::-1]
    if draw(st.booleans()):
        array = array.T
    array.flags.writeable = draw(st.booleans())
    return array


@quick
@given(arrays())
def test_an_array_goes_to_torch_and_back_bit_by_bit(array):
    tensor = ts.from_numpy(array)
    back = ts.to_numpy(tensor)
    assert (tuple(tensor.shape), bits(tensor)) == (array.shape, bits(array))
    assert (back.shape, back.dtype, bits(back)) == (array.shape, array.dtype.newbyteorder("="), bits(array))
    assert back.flags.c_contiguous
    assert back.flags.writeable


@quick
@given(arrays())
def test_copies_share_nothing(array):
    tensor = ts.from_numpy(array)
    before = bits(array)
    tensor.zero_()
    back = ts.to_numpy(tensor)
    back[...] = 1
    assert bits(array) == before
    assert not tensor.to(torch.bool).any()


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_float8_is_held_by_float32_and_comes_back(dtype):
    tensor = torch.arange(256, dtype=torch.uint8).view(dtype)
    array = ts.to_numpy(tensor, dtype=np.float32)
    assert array.dtype == np.float32
    back = ts.from_numpy(array, dtype=dtype)
    number = ~np.isnan(array)
    assert np.isnan(back.float().numpy())[~number].all()
    assert (back.view(torch.uint8).numpy() == np.arange(256))[number].all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_every_number_of_16_bits_is_held_by_wider_ones_and_comes_back(dtype, wide):
    tensor = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(dtype)
    back = ts.from_numpy(ts.to_numpy(tensor, dtype=wide), dtype=dtype)
    number = ~tensor.isnan()
    assert bool(back.isnan()[~number].all())
    assert torch.equal(back.view(torch.int16)[number], tensor.view(torch.int16)[number])


def test_complex32_widens_and_comes_back():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.tensor([1.5 - 2j, 65504 + 6e-8j], dtype=torch.complex64).to(torch.complex32)
        array = ts.to_numpy(tensor, dtype=np.complex64)
        assert array[0] == 1.5 - 2j
        assert torch.equal(
            torch.view_as_real(ts.from_numpy(array, dtype=torch.complex32)), torch.view_as_real(tensor)
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_of_torch_converts_or_says_what_to_write(dtype):
    tensor = empty(dtype)
    try:
        theirs = tensor.numpy().dtype
    except TypeError:
        theirs = None
    assert NUMPY.get(dtype) == theirs
    if theirs is not None:
        assert ts.to_numpy(tensor).dtype == theirs
        return
    remedy = (
        r"dtype=np\.(float32|complex64), which holds" if dtype_has_numbers(dtype) else r"view\(torch\.uint8\)"
    )
    with pytest.raises(OptionError, match=remedy):
        ts.to_numpy(tensor)


def test_the_graph_conjugates_signs_and_strides_are_no_obstacle():
    leaf = torch.tensor([[1 + 2j, 3 - 4j]], requires_grad=True)
    turned = (leaf * 2).conj().mT
    assert turned.is_conj()
    assert ts.to_numpy(turned).tolist() == [[2 - 4j], [6 + 8j]]
    negative = torch.tensor([1 + 2j]).conj().imag
    assert negative.is_neg()
    assert ts.to_numpy(negative).tolist() == [-2.0]
    assert ts.to_numpy(torch.tensor(3)).shape == ()
    assert ts.to_numpy(torch.nn.Parameter(torch.ones(2))).tolist() == [1, 1]
    assert leaf.grad is None


def test_sharing_is_sharing():
    array = np.zeros((3, 4))[:, ::2]
    tensor = ts.from_numpy(array, copy=False)
    tensor[1, 1] = 5
    assert array[1, 1] == 5
    back = ts.to_numpy(tensor, copy=False)
    assert np.shares_memory(back, array)


class Record:
    """An array whose elements lie 12 bytes apart, which is no multiple of 8."""

    array = np.zeros(3, dtype=[("a", "<f8"), ("b", "<i4")])["a"]


def read_only():
    array = np.zeros(2)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("array", "options", "reason"),
    [
        (read_only(), {}, "read-only"),
        (np.broadcast_to(np.zeros(1), 3), {}, "read-only"),
        (np.zeros(2)[::-1], {}, "negative strides"),
        (np.zeros(2, dtype=">f8"), {}, "in the other order"),
        (Record.array, {}, "no multiples"),
        (np.zeros(2), {"dtype": torch.float32}, "float64 becomes torch.float32"),
        (np.zeros(2), {"device": "meta"}, "another device"),
        (np.float64(3), {}, "NumPy scalar"),
    ],
)
def test_arrays_that_can_not_be_shared_are_copied_or_refused(array, options, reason):
    with pytest.raises(OptionError, match=reason):
        ts.from_numpy(array, copy=False, **options)
    assert ts.from_numpy(array, **options).shape == array.shape


@pytest.mark.parametrize(
    ("tensor", "options", "reason"),
    [
        (torch.ones(2, requires_grad=True), {}, "requires a gradient"),
        (torch.ones(2, dtype=torch.complex64).conj(), {}, "conjugation"),
        (torch.ones(2), {"dtype": np.float64}, "torch.float32 becomes torch.float64"),
        (torch.ones(2, dtype=torch.bfloat16), {"dtype": np.float32}, "bfloat16 becomes torch.float32"),
    ],
)
def test_tensors_that_can_not_be_shared_are_copied_or_refused(tensor, options, reason):
    with pytest.raises(OptionError, match=reason):
        ts.to_numpy(tensor, copy=False, **options)
    assert ts.to_numpy(tensor, **options).shape == (2,)


@pytest.mark.parametrize(
    ("array", "remedy"),
    [
        (np.array([{}, None]), r"np\.float64\) if they are numbers"),
        (np.array(["a"]), r"np\.unique"),
        (np.array([b"a"]), r"np\.frombuffer"),
        (np.array(["2026-11-21"], dtype="datetime64[D]"), r"astype\('datetime64\[s\]'\)"),
        (np.array([1], dtype="timedelta64[s]"), r"np\.timedelta64\(1, 's'\)"),
        (
            np.zeros(2, dtype=[("x", "f8"), ("y", "i4")]),
            r"records of x, y\. Convert each field: array\['x'\]",
        ),
        (np.ma.masked_array([1.0], [True]), r"array\.filled\(0\)"),
        (np.zeros(1, dtype=np.longdouble), r"array\.astype\(np\.float64\)"),
        (np.zeros(1, dtype="V2"), r"array\.view\(np\.uint16\)"),
        ([1.0], r"list is no array\. Write torch\.tensor"),
        (1.0, "float is no array"),
        (torch.ones(1), "Tensor is no array"),
    ],
)
def test_what_holds_no_numbers_is_refused_with_what_to_write(array, remedy):
    with pytest.raises(OptionError, match=remedy):
        ts.from_numpy(array)


def sparse():
    return torch.eye(2).to_sparse()


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (sparse, r"to_dense"),
        (lambda: torch.empty(2, device="meta"), "no values"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "unbind"),
        (lambda: np.ones(2), "ndarray is no tensor"),
        (lambda: [1.0], "list is no tensor"),
    ],
)
def test_tensors_that_are_no_block_of_numbers_are_refused(make, remedy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        tensor = make()
    with pytest.raises(OptionError, match=remedy):
        ts.to_numpy(tensor)


@pytest.mark.parametrize("dtype", ["float32x", object, "datetime64[s]", np.longdouble, 3.5])
def test_an_unknown_dtype_is_refused_with_those_there_are(dtype):
    for convert in (ts.from_numpy(np.ones(2)), np.ones(2)):
        function = ts.to_numpy if isinstance(convert, torch.Tensor) else ts.from_numpy
        with pytest.raises(OptionError, match=r"There are: bool, uint8"):
            function(convert, dtype=dtype)


def test_an_array_of_a_dtype_that_numpy_lacks_is_refused():
    with pytest.raises(OptionError, match=r"NumPy has no torch\.bfloat16\. There are: bool"):
        ts.to_numpy(torch.ones(1), dtype=torch.bfloat16)


def test_narrowing_is_refused_with_the_largest_rounding_and_allowed_up_to_it():
    array = np.array([1.0, 0.1, 3.0])
    off = abs(float(np.float32(0.1)) - 0.1)
    with pytest.raises(
        OptionError, match=r"float64 to float32: 1 of 3 values are rounded, by up to 1\.5e-08"
    ) as caught:
        ts.from_numpy(array, dtype=torch.float32)
    asked = float(str(caught.value).partition("max_rounding=")[2].partition(",")[0])
    assert torch.equal(
        ts.from_numpy(array, dtype=torch.float32, max_rounding=asked), torch.tensor(array).float()
    )
    report = ts.rounding(array, torch.float32)
    assert (report.num_rounded, report.num_lost, report.largest_absolute) == (1, 0, off)
    assert report.largest_relative == off / 0.1
    assert report.example == "0.1"
    assert ts.from_numpy(np.array([0.5, 2.0**-149]), dtype=torch.float32).tolist() == [0.5, 2.0**-149]


@quick
@given(hnp.arrays(np.float64, 5, elements=st.floats(2.0**-126, 2.0**127)))
def test_rounding_to_float32_is_at_most_half_a_unit(values):
    report = ts.rounding(values, np.float32)
    assert report.num_lost == 0
    assert report.largest_relative <= 2**-24
    assert report.exact == np.array_equal(values.astype(np.float32), values)


EXACT = st.sampled_from([np.int64, np.uint64])


@quick
@given(st.data(), EXACT, st.sampled_from([torch.float32, torch.float64]))
def test_rounding_of_large_whole_numbers_is_what_python_computes(data, kind, target):
    number = data.draw(st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max)))
    report = ts.rounding(np.array([number], dtype=kind), target)
    became = int(torch.tensor(np.array([number], dtype=kind)).to(target).double().item())
    assert report.largest_absolute == abs(number - became)
    assert report.exact == (number == became)


@quick
@given(
    st.data(),
    st.sampled_from([dtype for dtype in NUMPY if not dtype.is_floating_point and not dtype.is_complex]),
)
def test_whole_numbers_hold_what_lies_in_their_range(data, target):
    least, most = (0, 1) if target == torch.bool else (torch.iinfo(target).min, torch.iinfo(target).max)
    number = data.draw(
        st.integers(-(2**63), 2**63 - 1)
        | st.sampled_from([least, most, least - 1, most + 1]).filter(lambda value: -(2**63) <= value < 2**63)
    )
    array = np.array([number], dtype=np.int64)
    if least <= number <= most:
        assert int(ts.from_numpy(array, dtype=target)) == number
    else:
        for allowed in (0.0, math.inf):
            with pytest.raises(OptionError, match="1 of 1 values do not fit"):
                ts.from_numpy(array, dtype=target, max_rounding=allowed)


@pytest.mark.parametrize(
    ("value", "target", "outcome"),
    [
        (1.9, torch.int64, "rounded"),
        (-0.5, torch.uint8, "rounded"),
        (-1.0, torch.uint8, "lost"),
        (255.9, torch.uint8, "rounded"),
        (256.0, torch.uint8, "lost"),
        (2.0**63, torch.int64, "lost"),
        (-(2.0**63), torch.int64, "exact"),
        (2.0**64, torch.uint64, "lost"),
        (math.nan, torch.int64, "lost"),
        (math.inf, torch.int32, "lost"),
        (0.5, torch.bool, "lost"),
        (1.0, torch.bool, "exact"),
        (2.0, torch.bool, "lost"),
        (65520.0, torch.float16, "lost"),
        (65519.0, torch.float16, "rounded"),
        (1e-9, torch.float16, "rounded"),
        (math.nan, torch.bfloat16, "exact"),
        (-math.inf, torch.bfloat16, "exact"),
        (math.inf, torch.float8_e4m3fn, "lost"),
        (0.0, torch.float8_e8m0fnu, "lost"),
        (-1.0, torch.float8_e8m0fnu, "rounded"),
        (1.0, torch.complex64, "exact"),
        (0.1, torch.complex64, "rounded"),
    ],
)
def test_what_becomes_of_a_value(value, target, outcome):
    report = ts.rounding(np.array([value]), target)
    assert (report.num_rounded, report.num_lost) == {"exact": (0, 0), "rounded": (1, 0), "lost": (0, 1)}[
        outcome
    ]
    assert report.exact == (outcome == "exact")
    if outcome == "exact":
        assert np.array_equal(
            ts.from_numpy(np.array([value]), dtype=target).to(torch.complex128).real, [value], equal_nan=True
        )
        return
    with pytest.raises(OptionError, match="do not fit" if outcome == "lost" else "rounded"):
        ts.from_numpy(np.array([value]), dtype=target)


def test_infinite_rounding_allows_overflow_of_floats():
    assert ts.from_numpy(np.array([1e300]), dtype=torch.float32, max_rounding=math.inf).tolist() == [math.inf]
    assert ts.to_numpy(torch.tensor([1.5]), dtype=np.int64, max_rounding=0.5).tolist() == [1]


def test_an_imaginary_part_is_never_dropped():
    with pytest.raises(OptionError, match=r"\.real, \.imag or \.abs\(\)"):
        ts.from_numpy(np.ones(1, dtype=np.complex64), dtype=torch.float32, max_rounding=math.inf)


@pytest.mark.parametrize("bound", [-1.0, math.nan])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(OptionError, match=r"max_rounding=(-1\.0|nan)\): give at least 0"):
        ts.from_numpy(np.ones(1), dtype=torch.float32, max_rounding=bound)


def test_neither_the_array_nor_the_tensor_nor_the_randomness_is_touched():
    tensor = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
    state = torch.get_rng_state()
    ts.rounding(tensor, torch.float16)
    assert tensor.requires_grad
    assert tensor.dtype == torch.float64
    assert torch.equal(torch.get_rng_state(), state)


def test_the_report_becomes_json_and_text():
    report = ts.rounding(torch.tensor([math.inf, 0.1]), torch.int8)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["example"] == "inf"
    assert str(report).startswith("float32 to int8: 1 of 2 values do not fit, 1 of 2 values are rounded")
    assert report._repr_html_().startswith("<pre")


def test_empty_arrays_are_fine():
    assert ts.from_numpy(np.zeros((0, 3)), dtype=torch.bfloat16).shape == (0, 3)
    assert ts.rounding(np.zeros(0), torch.int8).exact


def test_a_memory_mapped_file_becomes_a_tensor_of_its_own(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(4.0))
    assert ts.from_numpy(np.load(tmp_path / "a.npy", mmap_mode="r")).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("convert", [ts.to_numpy, ts.from_numpy])
def test_a_nan_among_the_values_does_not_lift_the_bound_for_the_others(convert):
    values = np.array([np.nan, 0.1, np.inf])
    given, target = (
        (torch.from_numpy(values), np.float32) if convert is ts.to_numpy else (values, torch.float32)
    )
    with pytest.raises(ts.OptionError, match="1 of 3 values are rounded, by up to"):
        convert(given, dtype=target)
    report = ts.rounding(values, torch.float32)
    assert 0 < report.largest_relative <= 2**-24
    assert (report.num_rounded, report.num_lost) == (1, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ts.to_numpy(torch.ones(1), copy="no"), r"copy='no'\): write True"),
        (lambda: ts.from_numpy(np.ones(1), copy=0), r"copy=0\): write True"),
        (lambda: ts.to_numpy(torch.ones(1), max_rounding="1"), "max_rounding='1'"),
        (lambda: ts.from_numpy(np.ones(1), max_rounding=True), "max_rounding=True"),
        (lambda: ts.rounding(torch.ones(1), None), "does not say to which dtype"),
        (lambda: torch.func.vmap(ts.to_numpy)(torch.ones(2)), r"transform of torch\.func"),
    ],
)
def test_options_are_looked_at_also_where_nothing_is_converted(call, message):
    with pytest.raises(ts.OptionError, match=message):
        call()

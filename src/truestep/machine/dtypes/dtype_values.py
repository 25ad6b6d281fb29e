# SPDX-License-Identifier: Apache-2.0
"""Which numbers a dtype holds, found by asking torch for its bit patterns."""

import math
import re
from dataclasses import dataclass, replace

import torch

_WHOLE = re.compile(r"(?P<kind>bits|quint|qint|uint|int)(?P<bits>\d+)(?:x\d+)?")
_PACKED_FLOAT = re.compile(r"float\d+_e(?P<exponent>\d+)m(?P<mantissa>\d+)fn_x\d+")
_KINDS = {"bits": "bits", "quint": "quantised", "qint": "quantised", "uint": "whole", "int": "whole"}
_PATTERNS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, kw_only=True)
class DtypeNumericLimits:
    """The numbers of a dtype; of a complex one, of each part. None where there is no such number."""

    kind: str  # "float", "complex", "whole", "bool", "quantised" or "bits"
    bits: int  # of one value, also where several share a byte
    least: float | int | None = None
    most: float | int | None = None
    smallest: float | None = None  # above zero, subnormal ones included
    eps: float | None = None  # from 1 to the next number

    @property
    def decimal_digits(self) -> float | None:
        """How many significant decimal digits its precision is worth."""
        return None if self.eps is None else round((1 - math.log2(self.eps)) * math.log10(2), 1)


def numeric_limits_of_dtype(dtype: torch.dtype) -> DtypeNumericLimits:
    """Return which numbers `dtype` holds."""
    name = str(dtype).removeprefix("torch.")
    if dtype == torch.bool:
        return DtypeNumericLimits(kind="bool", bits=8, least=0, most=1)
    if dtype.is_complex:
        part = _float_limits_from_bits(dtype.to_real())
        return replace(part, kind="complex", bits=8 * dtype.itemsize)
    if packed := _PACKED_FLOAT.fullmatch(name):
        return _packed_float_limits(int(packed["exponent"]), int(packed["mantissa"]))
    if dtype.is_floating_point:
        return _float_limits_from_bits(dtype)
    if whole := _WHOLE.fullmatch(name):
        return _integer_limits(whole["kind"], int(whole["bits"]))
    return DtypeNumericLimits(kind="unknown", bits=8 * dtype.itemsize)


def _integer_limits(prefix: str, bits: int) -> DtypeNumericLimits:
    if prefix == "bits":  # a container: its bits are no number
        return DtypeNumericLimits(kind="bits", bits=bits)
    signed = prefix in ("int", "qint")
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return DtypeNumericLimits(kind=_KINDS[prefix], bits=bits, least=least, most=most)


def _float_limits_from_bits(dtype: torch.dtype) -> DtypeNumericLimits:
    """Read precision and the smallest number from bit patterns: torch.finfo has a wrong eps for float8_e5m2fnuz."""
    patterns = _PATTERNS[dtype.itemsize]
    one = torch.ones((), device="cpu").to(dtype).view(patterns)
    first = torch.tensor([0, 1], dtype=patterns, device="cpu").view(dtype).double()
    return DtypeNumericLimits(
        kind="float",
        bits=8 * dtype.itemsize,
        least=torch.finfo(dtype).min,
        most=torch.finfo(dtype).max,
        smallest=float(first[first > 0][0]),
        eps=float((one + 1).view(dtype).double()) - 1,
    )


def _packed_float_limits(exponent: int, mantissa: int) -> DtypeNumericLimits:
    """Compute what a float without infinity and NaN holds; torch converts none of these.

    Source: OCP Microscaling Formats (MX) specification 1.0, section 5.3.
    """
    bias = 2 ** (exponent - 1) - 1
    most = 2.0 ** (2**exponent - 1 - bias) * (2 - 2.0**-mantissa)
    return DtypeNumericLimits(
        kind="float",
        bits=1 + exponent + mantissa,
        least=-most,
        most=most,
        smallest=2.0 ** (1 - bias - mantissa),
        eps=2.0**-mantissa,
    )

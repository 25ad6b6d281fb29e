# SPDX-License-Identifier: Apache-2.0
"""The header of a safetensors file: eight bytes of length, then JSON, then the tensors without gaps.

Written and read here rather than by the library so that every byte passes through `Files`, is hashed on its
way, and is checked before it is used. Imports no torch.
"""

import json
from dataclasses import dataclass
from typing import Any

ALIGNMENT = 64
MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library, which would not read a file with more


@dataclass(frozen=True)
class SafetensorsEntry:
    """A tensor in a file: its code, the shape it has there, and its bytes counted from the header's end."""

    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


def safetensors_header(entries: dict[str, SafetensorsEntry], metadata: dict[str, str]) -> bytes:
    """Return the header, padded by spaces so that the tensors begin at a multiple of ALIGNMENT."""
    content: dict[str, Any] = {"__metadata__": metadata}
    for key, entry in entries.items():
        content[key] = safetensors_json(entry.code, entry.shape, entry.begin, entry.end)
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def safetensors_json(code: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, Any]:
    """Return what a header says of a tensor."""
    return {"dtype": code, "shape": list(shape), "data_offsets": [begin, end]}


def safetensors_header_length(first_bytes: bytes, file_bytes: int) -> int:
    """Return the length of the JSON part; raises ValueError where no such file can hold it."""
    length = int.from_bytes(first_bytes, "little")
    if len(first_bytes) < 8 or length > min(file_bytes - 8, MAX_HEADER_BYTES):
        raise ValueError(f"its header claims {length} bytes in a file of {file_bytes}")
    return length


def parse_json_header(text: bytes) -> dict[str, Any]:
    """Return what the JSON part says of each tensor, not looked at; raises ValueError where it is no such part."""
    try:
        content: dict[str, Any] = json.loads(text.decode())
        content.pop("__metadata__", None)
    except (AttributeError, TypeError, RecursionError) as error:
        raise _no_header(error) from error
    return content


def _no_header(error: Exception) -> ValueError:
    return ValueError(f"its header is no safetensors header ({type(error).__name__}: {error})")


def parse_safetensors_header(text: bytes, data_bytes: int) -> dict[str, SafetensorsEntry]:
    """Read the JSON part; raises ValueError unless its tensors fill `data_bytes` without gap or overlap."""
    try:
        entries = {key: _entry(value) for key, value in parse_json_header(text).items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise _no_header(error) from error
    at = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != at or entry.end < at:
            raise ValueError(f"its header places a tensor at {entry.begin}, where {at} is expected")
        at = entry.end
    if at != data_bytes:
        raise ValueError(f"its header places tensors in {at} bytes, the file has {data_bytes}")
    return entries


def _entry(value: dict[str, Any]) -> SafetensorsEntry:
    begin, end = value["data_offsets"]
    numbers = (begin, end, *value["shape"])
    # `type` and not isinstance: JSON's true is an int to Python
    if any(type(number) is not int or number < 0 for number in numbers) or type(value["dtype"]) is not str:
        raise ValueError(f"its header has the entry {value!r}")
    return SafetensorsEntry(value["dtype"], tuple(value["shape"]), begin, end)

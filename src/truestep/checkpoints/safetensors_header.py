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
        content[key] = safetensors_entry_json(entry.code, entry.shape, entry.begin, entry.end)
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def safetensors_entry_json(code: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, Any]:
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
        raise ValueError(f"its header is no safetensors header ({type(error).__name__}: {error})") from error
    return content

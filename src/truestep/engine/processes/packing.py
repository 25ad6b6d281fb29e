# SPDX-License-Identifier: Apache-2.0
"""Trees of tensors and plain values as bytes; nothing that could run code is read."""

import io
import json
import warnings
from typing import Any

import torch
from torch import Tensor

from truestep.core.tensor_bytes import bytes_of_contiguous

_PLAIN = (type(None), bool, int, float, str)
_AS_JSON, _AS_SAVED = b"J", b"T"


def pack_rank_message(tree: Any) -> bytes:
    """Return a tree of tensors and plain values as bytes."""
    tensors: list[bytes] = []
    try:
        text = json.dumps(_encode_tree(tree, tensors)).encode()
    except _UnpackableError:  # torch takes more kinds of values, and ten times as long
        buffer = io.BytesIO(_AS_SAVED)
        buffer.seek(1)
        torch.save(tree, buffer)
        return buffer.getvalue()
    return b"".join([_AS_JSON, len(text).to_bytes(8, "little"), text, *tensors])


def unpack_rank_message(data: bytes) -> Any:
    """Return the tree that `pack_rank_message` was given, on the CPU."""
    if data[:1] == _AS_JSON:
        end = 9 + int.from_bytes(data[1:9], "little")
        return _decode_tree(json.loads(data[9:end]), memoryview(data)[end:])
    with warnings.catch_warnings():
        # torch 2.14 says that it checks the indices, which takes time for large ones: these are small
        warnings.filterwarnings("ignore", "Validating sparse tensor", UserWarning)
        # On the CPU: the sender's device may not be here, or be another rank's.
        return torch.load(io.BytesIO(data[1:]), map_location="cpu", weights_only=True)


class _UnpackableError(Exception):
    """There is something in a tree that JSON and plain tensors don't tell."""


def _encode_tree(tree: Any, tensors: list[bytes]) -> Any:
    """Return a tree for JSON, where lists hold everything that is not plain: a word, and what it needs."""
    if type(tree) in _PLAIN:
        return tree
    if type(tree) is dict and all(type(key) is str for key in tree):
        return {key: _encode_tree(value, tensors) for key, value in tree.items()}
    if type(tree) is list or type(tree) is tuple:
        if set(map(type, tree)) <= {int}:  # the state of a generator has hundreds
            return [type(tree).__name__ + "s of plain", tree]
        return [type(tree).__name__, *[_encode_tree(value, tensors) for value in tree]]
    if type(tree) in (Tensor, torch.nn.Parameter) and tree.layout is torch.strided and not tree.is_quantized:
        begin = sum(map(len, tensors))
        flat = tree.detach().cpu().resolve_conj().resolve_neg().contiguous()
        tensors.append(bytes_of_contiguous(flat).numpy().tobytes())
        return ["tensor", str(tree.dtype).removeprefix("torch."), list(tree.shape), begin, len(tensors[-1])]
    raise _UnpackableError


def _decode_tree(tree: Any, memory: memoryview) -> Any:
    if isinstance(tree, dict):
        return {key: _decode_tree(value, memory) for key, value in tree.items()}
    if not isinstance(tree, list):
        return tree
    match tree:
        case ["tensor", dtype, shape, begin, length]:
            flat = torch.empty(length, dtype=torch.uint8)
            flat.numpy().data[:] = memory[begin : begin + length]
            return flat.view(getattr(torch, dtype)).view(shape)
        case ["lists of plain", values]:
            return values
        case ["tuples of plain", values]:
            return tuple(values)
        case ["list", *values]:
            return [_decode_tree(value, memory) for value in values]
        case ["tuple", *values]:
            return tuple(_decode_tree(value, memory) for value in values)
    raise AssertionError

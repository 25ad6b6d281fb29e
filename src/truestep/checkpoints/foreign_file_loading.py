# SPDX-License-Identifier: Apache-2.0
"""Files that other programs wrote: safetensors, and torch.save without running what is pickled in them."""

import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from truestep.checkpoints.dtype_encoding import CODES, DTYPES, check_tensor_size
from truestep.checkpoints.tensor_memory_view import tensor_memoryview
from truestep.core.errors import CheckpointError, did_you_mean_path
from truestep.core.text_formatting import bytes_text, first_few

# the names under which training scripts keep a module's state beside other things, the commonest first
WEIGHT_KEYS = (
    *("model", "state_dict", "model_state_dict", "model_state", "module", "net", "network", "weights"),
)
SUFFIX = ".safetensors"
_WEIGHT_SUFFIXES = {SUFFIX, ".pt", ".pth", ".bin", ".ckpt"}
MOST_UNPACKED = 4  # times the bytes of a file of torch.save: weights hardly get smaller by compression
LEAST_UNPACKED_BYTES = 64 << 20  # what may always be unpacked


def read_weights_file(path: Path) -> Any:
    """Return what is in a file; raises CheckpointError where it is damaged or would have to run code."""
    if not path.is_file():
        near = did_you_mean_path(path) or _weights_in_same_folder_hint(path)
        raise CheckpointError(f"{path} does not exist, so there is nothing to load.{near}")
    if path.suffix == SUFFIX:
        return _read_safetensors(path)
    return _read_torch_file(path)


def _weights_in_same_folder_hint(path: Path) -> str:
    """Say which files in the same folder may hold weights, and how a run's are had."""
    files = sorted(each.name for each in path.parent.iterdir() if each.suffix in _WEIGHT_SUFFIXES)
    beside = first_few([repr(name) for name in files], 4) if files else "no file of weights"
    return (
        f" The folder {str(path.parent)!r} holds {beside}. A run keeps its weights in its directory, which is a source, too: "
        "ts.load_weights(module, 'runs/NAME')."
    )


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name.

    The library looks at the header; the tensors are read, since it would map them: a file that is cut while they are copied out
    of a mapping ends the process by SIGBUS.
    """
    try:
        with safe_open(path, "pt") as header, path.open("rb") as file:
            file.seek(8 + int.from_bytes(file.read(8), "little"))
            # one behind the other without a gap, as the library has made sure
            return {name: _read_next_tensor(file, header.get_slice(name)) for name in header.offset_keys()}
    except (SafetensorError, OSError, ValueError) as error:
        if (said := _describe_other_file_kind(path, "safetensors file")) is not None:
            raise CheckpointError(said) from None
        raise CheckpointError(f"{path} is no sound safetensors file: {error}.") from error


def _read_next_tensor(file: BinaryIO, entry: Any) -> Tensor:
    code, shape = entry.get_dtype(), entry.get_shape()
    if code not in CODES:
        raise ValueError(f"it holds numbers of the kind {code}, which torch has no tensors of")
    check_tensor_size(tuple(shape), DTYPES[CODES[code]].element_bytes)
    tensor = torch.empty(shape, dtype=getattr(torch, CODES[code]))
    memory = tensor_memoryview(tensor)
    if file.readinto(memory) < len(memory):  # type: ignore[attr-defined]
        raise ValueError("it ends too early")
    return tensor


def _read_torch_file(path: Path) -> Any:
    if (grown := _uncompressed_zip_bytes(path)) > MOST_UNPACKED * path.stat().st_size + LEAST_UNPACKED_BYTES:
        raise CheckpointError(
            f"{path} has {bytes_text(path.stat().st_size)} and would take {bytes_text(grown)} of memory: its parts are compressed, "
            "which torch.save never does and weights don't gain by, so it was made to fill the memory of whoever reads it. It is "
            "not read. If you trust who made it, unpack it and pack it again without compression (`unzip`, `zip -0 -r`)."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "DTensor" in str(error):
            raise CheckpointError(partial_weights_message(str(path))) from None
        # without torch's own words, which would have whatever it is loaded as code
        raise CheckpointError(
            _describe_other_file_kind(path) or _conversion_advice(path, str(error))
        ) from None
    # its parsers raise whatever they meet: IndexError, struct.error, AssertionError
    except Exception as error:
        damaged = f"it is damaged ({type(error).__name__}: {error})"
        reason = damaged if str(error) else "it is empty, or ends too early"
        raise CheckpointError(f"{path} can't be read as a file of torch.save: {reason}") from error
    if isinstance(content, dict) and isinstance(content.get("amp"), Mapping):
        content["amp"] = apex_to_grad_scaler_state(content["amp"])
    return content


def partial_weights_message(shown: str) -> str:
    """Say that divided weights were saved as one rank had them."""
    return (
        f"{shown} holds DTensors: weights that were divided over the ranks of a training, as one of them had them, which is a part "
        "of each. The whole weights are in the checkpoints of that run: ts.load_weights(module, directory), or "
        "ts.export_weights(directory, 'weights.pt') for a file."
    )


def has_partial_weights(weights: Any) -> bool:
    """Whether among weights by name are some of which only a part is here."""
    return isinstance(weights, Mapping) and any(hasattr(each, "device_mesh") for each in weights.values())


def _uncompressed_zip_bytes(path: Path) -> int:
    """Return how many bytes the parts of a zip file have, as its own list of them says; 0 for another file."""
    try:
        with zipfile.ZipFile(path) as parts:
            return sum(part.file_size for part in parts.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error):
        return 0  # not such a file: torch says what is wrong with it


def _describe_other_file_kind(path: Path, expected: str = "file of torch.save") -> str | None:
    """Say what was saved in the place of weights; None for a zip file or a pickle, also of protocol 0, and for safetensors."""
    with path.open("rb") as file:
        begin = file.read(40)
    if begin.startswith(b"version https://git-lfs"):
        return f"{path} is what git keeps of a large file, and not the file: run `git lfs pull` in its repository."
    is_page = begin.lstrip().startswith(b"<")
    if not is_page and (
        expected != "file of torch.save" or begin.startswith((b"PK", b"\x80", b"(", b"c", b"]", b"}"))
    ):
        return None
    what = "a page of a server" if is_page else f"no {expected}"
    return f"{path} is {what}: it begins with {begin!r}. Download or copy the file of weights again."


def _conversion_advice(path: Path, cause: str) -> str:
    named = [line for line in cause.splitlines() if "GLOBAL" in line or "global" in line]
    return (
        f"{path} holds more than tensors and plain values, so loading it would run code from the file. "
        f"({named[0].strip() if named else 'It is a pickle of Python objects.'}) If you trust who wrote "
        f"it, convert "
        "it once, where its classes can be imported:\n\n"
        "    import torch\n"
        f"    whole = torch.load({str(path)!r}, weights_only=False)\n"
        '    weights = whole["state_dict"] if isinstance(whole, dict) else whole.state_dict()  # or its key in yours\n'
        f"    torch.save(weights, {path.stem + '-weights.pt'!r})\n"
    )


def apex_to_grad_scaler_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of apex's amp as one that torch's GradScaler loads; any other is returned as it is."""
    first = state.get("loss_scaler0")
    if not isinstance(first, Mapping):
        return dict(state)
    return {
        "scale": float(first["loss_scale"]),
        # apex saves the scale and its counter alone; these are what it and torch's GradScaler begin with
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": int(first.get("unskipped", 0)),
    }


def _is_weight(name: Any, value: Any) -> bool:
    return isinstance(value, Tensor) or str(name).endswith("_extra_state")


def extract_state_dict(content: Any, describe: Callable[[], str]) -> dict[str, Tensor]:
    """Return the state dict in what a file held: the whole of it, or what it keeps under a usual name."""
    if isinstance(content, Mapping):
        if content and all(_is_weight(*item) for item in content.items()):
            return dict(content)
        for key in WEIGHT_KEYS:
            if isinstance(content.get(key), Mapping):
                return extract_state_dict(content[key], describe)
    names = ", ".join(map(repr, content)) if isinstance(content, Mapping) else type(content).__name__
    raise CheckpointError(
        f"{describe()} holds no state dict, nor one under {', '.join(WEIGHT_KEYS)}: there is {names}. Take "
        f"it out by "
        "hand: ts.load_weights(module, ts.read_checkpoint(file)['its key'])."
    )

# SPDX-License-Identifier: Apache-2.0
"""Files that other programs wrote: safetensors, and torch.save without running what is pickled in them."""

import math
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truestep.checkpoints.dtypes import CODES, DTYPES
from truestep.checkpoints.files import CheckpointFiles, read_bytes, read_into
from truestep.checkpoints.manifest import DamagedCheckpointError
from truestep.checkpoints.memory import saved_bytes_of
from truestep.checkpoints.safetensors_header import (
    SafetensorsEntry,
    parse_safetensors_header,
    safetensors_header_length,
)
from truestep.checkpoints.verify import opened_file
from truestep.core.errors import CheckpointError, did_you_mean_path

# the names under which training scripts keep a module's state beside other things, the commonest first
WEIGHT_KEYS = (
    "model",
    "state_dict",
    "model_state_dict",
    "model_state",
    "module",
    "net",
    "network",
    "weights",
)
SUFFIX = ".safetensors"


def read_weights_file(path: Path) -> Any:
    """Return what is in a file; raises CheckpointError where it is damaged or would have to run code."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist, so there is nothing to load.{did_you_mean_path(path)}")
    if path.suffix == SUFFIX:
        return read_safetensors(path.resolve())  # a link of the user's own: caches of models are made of them
    return _read_torch_file(path)


def read_safetensors(path: Path, files: CheckpointFiles | None = None) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, copied out of it."""
    files = files or CheckpointFiles()
    try:
        with opened_file(files, path) as (descriptor, size):
            length = safetensors_header_length(read_bytes(files, descriptor, 8), size)
            header = read_bytes(files, descriptor, length, 8)
            entries = parse_safetensors_header(header, size - 8 - len(header))
            tensors = {name: _tensor(name, entry) for name, entry in entries.items()}
            for name, entry in entries.items():
                memory = saved_bytes_of(tensors[name])
                if read_into(files, descriptor, memory, 8 + length + entry.begin) < len(memory):
                    raise ValueError("it ends too early")
    except (ValueError, DamagedCheckpointError) as error:
        raise CheckpointError(f"{path} is no sound safetensors file: {error}.") from error
    return tensors


def _tensor(name: str, entry: SafetensorsEntry) -> Tensor:
    if entry.code not in CODES:
        known = ", ".join(sorted(CODES))
        raise ValueError(f"the tensor {name!r} has the dtype {entry.code}; known are {known}")
    dtype = CODES[entry.code]
    if math.prod(entry.shape) * DTYPES[dtype].element_bytes != entry.end - entry.begin:
        raise ValueError(f"the tensor {name!r} of shape {entry.shape} has {entry.end - entry.begin} bytes")
    return torch.empty(entry.shape, dtype=getattr(torch, dtype))


def _read_torch_file(path: Path) -> Any:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_how_to_convert(path, str(error))) from error
    except (
        Exception
    ) as error:  # its parsers raise whatever they meet: IndexError, struct.error, AssertionError
        damaged = f"it is damaged ({type(error).__name__}: {error})"
        reason = damaged if str(error) else "it is empty, or ends too early"
        raise CheckpointError(f"{path} can't be read as a file of torch.save: {reason}") from error
    if isinstance(content, dict) and isinstance(content.get("amp"), Mapping):
        content["amp"] = checkpointed_scaler_state(content["amp"])
    return content


def _how_to_convert(path: Path, cause: str) -> str:
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


def checkpointed_scaler_state(state: Mapping[str, Any]) -> dict[str, Any]:
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


def weights_in(content: Any, describe: Callable[[], str]) -> dict[str, Tensor]:
    """Return the state dict in what a file held: the whole of it, or what it keeps under a usual name."""
    if isinstance(content, Mapping):
        if content and all(_is_weight(*item) for item in content.items()):
            return dict(content)
        for key in WEIGHT_KEYS:
            if isinstance(content.get(key), Mapping):
                return weights_in(content[key], describe)
    names = ", ".join(map(repr, content)) if isinstance(content, Mapping) else type(content).__name__
    raise CheckpointError(
        f"{describe()} holds no state dict, nor one under {', '.join(WEIGHT_KEYS)}: there is {names}. Take "
        f"it out by "
        "hand: ts.load_weights(module, ts.read_checkpoint(file)['its key'])."
    )

# SPDX-License-Identifier: Apache-2.0
"""The weights alone, for fine-tuning, inference and other programs."""

import math
import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from truestep.checkpoints.checkpoint import Checkpoint
from truestep.checkpoints.checkpoint_lookup import read_newest_checkpoint
from truestep.checkpoints.dtype_encoding import CODES, DTYPES
from truestep.checkpoints.file_layout import LEARNERS, lay_out_file
from truestep.checkpoints.file_operations import CheckpointFiles, sync_folder, write_file
from truestep.checkpoints.foreign_file_loading import (
    SUFFIX,
    extract_state_dict,
    has_partial_weights,
    partial_weights_message,
    read_weights_file,
)
from truestep.checkpoints.listing import select_checkpoint
from truestep.checkpoints.manifest import MANIFEST_NAME
from truestep.checkpoints.shared_memory_regions import (
    TensorRegion,
    resolve_conj_and_neg,
    saved_dtype_name,
    why_tensor_cannot_be_saved,
)
from truestep.checkpoints.snapshot import direct_image
from truestep.checkpoints.state_codec import state_children, state_subtree
from truestep.checkpoints.weight_mismatches import (
    Differences,
    MissingWeight,
    compare_weight_names,
    weight_renaming_code,
)
from truestep.core.errors import CheckpointError
from truestep.core.text_formatting import a_type

Source = str | os.PathLike[str] | Mapping[str, Any]
GIVEN = "the given dict"
_MADE = "ts.load_weights(Net(...), directory)"
_TORCH_SUFFIXES = (".pt", ".pth")
_EXACT_RESUME = {"name", "files", "place"}  # what ts.lightning.ExactResume and its kin save


def load_matching_weights(
    module: nn.Module, found: Mapping[str, Tensor], shown: str, *, strict: bool = True
) -> Differences:
    """Load weights by name into a module: all of them, or, where a name or a shape does not fit, none.

    With `strict=False` what fits is loaded. Raises CheckpointError with every difference; `shown` is where they come from.
    """
    if isinstance(module, type) or not callable(getattr(module, "state_dict", None)):
        given = (
            f"the class {module.__name__}, which holds no weights"
            if isinstance(module, type)
            else a_type(module)
        )
        raise CheckpointError(
            f"ts.load_weights was given {given}. Make the module first, as it was made for the training: {_MADE}."
        )
    expected = module.state_dict()
    comparison = compare_weight_names(_shapes_by_name(expected), _shapes_by_name(found))
    differences = _drop_tied_weights(comparison.differences, comparison.pairs, expected)
    reshaped = {item.name for item in differences.reshaped}
    fitting = {name: found[other] for name, other in comparison.pairs.items() if name not in reshaped}
    if differences and (strict or not fitting):
        raise CheckpointError(
            _weights_mismatch_message(module, found, shown, differences, num_fitting=len(fitting))
        )
    # Names and shapes were compared above; torch would ask for the other names of tied weights, too.
    try:
        module.load_state_dict(fitting, strict=False)
    except RuntimeError as error:
        if has_partial_weights(fitting):
            raise CheckpointError(partial_weights_message(shown)) from error
        raise
    num_tied = len(expected) - len(differences.missing) - len(comparison.pairs)
    return replace(differences, num_loaded=len(fitting) + num_tied, num_expected=len(expected))


def _weights_mismatch_message(
    module: nn.Module,
    found: Mapping[str, Tensor],
    shown: str,
    differences: Differences,
    *,
    num_fitting: int,
) -> str:
    """Return why nothing was loaded, and what to write."""
    expected, kind = module.state_dict(), type(module).__name__
    said = f"The weights of {shown} do not fit {kind}; nothing was loaded."
    if not num_fitting:
        said = f"Of the weights of {shown} none fits {kind} (0 of {len(expected)}); nothing was loaded."
    source = f"ts.read_checkpoint(ts.export_weights({shown!r}, 'weights.safetensors'))"
    advice = _attribute_wrapping_hint(expected, found) or weight_renaming_code(
        differences, found, "state" if shown == GIVEN else source
    )
    rest = "To load what fits: strict=False." if num_fitting else ""
    return f"{said}\n{differences}\n{advice}{rest}".rstrip()


def has_all_weights_of(module: nn.Module, source: Any) -> bool:
    """Whether a state dict, or what holds one, has all weights of a module, by whatever names."""
    try:
        found = read_weights(source)
    except (CheckpointError, OSError):
        return False
    expected = module.state_dict()
    comparison = compare_weight_names(_shapes_by_name(expected), _shapes_by_name(found))
    return not _drop_tied_weights(comparison.differences, comparison.pairs, expected)


def _attribute_wrapping_hint(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """Return what to write where the weights are those of the module as an attribute of another."""
    prefix = next(iter(found), "").partition(".")[0]
    if {f"{prefix}.{name}" for name in expected} != set(found):
        return ""
    return (
        f"All its names begin with {prefix + '.'!r}, as those of a module that held this one do. Write: "
        f"ts.load_weights(nn.ModuleDict({{{prefix!r}: module}}), ...)\n"
    )


def read_weights(
    source: Source,
    *,
    checkpoint: str | int | None = None,
    learner: str | None = None,
    averages: bool = False,
    files: CheckpointFiles | None = None,
) -> dict[str, Tensor]:
    """Return weights by name, on the CPU, from a run's directory, a checkpoint, a file or a state dict."""
    if hasattr(source, "directory"):
        raise CheckpointError(f"Weights come from a folder, not from {a_type(source)}: write run.directory.")
    if not isinstance(source, str | os.PathLike | Mapping):
        hint = "source.state_dict()" if isinstance(source, nn.Module) else "'runs/digits', say"
        raise CheckpointError(
            f"Weights come from a run's directory, a checkpoint, a file or a state dict, and not from {a_type(source)}: "
            f"write {hint}."
        )
    if checkpoint is not None and (isinstance(source, Mapping) or not Path(source).is_dir()):
        raise CheckpointError(
            f"checkpoint={checkpoint!r} chooses among those of a run, and {describe_weights_source(source)} is no run's directory."
        )
    if isinstance(source, Mapping):
        return extract_state_dict(source, lambda: "The dict")
    path = Path(source)
    if not path.is_dir():
        if learner or averages:
            raise CheckpointError(f"{path} is a file, not a run: it has neither learners nor averages.")
        return extract_state_dict(read_weights_file(path), lambda: str(path))
    if checkpoint is not None:
        return learner_weights(select_checkpoint(path, str(checkpoint), files), learner, averages=averages)
    try:
        return read_newest_checkpoint(
            path, lambda found: learner_weights(found, learner, averages=averages), files
        )[1]
    except CheckpointError as error:
        if (advice := _foreign_weights_hint(path)) is None:
            raise
        raise CheckpointError(advice) from error


def _foreign_weights_hint(folder: Path) -> str | None:
    """Return what to write for a folder that another library saved weights in; None where it holds no such file."""
    weights = [*sorted(folder.glob(f"*{SUFFIX}")), *sorted(folder.glob("pytorch_model*.bin"))]
    # a checkpoint of ours that is damaged has its own words, also one that lost its manifest
    ours = any(folder.rglob(MANIFEST_NAME)) or any(folder.glob(f"*-r[0-9]*{SUFFIX}"))
    if not weights or ours:
        return None
    if len(weights) == 1:
        advice = f"Name the file: ts.load_weights(module, {str(weights[0])!r})."
    else:
        advice = (
            f"It holds {len(weights)} files of weights, {weights[0].name} and more. Name one, or, where they are the parts of one "
            f"model, have its library put them together: Model.from_pretrained({str(folder)!r})."
        )
    return f"{folder} holds no checkpoint of a run, but weights that another library saved. {advice}"


def learner_weights(checkpoint: Checkpoint, learner: str | None, *, averages: bool) -> dict[str, Tensor]:
    """Return the weights of a learner, or of the only one; or the moving averages that it kept."""
    parts = state_children(checkpoint.manifest.state) or {}
    if set(parts) == _EXACT_RESUME:
        raise CheckpointError(
            f"{checkpoint.path} is a checkpoint of ExactResume, which keeps the files of its framework and has no learners. Load "
            "them as the framework does. Lightning: Net.load_from_checkpoint(ts.lightning.ExactResume(directory).checkpoint); "
            "transformers: Model.from_pretrained(ts.transformers.ExactResume(directory).checkpoint); Accelerate: its "
            "ts.accelerate.ExactResume(accelerator, loader, directory) loads them itself."
        )
    learners = list(state_children(state_subtree(checkpoint.manifest.state, (LEARNERS,))) or ())
    if learner is None and len(learners) != 1:
        names = ", ".join(map(str, learners))
        raise CheckpointError(
            f"{checkpoint.path} has the learners {names}: say whose, learner={str(learners[0])!r} or, on the command line, "
            f"--learner {learners[0]}."
        )
    name = learner or learners[0]
    weights: dict[str, Tensor] = checkpoint.load(LEARNERS, name, "modules")
    if averages and "averages" not in (
        state_children(state_subtree(checkpoint.manifest.state, (LEARNERS, name))) or ()
    ):
        raise CheckpointError(
            f"{checkpoint.path} holds no averages of {name!r}: it was trained without. Leave averages=True out, and give a "
            "training that is to keep some run.learner(module, optimizer, ema=ts.EMA(0.999))."
        )
    return _replace_by_averages(weights, checkpoint.load(LEARNERS, name, "averages")) if averages else weights


def _replace_by_averages(weights: dict[str, Tensor], averages: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put averages in the place of weights; buffers have none, and tied weights share one."""
    # `load` gives tied weights one tensor, so identity finds the other names.
    shared = {id(weights[name]): average for name, average in averages.items()}
    return {name: shared.get(id(weight), weight) for name, weight in weights.items()}


def check_weights_file(path: Path) -> None:
    """Raise a CheckpointError where weights can't be written to a file of that name."""
    if path.suffix not in (SUFFIX, *_TORCH_SUFFIXES):
        raise CheckpointError(f"{path} ends in {path.suffix!r}; weights go to .safetensors, .pt or .pth.")


def write_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Write weights into one plain file, which appears whole or not at all."""
    check_weights_file(path)
    is_torch = path.suffix in _TORCH_SUFFIXES
    _write_file_atomically(
        path, [_serialize_with_torch_save(weights)] if is_torch else _safetensors_pieces(weights)
    )


def _safetensors_pieces(weights: dict[str, Tensor]) -> list[memoryview]:
    weights = {name: _storable_weight(name, value) for name, value in weights.items()}
    file = lay_out_file("weights", "", [TensorRegion.of(name, tensor) for name, tensor in weights.items()])
    return list(direct_image(file, [weights[item.region.name] for item in file.placed]).pieces())


def _storable_weight(name: str, value: Any) -> Tensor:
    """Return a weight as a safetensors file can hold it; raises CheckpointError where it would come back as another."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise CheckpointError(f"{name!r} is a {kind}, and safetensors hold tensors alone: write to .pt.")
    # a subclass that only adds methods is a tensor like any other; one that takes over what is computed may hold others
    plain = value.as_subclass(Tensor) if _is_plain_tensor_subclass(value) else value
    problem = why_tensor_cannot_be_saved(plain)
    if problem is None and CODES.get(DTYPES[saved_dtype_name(plain)].code) != saved_dtype_name(plain):
        problem = f"has the dtype {plain.dtype}, which would be read as another: such files have no name for it; write to .pt"
    if problem is not None:
        raise CheckpointError(f"{name!r} can't be written to a safetensors file: it {problem}.")
    return resolve_conj_and_neg(plain)


def _is_plain_tensor_subclass(tensor: Tensor) -> bool:
    kind = type(tensor)
    if kind in (Tensor, nn.Parameter) or is_lazy(tensor):
        return False
    return kind.__torch_dispatch__ is Tensor.__torch_dispatch__


def _serialize_with_torch_save(weights: dict[str, Tensor]) -> memoryview:
    import io

    for name, value in weights.items():
        if isinstance(value, Tensor) and (is_lazy(value) or value.is_meta):
            raise CheckpointError(f"{name!r} can't be written: it {why_tensor_cannot_be_saved(value)}.")
    buffer = io.BytesIO()
    try:
        torch.save(weights, buffer)
    except Exception as error:  # of pickle, and of whatever a weight's class does there
        raise CheckpointError(f"torch.save can't write them: {type(error).__name__}: {error}") from error
    return buffer.getbuffer()


def _write_file_atomically(path: Path, pieces: list[memoryview]) -> None:
    files = CheckpointFiles()
    # Beside the target, since a rename does not cross file systems.
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        write_file(files, temporary, pieces)
        files.rename(temporary, path)
        # The file was synced before it was renamed, so the name never leads to half of it; this makes the name last.
        sync_folder(files, path.absolute().parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(f"{path} could not be written: {error}.") from error


def _shapes_by_name(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    # what get_extra_state gives is no tensor and has no shape to compare
    return {name: tuple(getattr(tensor, "shape", ())) for name, tensor in tensors.items()}


def _drop_tied_weights(
    differences: Differences, pairs: Mapping[str, str], expected: Mapping[str, Tensor]
) -> Differences:
    """Leave out what is loaded under another of its names: many programs save tied weights once."""

    def memory_key(name: str) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        tensor = expected[name]
        # the same memory, seen in the same way
        return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())

    loaded = {memory_key(name) for name in pairs if isinstance(expected[name], Tensor)}

    def is_tied(item: MissingWeight) -> bool:
        return math.prod(item.shape) > 0 and memory_key(item.name) in loaded

    missing = tuple(item for item in differences.missing if not is_tied(item))
    return Differences(missing, differences.unexpected, differences.reshaped)


def describe_weights_source(source: Source) -> str:
    """Return what a message calls a source of weights."""
    return GIVEN if isinstance(source, Mapping) else str(source)

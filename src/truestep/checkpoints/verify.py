# SPDX-License-Identifier: Apache-2.0
"""Whether a checkpoint on disk is what was written, decided before anything of it is used. Imports no torch.

Memory stays small however large or wrong the files are: sizes are compared before anything is read, and
contents pass through one buffer.
"""

import math
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from truestep.checkpoints.checkpoint_names import checkpoint_folder_name, sequence_of_checkpoint_name
from truestep.checkpoints.checksum import Checksum
from truestep.checkpoints.digests import hash_scheme_of_format, new_digest
from truestep.checkpoints.dtype_encoding import DTYPES, MAX_BYTES, check_tensor_size, is_dense_in_checkpoint
from truestep.checkpoints.file_operations import (
    CHUNK_BYTES,
    CheckpointFiles,
    read_bytes,
    read_chunks,
    read_into,
)
from truestep.checkpoints.manifest import (
    HEAD_BYTES,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    DamagedCheckpointError,
    Manifest,
    ManifestTensor,
    TensorShard,
    read_promised_checksum,
)
from truestep.checkpoints.manifest_encoding import parse_manifest
from truestep.checkpoints.safetensors_header import (
    MAX_HEADER_BYTES,
    parse_json_header,
    safetensors_entry_json,
    safetensors_header_length,
)
from truestep.checkpoints.state_codec import saved_tensor_nodes
from truestep.checkpoints.tensor_selection import TensorBox
from truestep.core.atomic_files import stamp_of_file

_SUFFIX_BYTES = 2


@contextmanager
def open_regular_file(files: CheckpointFiles, path: Path) -> Iterator[tuple[int, int]]:
    """Open a regular file and yield its descriptor and size; raises DamagedError where it is none."""
    try:
        descriptor = files.open(path)
    except OSError as error:
        raise DamagedCheckpointError(f"{path.name}: {_open_failure_reason(files, path, error)}") from error
    try:
        # asked of the descriptor: the path may have been replaced since it was opened
        status = files.status(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedCheckpointError(f"{path.name}: it is not a regular file")
        yield descriptor, status.st_size
    except OSError as error:
        raise DamagedCheckpointError(f"{path.name}: it can't be read ({error.strerror})") from error
    finally:
        files.close(descriptor)


def _open_failure_reason(files: CheckpointFiles, path: Path, error: OSError) -> str:
    try:
        linked = stat.S_ISLNK(files.status(path).st_mode)
    except OSError:
        linked = False
    if linked:
        return "it is a symbolic link, which could lead anywhere"
    return (
        "it is missing" if isinstance(error, FileNotFoundError) else f"it can't be opened ({error.strerror})"
    )


def read_manifest(files: CheckpointFiles, folder: Path, known: dict[str, Manifest] | None = None) -> Manifest:
    """Read a checkpoint's manifest; raises DamagedError, or NewerFormatError.

    `known` are manifests by their checksums, perhaps without tensors and state: the same bytes need not be parsed again. They stand
    there by what the system says of their files, too: one that nobody wrote to since is not read again.
    """
    if stat.S_ISLNK(files.status(folder).st_mode):
        raise DamagedCheckpointError("the folder is a symbolic link, which could lead anywhere")
    path = folder / MANIFEST_NAME
    if known and (found := _cached_manifest_if_unchanged(files, path, known)) is not None:
        _check_manifest_matches_folder(found, folder)
        return found
    with open_regular_file(files, path) as (descriptor, size):
        stamp = repr(stamp_of_file(files.status(descriptor)))
        if not HEAD_BYTES + _SUFFIX_BYTES <= size <= MAX_MANIFEST_BYTES:
            raise DamagedCheckpointError(f"{MANIFEST_NAME}: it has {size} bytes")
        # the checksum first, in one small buffer: a damaged manifest is never held in memory
        checksum = _read_and_check_manifest(files, descriptor, size)
    if known is not None and checksum in known:
        _check_manifest_matches_folder(known[checksum], folder)
        known[stamp] = known[checksum]
        return known[checksum]
    # Opened again rather than kept from above; `parse_manifest` checks the checksum of what it gets.
    with open_regular_file(files, path) as (descriptor, _):
        manifest = parse_manifest(read_bytes(files, descriptor, size), contents=known is None)
    _check_manifest_matches_folder(manifest, folder)
    if known is not None:
        known[checksum] = known[stamp] = replace(manifest, tensors={}, state=None)
    return manifest


def _cached_manifest_if_unchanged(
    files: CheckpointFiles, path: Path, known: dict[str, Manifest]
) -> Manifest | None:
    try:
        return known.get(repr(stamp_of_file(files.status(path))))
    except OSError:  # reading it says what is wrong
        return None


def _check_manifest_matches_folder(manifest: Manifest, folder: Path) -> None:
    """Raise DamagedError where the manifest is another save's: it would be taken for the newest, by a name that it contradicts.

    A copy may be called anything that is no save's name.
    """
    name = checkpoint_folder_name(manifest.summary)
    if sequence_of_checkpoint_name(folder.name) is not None and folder.name != name:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: it is that of {name}, and was moved here")


def _read_and_check_manifest(files: CheckpointFiles, descriptor: int, size: int) -> str:
    promised = read_promised_checksum(read_bytes(files, descriptor, HEAD_BYTES))
    digest = new_digest("sha256")
    for chunk in read_chunks(files, descriptor, HEAD_BYTES, size - _SUFFIX_BYTES):
        digest.update(chunk)
    if digest.hexdigest() != promised:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: its content does not have the checksum it names")
    return promised


def verify_checkpoint(files: CheckpointFiles, folder: Path, manifest: Manifest) -> None:
    """Check every byte of a checkpoint's files against its manifest; raises DamagedError."""
    check_manifest_structure(folder, files, manifest)
    for name in manifest.files:
        read_file_and_verify(
            files, folder / name, manifest, partial(read_and_discard, size=_tensor_data_bytes(manifest, name))
        )


def _tensor_data_bytes(manifest: Manifest, file: str) -> int:
    """Return how many bytes follow a file's header."""
    shards = manifest.shards_in(file)
    return shards[-1][1].end if shards else 0


def read_and_discard(checksum: Checksum, size: int) -> None:
    """Have a checksum take bytes that nobody needs, through a few buffers again and again."""
    kept: list[memoryview] = []
    for number, start in enumerate(range(0, size, CHUNK_BYTES)):
        place = number % (1 + checksum.lag // CHUNK_BYTES)  # by then the first is no longer read
        if place == len(kept):
            kept.append(memoryview(bytearray(min(size, CHUNK_BYTES))))
        checksum.fill(kept[place][: size - start])


def check_manifest_structure(folder: Path, files: CheckpointFiles, manifest: Manifest) -> None:
    """Check what can be known before a file is read: names, sizes, shapes, and whether shards make wholes.

    After this no tensor needs more memory than its files have bytes on the disk.
    """
    # Hidden names are those of file systems and desktops (.nfs..., .DS_Store), not of whoever wrote a checkpoint.
    foreign = {name for name in files.names(folder) if not name.startswith(".")}
    foreign -= {MANIFEST_NAME, *manifest.files}
    if foreign:
        raise DamagedCheckpointError(
            f"{min(foreign)}: it is no part of the checkpoint, whose manifest does not name it"
        )
    for name, promised in manifest.files.items():
        with open_regular_file(files, folder / name) as (_, size):
            if size != promised.bytes:
                raise DamagedCheckpointError(f"{name}: it has {size} bytes instead of {promised.bytes}")
    try:
        for name, tensor in manifest.tensors.items():
            check_shards_fill_tensor(name, tensor)
        for name in manifest.files:
            _check_shards_tile_file(name, manifest)
        for node in saved_tensor_nodes(manifest.state):
            _check_tensor_node(node, manifest)
        saved_tensor_nodes({"dict": manifest.summary.metrics})
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: {error}") from error


def _check_shards_tile_file(file: str, manifest: Manifest) -> None:
    at = 0
    for name, shard in manifest.shards_in(file):
        if shard.begin != at:
            raise ValueError(f"{name!r} begins at byte {shard.begin} of {file}, where {at} is expected")
        at = shard.end
    # 8: the length of the header, with which every such file begins
    if at + 8 > manifest.files[file].bytes:
        raise ValueError(f"the tensors in {file} need {at} bytes, and it has {manifest.files[file].bytes}")


def _check_tensor_node(node: dict[str, Any], manifest: Manifest) -> None:
    name = manifest.tensor_name(node)
    if name not in manifest.tensors:
        raise ValueError(f"the state names the tensor {name!r}, which is not among the tensors")
    if set(node) == {"tensor"}:
        return
    size = math.prod(manifest.tensors[name].shape)
    shape, stride, offset = node["shape"], node["stride"], node["offset"]
    numbers = (offset, *shape, *stride)
    if (
        set(node) != {"tensor", "shape", "stride", "offset"}
        or len(shape) != len(stride)
        or any(type(number) is not int or not 0 <= number <= MAX_BYTES for number in numbers)
    ):
        raise ValueError(f"a view of {name!r} is {str(node)[:200]}")
    check_tensor_size(tuple(shape), DTYPES[manifest.tensors[name].dtype].element_bytes)
    last = offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    if 0 in shape or last >= size:
        raise ValueError(f"a view of {name!r} ends at element {last}, of {size}")


def check_shards_fill_tensor(name: str, tensor: ManifestTensor) -> None:
    """Raise ValueError unless the shards fill the tensor exactly."""
    element = DTYPES[tensor.dtype].element_bytes
    for shard in tensor.shards:
        if shard.end - shard.begin != math.prod(shard.shape) * element:
            raise ValueError(f"a shard of {name!r} of {shard.shape} has {shard.end - shard.begin} bytes")
    if tensor.stride is not None and not is_dense_in_checkpoint(tensor.shape, tensor.stride):
        raise ValueError(f"{name!r} of shape {tensor.shape} can't have the strides {tensor.stride}")
    volume = sum(math.prod(shard.shape) for shard in tensor.shards)
    if volume != math.prod(tensor.shape) or not tensor.shards or _has_overlapping_boxes(tensor.shards):
        raise ValueError(
            f"the {len(tensor.shards)} shards of {name!r} do not make a tensor of shape {tensor.shape}"
        )


def _has_overlapping_boxes(shards: tuple[TensorShard, ...]) -> bool:
    boxes = sorted(TensorBox(shard.offset, shard.shape) for shard in shards if 0 not in shard.shape)
    for index, box in enumerate(boxes):
        for other in boxes[index + 1 :]:
            if not box.offset or other.offset[0] >= box.offset[0] + box.shape[0]:
                break  # and so do all that follow
            if box.common(other):
                return True
    return False


def read_file_and_verify(
    files: CheckpointFiles, path: Path, manifest: Manifest, read: Callable[[Checksum], None]
) -> None:
    """Read a file once, and raise DamagedError unless every byte is as promised.

    `read` gives memory for its tensors, in their order, to the checksum, which fills it. The manifest's structure must have been
    checked. What was read must not be used before this returns.
    """
    data_bytes = _tensor_data_bytes(manifest, path.name)
    try:
        with (
            open_regular_file(files, path) as (descriptor, size),
            Checksum(
                kind=hash_scheme_of_format(manifest.format), read=partial(read_into, files, descriptor)
            ) as digest,
        ):
            header, checksum = _read_header_and_tensors(files, descriptor, size - data_bytes, read, digest)
        if checksum != manifest.files[path.name].checksum:
            raise ValueError("its content does not have the checksum in the manifest")
        _check_safetensors_header(parse_json_header(header[8:]), manifest.shards_in(path.name), manifest)
    except ValueError as error:
        raise DamagedCheckpointError(f"{path.name}: {error}") from error


def _read_header_and_tensors(
    files: CheckpointFiles,
    descriptor: int,
    header_bytes: int,
    read: Callable[[Checksum], None],
    digest: Checksum,
) -> tuple[bytes, str]:
    if header_bytes > MAX_HEADER_BYTES:
        raise ValueError(f"{header_bytes} bytes of it belong to no tensor")
    header = read_bytes(files, descriptor, header_bytes)
    if safetensors_header_length(header[:8], header_bytes) != header_bytes - 8:
        raise ValueError(f"its header does not have the {header_bytes - 8} bytes that are left for it")
    digest.update(memoryview(header))
    read(digest)
    return header, digest.hexdigest()


def _check_safetensors_header(
    header: dict[str, Any], shards: list[tuple[str, TensorShard]], manifest: Manifest
) -> None:
    for name, shard in shards:
        stored = DTYPES[manifest.tensors[name].dtype]
        expected = safetensors_entry_json(stored.code, stored.shape(shard.shape), shard.begin, shard.end)
        if (found := header.pop(shard.key, None)) != expected:
            raise ValueError(f"it does not hold {name!r} as {expected}, but {found}")
    if header:  # these fill all that follows it: `_check_shards_tile_file`
        raise ValueError(f"its header has {min(header)!r}, which the manifest does not name")

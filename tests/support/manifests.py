# SPDX-License-Identifier: Apache-2.0
"""Manifests of format 3, taken apart and put together again with checksums that fit."""

import json
from pathlib import Path
from typing import Any

from truestep.checkpoints.manifest import MANIFEST_NAME, manifest_line_with_checksum, verified_manifest_body
from truestep.checkpoints.manifest_encoding import PARTS, join_head_and_parts
from truestep.checkpoints.tensor_columns import compact_json


def opened(data: bytes) -> dict[str, Any]:
    """Return what a manifest says: `truestep`, the `head` without the list of parts, and each part."""
    body = json.loads(verified_manifest_body(data))
    del body["head"]["parts"]
    return {name: body[name] for name in ("truestep", "head", *PARTS)}


def sealed(manifest: dict[str, Any]) -> bytes:
    """Return a manifest as it lies on disk; parts that are bytes already stand there as they are."""
    parts = {name: part for name, part in manifest.items() if name not in ("truestep", "head")}
    texts = {name: part if isinstance(part, bytes) else compact_json(part) for name, part in parts.items()}
    return manifest_line_with_checksum(join_head_and_parts(manifest["truestep"], manifest["head"], texts))


def edit(folder: Path, **head: Any) -> dict[str, Any]:
    """Change what the head of a checkpoint's manifest says, and return all that it says then."""
    manifest = opened((folder / MANIFEST_NAME).read_bytes())
    manifest["head"] |= head
    (folder / MANIFEST_NAME).write_bytes(sealed(manifest))
    return manifest

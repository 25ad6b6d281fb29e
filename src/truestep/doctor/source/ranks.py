# SPDX-License-Identifier: Apache-2.0
"""Whether a value differs between the ranks of a job, by what it is made from."""

import ast
import re

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk

_RANK = re.compile(
    r"(^|_)(rank|world_size|num_replicas|process_index|num_processes|shard_(id|index)|num_shards)$", re.I
)
_MOST = 60  # expressions that are looked at for one value


def depends_on_rank(module: SourceModule, value: ast.expr) -> bool:
    """Tell whether the rank, or the number of ranks, goes into a value, through the names in between."""
    seen: set[ast.expr] = set()
    waiting = [value]
    while waiting and len(seen) < _MOST:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for each in walk(current):
            name = (dotted(each) or "").rpartition(".")[2]
            if _RANK.search(name) or (isinstance(each, ast.keyword) and _RANK.search(each.arg or "")):
                return True
            if isinstance(each, ast.Name | ast.Attribute):
                waiting += [made for made in module.definitions(each) if made is not None]
                places = module.unpacked(each) if isinstance(each, ast.Name) else None
                waiting += [made for made, _ in places or ()]
    return False

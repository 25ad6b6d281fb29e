# SPDX-License-Identifier: Apache-2.0
"""States of format 1, in which a run spelt out itself what its checkpoints had no word for. Imports no torch.

A tuple was a dict `{"__tuple__": [...]}`, a dict whose keys are no strings, or begin with two underscores, was
`{"__dict__": [[key, value], ...]}`, and a Counter was `{"__counter__": [[key, value], ...]}`. Only the parts that a
run wrote so are read so: elsewhere such keys are a state's own.
"""

from typing import Any

_OF_A_RUN = ("user", "random", "random_at_epoch")
_OF_A_LEARNER = ("optimizers", "schedules")
_TAGS = {"__tuple__": "tuple", "__dict__": "items", "__counter__": "counter"}


def upgrade_older_state(state: Any) -> Any:
    """Return the tree of a state in the words of today."""
    parts = _children(state)
    learners = _children(parts.get("learners"))
    if not {"cursor", "random", "logbook"} <= parts.keys():
        return state  # a store without a run
    for name in _OF_A_RUN:
        if name in parts:
            parts[name] = _translated(parts[name])
    for learner in map(_children, learners.values()):
        for name in _OF_A_LEARNER:
            if name in learner:
                learner[name] = _translated(learner[name])
    return state


def _children(node: Any) -> dict[str, Any]:
    children = node.get("dict") if isinstance(node, dict) else None
    return children if isinstance(children, dict) else {}


def _translated(node: Any) -> Any:
    if isinstance(node, list):
        return [_translated(item) for item in node]
    if not isinstance(node, dict) or "dict" not in node:
        return node
    children = node["dict"]
    if len(children) == 1 and (tag := _TAGS.get(next(iter(children)))):
        (content,) = children.values()
        return {tag: [_translated(item) for item in content]}
    return {"dict": {key: _translated(child) for key, child in children.items()}}

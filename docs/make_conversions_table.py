# SPDX-License-Identifier: Apache-2.0
"""Write the table of what conversions copy, share and cut, by running each: `python docs/make_conversions_table.py`."""

import copy
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import truestep as ts

PAGE = Path(__file__).parent / "copies.md"
START = "<!-- written by docs/make_conversions_table.py -->\n"
END = "<!-- end -->\n"

# `t` is a float32 tensor of shape (2, 3) on the CPU that requires a gradient, `a` a float32 array
EXPRESSIONS = (
    't.to("cpu")',
    "t.cpu()",
    "t.to(torch.float32)",
    "t.float()",
    "t.to(torch.float32, copy=True)",
    "t.to(torch.float64)",
    "t.double()",
    "t.half()",
    "t.long()",
    "t.type(torch.float32)",
    "t.detach()",
    "t.data",
    "t.clone()",
    "t.detach().clone()",
    "copy.deepcopy(t)",
    "t.requires_grad_()",
    "t.view(3, 2)",
    "t.view(torch.int32)",
    "t.reshape(3, 2)",
    "t.flatten()",
    "t.T",
    "t.T.view(6)",
    "t.T.reshape(6)",
    "t.contiguous()",
    "t.T.contiguous()",
    "t[0]",
    "t[:, 1:]",
    "t[[0, 1]]",
    "t[t > 0]",
    "t.expand(4, 2, 3)",
    "t.repeat(1, 1)",
    "torch.tensor(t)",
    "torch.as_tensor(t)",
    "torch.asarray(t)",
    "torch.as_tensor(t, dtype=torch.float64)",
    "t.numpy()",
    "t.detach().numpy()",
    "t.numpy(force=True)",
    "np.asarray(t.detach())",
    "t.tolist()",
    "torch.from_numpy(a)",
    "torch.as_tensor(a)",
    "torch.asarray(a)",
    "torch.tensor(a)",
    "torch.as_tensor(a, dtype=torch.float64)",
    "torch.from_dlpack(a)",
    "ts.to_numpy(t)",
    "ts.from_numpy(a)",
    "ts.from_numpy(a, copy=False)",
)
# What needs a card stands here as torch documents it; nobody has run it for this table.
NOT_RUN = (
    ("t.cuda()", "the same object if it is there already, else a copy", "kept"),
    (
        't.to("cuda", non_blocking=True)',
        "the same; from pinned memory the copy may still be on its way",
        "kept",
    ),
)


def describe(expression: str) -> tuple[str, str]:
    """Return what an expression does with the memory, and with the graph."""
    t = torch.arange(6.0).reshape(2, 3).requires_grad_()
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    names = {"t": t, "a": a, "torch": torch, "np": np, "ts": ts, "copy": copy}
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # also the warnings that torch gives once a process
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = eval(expression, names)  # noqa: S307  the expressions stand above
        except (RuntimeError, TypeError) as error:
            return f"raises {type(error).__name__}", ""
        finally:
            torch.set_warn_always(always)
    source = a if "(a" in expression else t
    warns = f", with a {caught[0].category.__name__}" if caught else ""
    graph = (
        graph_of(result, t) if source is t else ""
    )  # first: what is written afterwards reaches the graph
    return memory_of(result, source) + warns, graph


def memory_of(result: Any, source: Any) -> str:
    """Return whether `result` is `source`, shares its memory, or is a copy: found by writing into it."""
    if result is source:
        return "the same object"
    if isinstance(result, list):
        return "a copy"
    mine, theirs = (
        value.detach() if isinstance(value, torch.Tensor) else value
        for value in (result, source)
    )
    before = copy.deepcopy(theirs)
    mine[(0,) * mine.ndim] = 41
    changed = bool((theirs != before).any())
    return "shared" if changed else "a copy"


def graph_of(result: Any, source: torch.Tensor) -> str:
    """Return whether a gradient flows from `result` back to `source`."""
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        return "cut"
    flows = torch.autograd.grad(result.sum(), source, allow_unused=True)[0] is not None
    return "kept" if flows else "cut"


def table() -> str:
    """Return the table in Markdown."""
    lines = ["| expression | memory | graph |", "|---|---|---|"]
    for expression in EXPRESSIONS:
        memory, graph = describe(expression)
        lines.append(f"| `{expression}` | {memory} | {graph} |")
    lines += [
        f"| `{expression}` (not run) | {memory} | {graph} |"
        for expression, memory, graph in NOT_RUN
    ]
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page with the table as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(START)
    return head + START + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(page(), encoding="utf-8")

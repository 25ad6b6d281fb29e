# SPDX-License-Identifier: Apache-2.0
from truestep.core.text_formatting import bytes_text
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.memory_holders import (
    LiveTensorsAtCrash,
    largest_tensors_at_crash,
    retained_graphs_facts,
)


class OutOfHostMemory(Explainer):
    """The machine's main memory is not enough for an array.

    Means: the CPU's allocator was refused the memory; no GPU is concerned.

    Raises:
        table = torch.empty(10**6, 10**9)

    Works:
        table = torch.empty(10**3, 10**3)

    Fix: look for a size that grew by accident, such as (n, 1) against (n,), which makes (n, n). Read large data piece
    by piece (np.load(..., mmap_mode="r")), with fewer workers, which hold copies.

    Cases:
        otherwise: {kept} Fix: {kept_fix}
        otherwise: {wanted} were asked for when the memory was full. The largest tensors: {largest}.
            Fix: if it comes after many steps, something is kept: append x.detach() or x.item(), and evaluate under
            torch.no_grad(). If it comes in the first, take a smaller batch and fewer workers, which hold copies.
        otherwise: {wanted} were asked for at once{and_shapes}.
        otherwise: {size} were asked for, for an array of shape {shape}.
    """

    messages = (
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (?P<asked>\d+) bytes",
        r"[Uu]nable to allocate (?P<size>[\d.]+ \w+) for an array with shape (?P<shape>\([\d, ]+\))",
        r"Cannot allocate memory",
        r"std::bad_alloc",
    )
    anywhere = True

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        asked = int(match.groupdict().get("asked") or 0)
        facts = {"wanted": bytes_text(asked)} if asked else {}
        alive = LiveTensorsAtCrash.now() if crash.is_live and asked else None
        if alive is None or asked >= alive.num_bytes:
            return facts
        if kept := retained_graphs_facts(crash):
            return kept
        return {**facts, "largest": largest_tensors_at_crash(crash, alive)}

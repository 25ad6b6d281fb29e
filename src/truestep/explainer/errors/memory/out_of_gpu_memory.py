# SPDX-License-Identifier: Apache-2.0
import re

from truestep.core.text_formatting import bytes_text
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.memory_holders import (
    LiveTensorsAtCrash,
    largest_tensors_at_crash,
    processes_on_card_at_crash,
    retained_graphs_facts,
)
from truestep.explainer.values import is_tensor_at_crash


class OutOfGpuMemory(Explainer):
    """The GPU has no room left for a tensor.

    Means: weights, gradients, optimizer states and all that backward needs must fit at once; what is kept from earlier
    steps counts too.

    Recorded:
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of
        which 1.10 GiB is free. Including non-PyTorch memory, this process has 14.67 GiB memory in use. Of the allocated
        memory 13.90 GiB is allocated by PyTorch, and 310.00 MiB is reserved by PyTorch but unallocated.

    Fix: halve the batch (micro-batches keep the result: truestep's micro_batch="auto"), use bf16 autocast, checkpoint
    activations. If it comes after many steps, something is kept: sum loss.item(), and evaluate under torch.no_grad().

    Cases:
        otherwise: {kept} Fix: {kept_fix}
        otherwise: {others} of {total} belong to other processes (torch holds {held} here).{processes}
            Fix: end your own old processes and notebooks, or take another card (`truestep gpus` names who holds which).
        otherwise: {spare} are reserved but in pieces too small for the {wanted} asked for: fragmentation.
            Fix: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the start, and keep the sizes of batches alike
            (pad to a few lengths).
        `evaluating=`: the model is in evaluation mode, and yet a graph is being built: everything for a backward is kept.
            Fix: wrap the evaluation in torch.no_grad() (or torch.inference_mode()).
        otherwise: {amounts}
    """

    messages = (
        r"CUDA out of memory\. (?:[Tt]ried to allocate (?P<asked>[\d.]+ \w+))?",
        r"(?:CUDA|HIP|MPS|XPU)(?: backend)? out of memory",
        r"CUDA error: out of memory",
        r"cuda runtime error \(2\)",
        r"CUBLAS_STATUS_ALLOC_FAILED",
        r"CUDNN_STATUS_ALLOC_FAILED",
        r"Unable to find a valid cuDNN algorithm to run convolution",
        r"CUDA_ERROR_OUT_OF_MEMORY",
        r"cudaErrorMemoryAllocation",
    )
    anywhere = True
    checks = ("MEM001", "EVAL004", "DEV001")
    not_in_a_log = "what is kept: whether it came in the first step or grew from step to step"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        if kept := retained_graphs_facts(crash):
            return kept
        amounts = _MemoryAmountsInMessage(crash.message)
        if (
            found := _other_processes_facts(amounts, crash)
            or _fragmentation_facts(amounts)
            or _grad_in_evaluation_facts(crash)
        ):
            return found
        largest = largest_tensors_at_crash(crash, LiveTensorsAtCrash.now()) if crash.is_live else ""
        told = [
            amounts.text() if amounts.total else "",
            f"The largest tensors: {largest}." if largest else "",
        ]
        return {"amounts": " ".join(filter(None, told))} if any(told) else {}


# how messages of several versions of torch name an amount
_NAMED = {
    "asked": r"[Tt]ried to allocate {}",
    "total": r"total capacity of {}|{} total capacity",
    "free": r"of which {} is free|{} free",
    "allocated": r"{} is allocated by PyTorch|{} already allocated",
    "process": r"this process has {} memory in use",
    "spare": r"{} is reserved by PyTorch but unallocated",
    "reserved": r"{} reserved in total",
}
_UNITS = {"B": 1, "bytes": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class _MemoryAmountsInMessage:
    """The bytes that a message names; 0 where it does not."""

    def __init__(self, message: str) -> None:
        found = {name: _bytes_matched_in_message(message, pattern) for name, pattern in _NAMED.items()}
        self.asked, self.total, self.free = found["asked"], found["total"], found["free"]
        self.allocated, self.process = found["allocated"], found["process"]
        self.spare = found["spare"] or max(0.0, found["reserved"] - self.allocated)

    @property
    def others(self) -> float:
        """Return what other processes hold; where the message does not say, what neither torch holds nor is free."""
        if not self.total or not self.allocated:
            return 0.0
        return self.total - self.free - (self.process or self.allocated + self.spare)

    def text(self) -> str:
        """Return the amounts in a sentence."""
        asked = f"{bytes_text(self.asked)} were asked for; " if self.asked else ""
        held = f"torch's tensors hold {bytes_text(self.allocated)} and {bytes_text(self.free)} are free."
        return f"{asked}of {bytes_text(self.total)}, {held}"


def _bytes_matched_in_message(message: str, pattern: str) -> float:
    """Return the first of several forms that a message has."""
    for form in pattern.split("|"):
        if found := re.search(form.replace("{}", r"([\d.]+) (B|bytes|[KMGT]i?B)\b"), message):
            return float(found[1].rstrip(".")) * _UNITS[found[2].rstrip("iB") or "B"]
    return 0.0


def _other_processes_facts(amounts: _MemoryAmountsInMessage, crash: Crash) -> dict[str, str]:
    if not amounts.total or amounts.others < 0.3 * amounts.total:
        return {}
    named = re.findall(r"Process (\d+) has ([\d.]+ \w+) memory in use", crash.message)
    told = ", ".join(f"{pid} {size}" for pid, size in named[:3])
    which = told or (processes_on_card_at_crash() if crash.is_live else "")
    facts = {"others": bytes_text(amounts.others), "total": bytes_text(amounts.total)}
    processes = f" Processes: {which}." if which else ""
    return {**facts, "held": bytes_text(amounts.allocated), "processes": processes}


def _fragmentation_facts(amounts: _MemoryAmountsInMessage) -> dict[str, str]:
    if not amounts.asked or amounts.spare < max(amounts.asked, 0.1 * amounts.total):
        return {}
    return {"spare": bytes_text(amounts.spare), "wanted": bytes_text(amounts.asked)}


def _grad_in_evaluation_facts(crash: Crash) -> dict[str, str]:
    layer = crash.layer
    if layer is None or layer.module.training:
        return {}
    tensors = [value for value in layer.frame.locals().values() if is_tensor_at_crash(value)]
    return {"evaluating": "yes"} if any(tensor.grad_fn is not None for tensor in tensors) else {}

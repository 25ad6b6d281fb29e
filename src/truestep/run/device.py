# SPDX-License-Identifier: Apache-2.0
"""Choosing the device and the flags that decide whether it repeats itself."""

from typing import Any

import torch
from torch import Tensor

from truestep.core.device_specific import (
    current_accelerator_device,
    has_cudnn_benchmark,
    is_cpu_device,
    num_cuda_devices,
    require_usable_device,
    select_cuda_device,
    supports_collectives,
)
from truestep.core.errors import OptionError
from truestep.engine.batches import map_batch_tensors
from truestep.engine.shared_context import LearnerContext
from truestep.nn.seeds.repeatability import make_deterministic
from truestep.run.rank_environment import launched_rank


def choose_run_device(device: str | torch.device) -> torch.device:
    """Return the device to train on; "auto" is the accelerator if there is one, of several processes each its own."""
    one_of_several = launched_rank()
    if one_of_several is not None and str(device) in ("auto", "cuda") and num_cuda_devices():
        return _select_gpu_of_rank(one_of_several.place.local_rank)
    if device == "auto":
        found = current_accelerator_device()
        if found is None or (one_of_several is not None and not supports_collectives(found)):
            return torch.device("cpu")
        return found
    return require_usable_device(device)


def _select_gpu_of_rank(local_rank: int) -> torch.device:
    """Return the GPU of this process, which is the current one from now on: before any other call makes a context on the first."""
    if local_rank >= num_cuda_devices():
        raise OptionError(
            f"This is process {local_rank} of this machine (counted from 0), and it has {num_cuda_devices()} GPUs. Start as "
            "many processes as there are GPUs on each machine, or train on the CPU: ts.Run(device='cpu')."
        )
    return select_cuda_device(local_rank)


def set_run_determinism(context: LearnerContext, *, deterministic: bool) -> None:
    """Set the flags that were asked for, and note the device and them with their reasons."""
    context.choose("device", context.device, _reason_for_device(context.device))
    if deterministic:
        make_deterministic()
        context.choose(
            "cudnn.benchmark",
            "off",
            "deterministic=True: the auto-tuner may pick another algorithm each time",
        )


def _reason_for_device(device: torch.device) -> str:
    if not is_cpu_device(device):
        return "an accelerator is there"
    unused = current_accelerator_device()
    if unused is None:
        return "torch finds no accelerator"
    if launched_rank() is None or supports_collectives(unused):
        return "as given"
    return f"several processes can't exchange tensors of {unused.type}"


SAME_SHAPES = 3
MOST_SHAPES = 4


class RunCudnnTuner:
    """Switches cuDNN's auto-tuner by the shapes that a loop really gives: it pays where they repeat.

    It measures every algorithm once for each new shape, so it is on after a few batches of the same shapes, and off
    again where many different ones come by. A last short batch is one more shape.
    """

    def __init__(self, context: LearnerContext) -> None:
        self._context = context
        self._shapes: set[tuple[torch.Size, ...]] = set()
        self._repeats = 0
        self.active = has_cudnn_benchmark(context.device) and not torch.are_deterministic_algorithms_enabled()

    def see(self, batch: Any) -> None:
        """Look at a batch's shapes; nothing is read from the device."""
        shapes: list[torch.Size] = []

        def add_shape(tensor: Tensor) -> Tensor:
            shapes.append(tensor.shape)
            return tensor

        map_batch_tensors(add_shape, batch)
        self._repeats += tuple(shapes) in self._shapes
        self._shapes.add(tuple(shapes))
        if len(self._shapes) > MOST_SHAPES:
            self._switch_cudnn_benchmark(
                on=False, reason=f"more than {MOST_SHAPES} shapes of batches, and each would be measured anew"
            )
            self.active = False
        elif self._repeats == SAME_SHAPES:
            self._switch_cudnn_benchmark(
                on=True, reason="batches have the same shapes again and again: measuring once pays"
            )

    def _switch_cudnn_benchmark(self, *, on: bool, reason: str) -> None:
        torch.backends.cudnn.benchmark = on
        self._context.choose("cudnn.benchmark", "on" if on else "off", reason)

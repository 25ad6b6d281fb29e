# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ForkedWorkerUsesCuda(Explainer):
    """A forked process uses CUDA after its parent has started it.

    Means: CUDA does not survive a fork, so data workers and forked processes can't touch the parent's GPU.

    Recorded:
        RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the
        'spawn' start method

    Fix: let the data set and collate_fn return CPU tensors and move the batch in the loop (pin_memory=True makes that
    fast); for processes of your own use torch.multiprocessing with set_start_method("spawn").
    """

    messages = (
        r"Cannot re-initialize CUDA in forked subprocess",
        r"(?:cuda runtime error \(3\)|CUDA error: initialization error)",
        r"Attempted to send CUDA tensor received from another process",
    )
    not_in_a_log = "which tensor of the data set is on the GPU, where the frames do not show it"

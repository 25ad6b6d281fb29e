# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class TooManyOpenFiles(Explainer):
    """The process has as many files open as it may.

    Means: each tensor that a worker passes on keeps a file open; kept batches and unclosed files add up to the limit.

    Recorded:
        RuntimeError: Too many open files. Communication with the workers is no longer possible. Please increase the limit
        using `ulimit -n` in the shell or change the sharing strategy by calling
        `torch.multiprocessing.set_sharing_strategy('file_system')` at the beginning of your code

    Fix: set torch.multiprocessing.set_sharing_strategy("file_system") at the start, or ulimit -n 65535 in the shell; copy what
    is kept from batches (x.clone()), and close files.
    """

    messages = (r"Too many open files", r"received 0 items of ancdata")
    anywhere = True
    not_in_a_log = "what holds the files open"

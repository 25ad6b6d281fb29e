# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class MarkedReadyTwice(Explainer):
    """Under DDP, a parameter's gradient arrives twice in one backward.

    Means: DDP counts one gradient for each parameter; re-entrant checkpointing or two forwards give it two.

    Recorded:
        RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use
        of a module parameter outside the `forward` function.
        Parameter at index 12 with name encoder.layer.0.weight has been marked as ready twice.

    Fix: pass use_reentrant=False to torch.utils.checkpoint (gradient_checkpointing_kwargs={"use_reentrant": False} in
    transformers); call the wrapped model once a step, on all inputs; or set static_graph=True.

    Cases:
        otherwise: the parameter is {name}.
    """

    messages = (
        r"(?s)Expected to mark a variable ready only once(?:.*?at index \d+ with name (?P<name>\S+) has been marked)?",
    )
    not_in_a_log = ""

# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class LocalRankRefused(Explainer):
    """A script does not know the option --local-rank that torch.distributed.launch passes.

    Means: the old launcher passes --local-rank; scripts that declare --local_rank do not know it since torch 2.0.

    Recorded:
        usage: train.py [-h] [--local_rank LOCAL_RANK]
        train.py: error: unrecognized arguments: --local-rank=0

    Fix: start with torchrun and read int(os.environ["LOCAL_RANK"]); or declare both names:
    add_argument("--local-rank", "--local_rank", type=int, default=0).
    """

    messages = (r"unrecognized arguments: --local[-_]rank",)
    anywhere = True
    checks = ("DIST004",)
    not_in_a_log = ""

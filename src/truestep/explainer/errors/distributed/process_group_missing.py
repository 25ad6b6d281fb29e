# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class ProcessGroupMissing(Explainer):
    """Distributed functions are used without a process group, or it lacks the launcher's variables.

    Means: ranks find each other through RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun sets.

    Raises:
        dist.get_rank()

    Works:
        rank = dist.get_rank() if dist.is_initialized() else 0

    Fix: start the script with torchrun --standalone --nproc-per-node=N train.py and call dist.init_process_group() first; for one
    process guard the calls with dist.is_initialized(). SyncBatchNorm needs a group too.

    Cases:
        otherwise: {variable} is not set: the script was started with python, and not with torchrun.
        otherwise: {call} runs before dist.init_process_group().
    """

    messages = (
        r"Default process group has not been initialized",
        r"Process group (?:has not been|is not) initialized",
        r"environment variable (?P<variable>\w+) expected, but not set",
        r"Default process group is not initialized",
        r"requires a (?:default )?process group",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        called = crash.user.text if crash.user else ""
        return {"call": called} if called.startswith("dist.") else {}

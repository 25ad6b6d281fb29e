# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class DiskFull(Explainer):
    """A file can't be written, as the disk or the quota is full.

    Means: checkpoints, caches or temporary files filled the place; a file begun now is cut short.

    Recorded:
        OSError: [Errno 28] No space left on device

    Fix: df -h and du -sh show where; keep fewer checkpoints (ts.Retention, `truestep checkpoints prune`), and move caches: TMPDIR,
    HF_HOME, TORCH_HOME. Verify the last checkpoint: `truestep checkpoints verify`.
    """

    messages = (
        r"\[Errno 28\]",
        r"No space left on device",
        r"Disk quota exceeded",
        r"PytorchStreamWriter failed writing file",
        r"unexpected pos \d+ vs \d+",
    )
    anywhere = True
    not_in_a_log = "which disk it was"

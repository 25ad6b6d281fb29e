# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class MainGuardMissing(Explainer):
    """A script starts processes while it is imported by one of them.

    Means: with spawn (Windows, macOS, CUDA) each worker imports the script anew and would start workers itself.

    Recorded:
        RuntimeError:
                An attempt has been made to start a new process before the
                current process has finished its bootstrapping phase.

    Fix: put all that the script does under if __name__ == "__main__": (imports, functions and classes stay above it); in a
    notebook move the data set's class to a file, or use num_workers=0.
    """

    messages = (
        r"An attempt has been made to start a new process before",
        r"current process has finished its bootstrapping phase",
        r"freeze_support\(\)",
    )
    anywhere = True
    not_in_a_log = ""

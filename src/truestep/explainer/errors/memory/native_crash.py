# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class NativeCrash(Explainer):
    """The process crashed inside of compiled code.

    Means: a library read memory that is not its own; Python has no traceback for that.

    Recorded:
        Segmentation fault (core dumped)

    Fix: start with python -X faulthandler train.py, which prints the Python lines at the crash; then look at extensions
    built for another
    torch (truestep env), at two libraries that bring OpenMP or CUDA, and at the order of imports.

    Cases:
        `Illegal instruction`: the package was compiled for a newer processor than this one.
            Fix: take another build of it (conda, or from source).
    """

    messages = (
        r"Segmentation fault",
        r"Fatal Python error: (?P<kind>Segmentation fault|Aborted|Bus error)",
        r"exitcode\s*:? ?-11\b",
        r"died with <Signals\.SIGSEGV",
        r"\*\*\* Error in `[^']*': (?:double free|free\(\)|corrupted)",
        r"double free or corruption|malloc\(\): ",
        r"Illegal instruction",
    )
    anywhere = True
    not_in_a_log = "the line, unless faulthandler was on"

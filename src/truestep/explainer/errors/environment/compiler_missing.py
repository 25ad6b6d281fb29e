# SPDX-License-Identifier: Apache-2.0
"""CompilerMissing."""

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause, Explainer, Match


class CompilerMissing(Explainer):
    """torch.compile finds no compiler to build its kernels with.

    Means: it writes C++ for CPUs and Triton for GPUs; the first needs a C++ compiler, the second Triton, gcc and Python's headers.

    Recorded:
        Traceback (most recent call last):
          File "/home/me/project/train.py", line 12, in <module>
            compiled(images)
        torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')

    Fix: install one: apt install g++ python3-dev on Linux, the C++ build tools of Visual Studio and triton-windows on Windows
    (start from its developer prompt). Or go without: leave torch.compile out, or torch.compile(model, backend="eager").
    """

    messages = (
        r"(?P<cxx>No working C\+\+ compiler found)",
        r"(?P<cxx>Compiler: cl is not found|InvalidCxxCompiler)",
        r"(?P<c>Failed to find C compiler)",
        r"(?P<triton>Cannot find a working triton installation|TritonMissing)",
        r"(?P<headers>fatal error: Python\.h: No such file)",
    )
    anywhere = True
    not_in_a_log = "what is installed there"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found = {name for name, value in match.groupdict().items() if value}
        return Cause(*_CAUSES[found.pop()]) if found else None


_CAUSES = {
    "cxx": ("there is no C++ compiler on the PATH.",),
    "c": ("Triton finds no C compiler.", "install gcc, or set CC to the compiler."),
    "triton": (
        "Triton is not installed, or not for this system.",
        "pip install triton (triton-windows on Windows).",
    ),
    "headers": ("Python's headers are missing.", "apt install python3-dev (or of the version in use)."),
}

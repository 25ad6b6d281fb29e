# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


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

    Cases:
        `C++ compiler` or `Compiler: cl` or `InvalidCxxCompiler`: there is no C++ compiler on the PATH.
        `find C compiler`: Triton finds no C compiler. Fix: install gcc, or set CC to the compiler.
        `triton` or `Triton`: Triton is not installed, or not for this system.
            Fix: pip install triton (triton-windows on Windows).
        `Python.h`: Python's headers are missing. Fix: apt install python3-dev (or of the version in use).
    """

    messages = (
        r"No working C\+\+ compiler found",
        r"Compiler: cl is not found|InvalidCxxCompiler",
        r"Failed to find C compiler",
        r"Cannot find a working triton installation|TritonMissing",
        r"fatal error: Python\.h: No such file",
    )
    anywhere = True
    not_in_a_log = "what is installed there"

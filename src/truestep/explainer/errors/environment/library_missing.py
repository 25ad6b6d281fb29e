# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class LibraryMissing(Explainer):
    """A compiled library that a package needs is not found.

    Means: the loader looks beside the package, in LD_LIBRARY_PATH and in the system's folders, by exact major version.

    Recorded:
        ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory

    Fix: reinstall torch with its CUDA packages (pip install --force-reinstall torch), which bring libcudnn and libcublas; unset
    LD_LIBRARY_PATH, where others may stand. libGL comes from apt install libgl1, or opencv-python-headless.

    Cases:
        `libGL`: libGL is a graphics library that OpenCV asks for.
            Fix: pip install opencv-python-headless, or apt install libgl1 libglib2.0-0.
        `GLIBC`: the system is older than the package: {library} is missing.
            Fix: conda install libstdcxx-ng, or take a wheel for this system.
        otherwise: the library is {library}.
    """

    messages = (
        r"(?P<library>lib[\w+-]+\.so[.\d]*): cannot open shared object file",
        r"Could not load library (?P<library>lib[\w+-]+\.so[.\d]*)",
        r"(?P<library>GLIBC(?:XX)?_[\d.]+)'? not found",
        r"Unable to load any of \{(?P<library>libcudnn\w*\.so[.\d]*)",
        r"OSError: \[WinError (?:126|127|1114)\]",
    )
    anywhere = True
    not_in_a_log = "where the library stands on that machine"

# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class BuiltForNumpyOne(Explainer):
    """A package built for NumPy 1 runs with NumPy 2, or NumPy is missing or broken.

    Means: compiled packages fit NumPy's major version; torch before 2.3 fits NumPy 1 alone.

    Recorded:
        A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0 as it may crash. To support both 1.x and 2.x
        versions of NumPy, modules must be compiled with NumPy 2.0.
        RuntimeError: Numpy is not available

    Fix: update the package that was built for NumPy 1 (torch 2.3 and later know NumPy 2), or pin pip install "numpy<2" until it is;
    then restart Python.

    Cases:
        `_core`: a file pickled with NumPy 2 is read with NumPy 1.
            Fix: pip install -U numpy, or save it again with NumPy 1.
        otherwise: the import that failed: {import}.
    """

    messages = (
        r"A module that was compiled using NumPy 1\.x cannot be run in\s+NumPy 2",
        r"Numpy is not available",
        r"_ARRAY_API not found",
        r"numpy\.(?:dtype|ufunc|ndarray) size changed, may indicate binary incompatibility",
        r"numpy\.core\.multiarray failed to import",
        r"No module named 'numpy\._core'",
        r"module compiled against (?:ABI|API) version",
    )
    anywhere = True
    not_in_a_log = "which package it was built for, where the traceback does not show its import"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        imports = [frame.text for frame in crash.frames if frame.text.startswith(("import ", "from "))]
        return {"import": imports[-1]} if imports else {}

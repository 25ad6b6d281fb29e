# SPDX-License-Identifier: Apache-2.0
"""CompanionOfOtherTorch."""

from truestep.explainer.crash import Crash
from truestep.explainer.environment import environment_cause
from truestep.explainer.explainer import Cause, Explainer, Match


class CompanionOfOtherTorch(Explainer):
    """torchvision, torchaudio or an extension was built for another torch.

    Means: compiled parts fit the one torch version and CUDA that they were built with.

    Recorded:
        RuntimeError: operator torchvision::nms does not exist

    Fix: install both together from one index: pip install torch torchvision (the line of https://pytorch.org/get-started); rebuild
    extensions: pip install --force-reinstall --no-cache-dir --no-build-isolation NAME.
    """

    messages = (
        r"operator (?P<who>torchvision)::nms does not exist",
        r"Couldn't load custom C\+\+ ops",
        r"No such operator (?P<who>torchvision|torchaudio)",
        r"Could not run 'torchvision::nms' with arguments from the 'CUDA' backend",
        r"undefined symbol: _ZN\w*(?:c10|torch|at)\w*",
        r"lib(?:ATen|c10|caffe2|THC?|torch)\w*\.so[\d.]*: undefined symbol",
        r"Detected that PyTorch and (?P<who>\w+) were compiled with different CUDA (?:major )?versions",
        r"The detected CUDA version \([\d.]+\) mismatches the version that was used to compile PyTorch",
        r"partially initialized module '(?P<who>torchvision|torchaudio)' has no attribute",
        r"libtorch\w*(?:cpu|cuda)?\w*\.so: cannot open shared object file",
        r"DLL load failed while importing _(?:C|cuda)\w*",
    )
    anywhere = True
    not_in_a_log = "the installed versions"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found = environment_cause("companions_fit") if crash.is_live else None
        if found:
            return Cause(f"{found.says}.")
        if "undefined symbol" in match[0]:
            return Cause(
                "a compiled extension asks torch for a symbol that this version does not have.", _REBUILD
            )
        if "The detected CUDA" in match[0]:
            return Cause(
                "nvcc is of another CUDA than torch.",
                "set CUDA_HOME to a toolkit of torch.version.cuda's major version.",
            )
        return None


_REBUILD = (
    "rebuild it against the installed torch (pip install --force-reinstall --no-cache-dir --no-build-isolation), or take its "
    "wheel for it."
)

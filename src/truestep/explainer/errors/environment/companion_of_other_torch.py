# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class CompanionOfOtherTorch(Explainer):
    """torchvision, torchaudio or an extension was built for another torch.

    Means: compiled parts fit the one torch version and CUDA that they were built with.

    Recorded:
        RuntimeError: operator torchvision::nms does not exist

    Fix: install both together from one index: pip install torch torchvision (the line of https://pytorch.org/get-started); rebuild
    extensions: pip install --force-reinstall --no-cache-dir --no-build-isolation NAME.

    Cases:
        otherwise: {verdict}.
        `undefined symbol`: a compiled extension asks torch for a symbol that this version does not have.
            Fix: rebuild it against the installed torch (pip install --force-reinstall --no-cache-dir --no-build-isolation),
            or take its wheel for it.
        `The detected CUDA`: nvcc is of another CUDA than torch.
            Fix: set CUDA_HOME to a toolkit of torch.version.cuda's major version.
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
    verdict = "companions_fit"

# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class DownloadFailed(Explainer):
    """Weights or a data set could not be downloaded, or came incomplete.

    Means: the machine has no way to that server, the server refused, or the file on disk is the rest of a broken download.

    Recorded:
        Traceback (most recent call last):
          File "/home/me/project/train.py", line 9, in <module>
            model = resnet18(weights="DEFAULT")
        urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>

    Fix: download once where there is a network, and copy it: weights to ~/.cache/torch/hub/checkpoints (TORCH_HOME), data sets to
    their root. Remove a broken file first. On clusters, download on the login node, as compute nodes often have no network.

    Cases:
        `CERTIFICATE_VERIFY_FAILED`: the server's certificate is not trusted: Python's list is old or empty, or a proxy
            stands between.
            Fix: python -m pip install --upgrade certifi (on a Mac run Install Certificates.command of Python).
        `Error 401`: the server answered 401: it wants a token (huggingface-cli login).
        `Error 403`: the server answered 403: it refuses this client, or asks for a licence to be accepted first.
        `Error 404`: the server answered 404: the address is gone, and a newer version of the package may know the new one.
        `Error 429`: the server answered 429: too many requests, wait.
        `Error 503`: the server answered 503: it is down for now.
        otherwise: the server answered {status}.
        `hash` or `corrupted`: what is on disk is incomplete or of another version.
            Fix: remove that file, and download it anew.
    """

    messages = (
        r"urlopen error \[?(?:SSL: CERTIFICATE_VERIFY_FAILED)?",
        r"HTTP Error (?P<status>\d{3})",
        r"invalid hash value \(expected",
        r"Dataset not found or corrupted",
        r"File not found or corrupted",
        r"(?:Max retries exceeded with url|Failed to establish a new connection|Temporary failure in name resolution)",
        r"(?:couldn't|could not|Can't|can't) (?:connect to|load the) .{0,200}huggingface\.co",
    )
    not_in_a_log = "whether that machine reaches the server now"

# SPDX-License-Identifier: Apache-2.0
import re

from truestep.explainer.explainer import Crash, Explainer, Match


class ChildFailed(Explainer):
    """torchrun or spawn reports that one of its processes failed; this is not the error itself.

    Means: the launcher saw a process end with a failing status. What failed stands in that process's own output.

    Recorded:
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        train.py FAILED
        Root Cause (first observed failure):
          rank      : 1 (local_rank: 1)
          exitcode  : 1 (pid: 4242)

    Fix: look above this report for the first traceback, or start with torchrun --log-dir logs --redirects 3, which keeps each
    rank's output; @record from torch.distributed.elastic puts the traceback into the report.

    Cases:
        otherwise: rank {rank} failed first, with status {status}{meaning}.
        `status=`: the status is {status}{meaning}.
    """

    messages = (
        r"ChildFailedError",
        r"(?s)^.*?FAILED\s+-+.*Root Cause",
        r"Command '(?!\['ninja').*' (?:returned non-zero exit status|died with)",
        r"process \d+ terminated with (?:exit code|signal)",
        r"torch\.distributed\.elastic\.multiprocessing\.api:\s?failed \(exitcode: (?P<exit>-?\d+)\)",
    )
    types = ("ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException")
    is_consequence = True
    not_in_a_log = "what failed, if that process's own lines are not in it"

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Recognise the launcher's exceptions by their types, whatever their text."""
        name = crash.type_names[0].rpartition(".")[2] if crash.type_names else ""
        if name == "ChildFailedError":
            return re.search("", "")
        return super().match(crash)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        root = re.search(r"(?s)Root Cause.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", crash.text)
        found = root or re.search(r"(exit)code: (-?\d+)", crash.text)
        if not found:
            return {}
        facts = {"status": found[2], "meaning": f" ({_MEANINGS[found[2]]})" if found[2] in _MEANINGS else ""}
        return facts | ({"rank": root[1]} if root else {})


_MEANINGS = {
    "-9": "killed, most often out of main memory",
    "-11": "a crash in native code",
    "-6": "aborted",
    "-15": "ended by another",
}

# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class UnpackingDoesNotFit(Explainer):
    """A value has more or fewer parts than the names on the left of it.

    Means: a, b = value needs exactly two parts: of a shape one for each axis, of a batch one for each that the data set gives.

    Raises:
        images = torch.zeros(3, 8, 8)
        batch, channels, height, width = images.shape

    Works:
        images = torch.zeros(2, 3, 8, 8)
        batch, channels, height, width = images.shape

    Fix: print what is unpacked. A shape with one axis too few: x.unsqueeze(0); a batch: look at what __getitem__ returns, or unpack
    as first, *rest = batch.

    Cases:
        `environment=`: the line calls an environment: gymnasium gives (state, info) from reset and five values from step.
            Fix: state, info = env.reset(); state, reward, terminated, truncated, info = env.step(action).
        otherwise: the value is a {kind}: what should have made it gave one thing, or nothing.
        `shape=`: {wanted} axes are named{and_given}{and_shapes}.
            Fix: look at the axes: unsqueeze(0) adds a batch.
        otherwise: {wanted} names stand on the left{and_given}.
    """

    types = ("ValueError", "TypeError")
    messages = (
        r"too many values to unpack(?: \(expected (?P<wanted>\d+)(?:, got (?P<given>\d+))?\))?",
        r"not enough values to unpack \(expected (?:at least )?(?P<wanted>\d+), got (?P<given>\d+)\)",
        r"not enough values to unpack",
        r"cannot unpack non-iterable (?P<kind>\w+) object",
    )
    not_in_a_log = "how many parts the value has, and what they are"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        found, text = match.groupdict(), crash.user.text if crash.user else ""
        facts = {"and_given": f", {found['given']} are there" if found.get("given") else ""}
        if ".step(" in text or ".reset(" in text:
            facts["environment"] = "yes"
        return facts | ({"shape": "yes"} if ".shape" in text or ".size()" in text else {})

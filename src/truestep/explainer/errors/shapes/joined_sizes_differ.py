# SPDX-License-Identifier: Apache-2.0
"""JoinedSizesDiffer."""

from truestep.explainer.evidence import shapes_and_origins
from truestep.explainer.explainer import Cause, Crash, Explainer, Match


class JoinedSizesDiffer(Explainer):
    """torch.cat gets tensors that differ in another axis than the one they are joined along.

    Means: joined tensors must have as many axes, and equal sizes in all of them but the one given as dim.

    Raises:
        up, skip = torch.zeros(2, 8, 15, 15), torch.zeros(2, 8, 16, 16)
        torch.cat([up, skip], dim=1)

    Works:
        up, skip = torch.zeros(2, 8, 15, 15), torch.zeros(2, 8, 16, 16)
        torch.cat([F.interpolate(up, size=skip.shape[2:]), skip], dim=1)

    Fix: join along the axis that differs, or bring the others to one size first: in a U-Net, interpolate or crop the
    upsampled map to the skip's size, or pad the images to a multiple of 2 ** depth.
    """

    messages = (
        (
            r"Sizes of tensors must match except in dimension (?P<axis>\d+)\. (?:Expected size (?P<first>\d+) but got size "
            r"(?P<second>\d+) for tensor number (?P<which>\d+)|Got (?P<one>\d+) and (?P<two>\d+) in dimension (?P<other>\d+))"
        ),
        r"Sizes of tensors must match except in dimension (?P<axis>\d+)",
        r"Tensors must have same number of dimensions: got (?P<first>\d+) and (?P<second>\d+)",
        r"all the input array dimensions except for the concatenation axis must match exactly",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found = match.groupdict()
        first, second = found.get("first") or found.get("one"), found.get("second") or found.get("two")
        if first is None:
            return None
        what = "sizes" if found.get("axis") else "numbers of axes"
        along = f"; they are joined along axis {found['axis']}" if found.get("axis") else ""
        shown = shapes_and_origins(crash)
        return Cause(f"the {what} {first} and {second} meet{along}{f': {shown}' if shown else ''}.")

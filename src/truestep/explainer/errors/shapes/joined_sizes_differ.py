# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import shapes_and_origins_text


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

    Cases:
        otherwise: the {what} {first} and {second} meet{along}{shown}.
        otherwise: the {what} {one} and {two} meet{along}{shown}.
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

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        axis, shown = match.groupdict().get("axis"), shapes_and_origins_text(crash)
        along = f"; they are joined along axis {axis}" if axis else ""
        what = "sizes" if axis else "numbers of axes"
        return {"what": what, "along": along, "shown": f": {shown}" if shown else ""}

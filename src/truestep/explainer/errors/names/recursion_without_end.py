# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from truestep.explainer.crash import Crash, CrashFrame
from truestep.explainer.explainer import Explainer, Match

_MANY = 3  # a log shows a repeated frame three times


class RecursionWithoutEnd(Explainer):
    """A function calls itself without end.

    Means: forward calls the model itself (self(x), self.forward(x)), or __getattr__ looks an attribute up that is not there.

    Raises:
        class Net(nn.Module):
            def forward(self, x):
                return self.forward(x)

        Net()(torch.zeros(1))

    Works:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(1, 1)

            def forward(self, x):
                return self.layer(x)

        Net()(torch.zeros(1))

    Fix: call a layer in forward, never the model itself; in __getattr__ of a module try super().__getattr__(name) first, as
    layers are found through it. A model that holds itself (self.parent = parent) recurses in every walk of its layers.

    Cases:
        `looks=`: {shown} looks up an attribute of the object itself, which calls __getattr__ again.
            Fix: begin with: try: return super().__getattr__(name), except AttributeError: look elsewhere.
        `many=`: these call each other without end: {shown}.
        otherwise: {shown} calls itself.
    """

    types = ("RecursionError",)
    messages = (r"maximum recursion depth exceeded",)
    not_in_a_log = "which object it was called on"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        round_trip = _recurring_frames(crash)
        shown = [f"{frame.function} ({frame.place}: {frame.text})" for frame in round_trip]
        looks = any(frame.function == "__getattr__" for frame in round_trip)
        facts = {"shown": ", ".join(shown[:3])} if shown else {}
        return facts | ({"looks": "up"} if looks else {}) | ({"many": "yes"} if len(shown) > 1 else {})


def _recurring_frames(crash: Crash) -> list[CrashFrame]:
    """Return the frames that the error came through again and again, the user's own if there are any."""
    times = Counter((frame.path, frame.line) for frame in crash.frames)
    again = {
        (frame.path, frame.line): frame for frame in crash.frames if times[frame.path, frame.line] >= _MANY
    }
    own = [frame for frame in again.values() if frame.is_users]
    return own or list(again.values())

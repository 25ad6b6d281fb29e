# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.origins import defined_at_phrase


class ArgumentsDoNotFit(Explainer):
    """A function, often forward, is called with too many or too few arguments.

    Means: the call and the definition differ; self counts as the first argument, so a forward that "takes 2" takes one input.

    Raises:
        class Net(nn.Module):
            def forward(self, x):
                return x

        Net()(torch.zeros(1), torch.zeros(1))

    Works:
        class Net(nn.Module):
            def forward(self, x, mask):
                return x * mask

        Net()(torch.zeros(1), torch.zeros(1))

    Fix: pass what the definition names (a missing self in "def forward(x)" shifts all); in nn.Sequential each layer gets the
    one output of the layer before; a package of another version may have changed the call.

    Cases:
        otherwise: {called} takes {takes}{own}, {given} were given.
        otherwise: {called} was called without {names}.
        otherwise: {called} got {twice} twice: by position and by name.
    """

    types = ("TypeError",)
    messages = (
        r"(?P<function>[\w.<>]{1,200})\(\) takes .*?(?P<takes>\d+) positional .* but (?P<given>\d+) w\w+ given",
        r"(?P<function>[\w.<>]{1,200})\(\) missing (?P<missing>\d+) required (?:positional|keyword-only) arguments?: (?P<names>.*)",
        r"(?P<function>[\w.<>]{1,200})\(\) got multiple values for argument '(?P<twice>\w+)'",
    )
    not_in_a_log = "where the function is defined"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        function: str = match["function"].rpartition(">.")[2]
        if crash.layer is not None and function.endswith("forward"):
            function += defined_at_phrase(type(crash.layer.module).forward)
        own = " (self among them)" if "." in function or "forward" in function else ""
        return {"called": function, "own": own}

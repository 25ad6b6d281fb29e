# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ModuleNotInitialized(Explainer):
    """A module's __init__ sets layers before it calls super().__init__().

    Means: nn.Module's own __init__ makes the tables in which layers and parameters are kept.

    Raises:
        class Net(nn.Module):
            def __init__(self):
                self.layer = nn.Linear(2, 2)

        Net()

    Works:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)

        Net()

    Fix: write super().__init__() as the first line of __init__ (look at its spelling, with two underscores on each side).
    """

    messages = (r"cannot assign (?:module|parameters?|buffers?) before Module\.__init__\(\) call",)
    checks = ("PARAM004", "PARAM019")
    not_in_a_log = ""

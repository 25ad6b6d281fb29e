# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class GeneratorOnOtherDevice(Explainer):
    """A random generator is of another device than the numbers drawn from it.

    Means: set_default_device or set_default_tensor_type moves new tensors to the GPU, while samplers draw from a CPU generator.

    Recorded:
        RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'

    Fix: take set_default_tensor_type/set_default_device away and write .to(device); or pass the loader
    generator=torch.Generator(device="cuda").

    Cases:
        otherwise: numbers on {wanted} are drawn from a generator on {given}.
    """

    messages = (
        r"Expected a '(?P<wanted>\w+)' (?:generator )?device type(?: for generator)? but found '(?P<given>\w+)'",
    )

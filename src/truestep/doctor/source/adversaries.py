# SPDX-License-Identifier: Apache-2.0
"""Which side of a GAN a name stands for."""

_SIDES = {
    "discriminator": ({"d", "netd", "discriminator", "critic"}, ("_d", "discriminator", "critic")),
    "generator": ({"g", "netg", "generator"}, ("_g", "generator")),
}


def gan_role_in_source(name: str) -> str | None:
    """Return "discriminator" or "generator" for names like D, netD, opt_d, self.generator, optimizer_G."""
    short = name.rsplit(".", 1)[-1].partition("@")[0].lower()
    for side, (whole, endings) in _SIDES.items():
        if short in whole or short.endswith(endings):
            return side
    return None

# SPDX-License-Identifier: Apache-2.0
"""Trainings and loaders of other frameworks, and ways to kill them."""

from support import warm

# what takes seconds to import; these libraries set variables when they are imported, so no test process does
LOADED = "accelerate lightning transformers.trainer transformers.models.gpt2.modeling_gpt2"


def run(*command, **settings):
    """Run `python COMMAND` in a process of its own, forked from one that has the frameworks loaded."""
    return warm.run(*command, loaded=LOADED, **settings)

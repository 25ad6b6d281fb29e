# SPDX-License-Identifier: Apache-2.0
"""From a recipe's name or file and the words after it to a training: found, read, converted, started.

What can be told from the file's text is told from it, so that lists, help and typing mistakes need
neither torch nor a second of waiting.
"""

from truestep.recipes.loading.find import find, recipes
from truestep.recipes.loading.source import Option, Recipe, read_recipe
from truestep.recipes.loading.start import RunOptions, new_directory, parsed, start

__all__ = [
    "Option",
    "Recipe",
    "RunOptions",
    "find",
    "new_directory",
    "parsed",
    "read_recipe",
    "recipes",
    "start",
]

# SPDX-License-Identifier: Apache-2.0
"""From a recipe's name or file and the words after it to a training: found, read, parsed, started."""

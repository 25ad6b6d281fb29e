# SPDX-License-Identifier: Apache-2.0
"""The errors that are explained, one a file, in folders by topic."""

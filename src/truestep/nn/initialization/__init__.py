# SPDX-License-Identifier: Apache-2.0
"""Initial weights by kind of layer, with the gain of the activation before."""

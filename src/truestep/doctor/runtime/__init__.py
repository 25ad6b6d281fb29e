# SPDX-License-Identifier: Apache-2.0
"""How a running script is watched: the wrapped calls, and what is known of the run."""

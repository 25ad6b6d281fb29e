# SPDX-License-Identifier: Apache-2.0
"""Start every random stream at a seed, choose deterministic algorithms, and say what may still vary."""

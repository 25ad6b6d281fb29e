# SPDX-License-Identifier: Apache-2.0
"""Seeds and determinism."""

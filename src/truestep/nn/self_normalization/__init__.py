# SPDX-License-Identifier: Apache-2.0
"""Self-normalising networks: SELU, alpha dropout and LeCun's initial weights belong together."""

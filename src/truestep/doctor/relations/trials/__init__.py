# SPDX-License-Identifier: Apache-2.0
"""The relations of a loss function, tried in this process: `ts.relations`."""

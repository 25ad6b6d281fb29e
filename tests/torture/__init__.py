# SPDX-License-Identifier: Apache-2.0
"""Ways to do harm to checkpoints, shared by the tests and by `make torture`."""

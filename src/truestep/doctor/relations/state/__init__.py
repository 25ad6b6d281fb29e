# SPDX-License-Identifier: Apache-2.0
"""Relations of a training, a file each, that sealed children are compared for."""

# SPDX-License-Identifier: Apache-2.0
"""Reports about the machine, its GPUs and its memory."""

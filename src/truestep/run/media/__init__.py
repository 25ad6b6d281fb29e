# SPDX-License-Identifier: Apache-2.0
"""Pictures, sound and text beside the numbers: what `run.log` can be given besides them, and where it is kept."""

# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of windows: what size a layer gives, and which layers give a size."""

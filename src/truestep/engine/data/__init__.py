# SPDX-License-Identifier: Apache-2.0
"""Orders, loaders and randomness of samples."""

# SPDX-License-Identifier: Apache-2.0
"""Weight norm and spectral norm of a whole model, and the names that checkpoints give them."""

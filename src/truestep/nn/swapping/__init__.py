# SPDX-License-Identifier: Apache-2.0
"""One kind of activation in the place of another, and the functions that can't be swapped."""

# SPDX-License-Identifier: Apache-2.0
"""Running statistics of batch normalisation: their pace under accumulation, and exact ones."""

# SPDX-License-Identifier: Apache-2.0
"""Exact resume inside Lightning, Hugging Face's Trainer and Accelerate; none of them is imported until its name is used."""

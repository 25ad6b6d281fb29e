# SPDX-License-Identifier: Apache-2.0
"""Exporting a model to other runtimes, and comparing what they give with what torch gives."""

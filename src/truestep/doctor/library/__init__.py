# SPDX-License-Identifier: Apache-2.0
"""What torch and the libraries around it do: tables of names by their properties, which checks ask, and nothing else."""

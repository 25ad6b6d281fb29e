# SPDX-License-Identifier: Apache-2.0
"""What recipes are made of besides their training: data, and networks that are not trained there."""

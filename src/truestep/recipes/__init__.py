# SPDX-License-Identifier: Apache-2.0
"""Complete trainings that truestep train NAME runs."""

# SPDX-License-Identifier: Apache-2.0
"""A package for pytest, so that its fleet and Prometheus end with the last of its tests."""

# SPDX-License-Identifier: Apache-2.0
"""DCGM's metric families as dcgm-exporter serves them."""

# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter's own contract, release by release: counters, types, configuration."""

# SPDX-License-Identifier: Apache-2.0
"""A workload played on a fleet, with schedulers to compare."""

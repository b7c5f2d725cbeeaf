# SPDX-License-Identifier: Apache-2.0
"""What deploy/monitoring holds: dashboards declared in Python, and rules for the operator."""

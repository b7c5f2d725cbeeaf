# SPDX-License-Identifier: Apache-2.0
"""Queries that people have: dashboards and rules in PromQL, judged on what two exporters serve."""

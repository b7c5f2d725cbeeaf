# SPDX-License-Identifier: Apache-2.0
"""Draining of a node before a MIG change: no pod leaves unless all may go.

The rules are pure (:mod:`fleet.drain.drain_plan`); :mod:`fleet.drain.drain_view` reads what they
judge. The coordinator evicts.
"""

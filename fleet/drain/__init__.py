# SPDX-License-Identifier: Apache-2.0
"""Which pods leave a node before a MIG change, and how: none unless all may go.

The rules are pure (:mod:`fleet.drain.drain_plan`); :mod:`fleet.drain.drain_view` reads what they
judge. The coordinator evicts.
"""

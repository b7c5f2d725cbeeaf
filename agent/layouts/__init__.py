# SPDX-License-Identifier: Apache-2.0
"""MIG layouts that the admin asks for on the Node: judged, changed, and shown on the Node."""

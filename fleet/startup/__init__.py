# SPDX-License-Identifier: Apache-2.0
"""The startup taint of new Nodes, which keeps pods away until the first MIG layout is there."""

# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""The command line: one module per command; wires the other packages together."""

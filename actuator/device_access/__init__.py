# SPDX-License-Identifier: Apache-2.0
"""What the host must have before a program can open a MIG instance: device nodes, CDI files."""

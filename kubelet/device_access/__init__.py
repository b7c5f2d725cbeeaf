# SPDX-License-Identifier: Apache-2.0
"""Access of programs to MIG instances on the host: device nodes, CDI files."""

# SPDX-License-Identifier: Apache-2.0
"""What others read of MIG changes: the state of a Node's layout, and that of the coordinator."""

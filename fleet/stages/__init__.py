# SPDX-License-Identifier: Apache-2.0
"""The story of a Node's MIG layout, from what is desired to done, and how to cancel it."""

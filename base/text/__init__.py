# SPDX-License-Identifier: Apache-2.0
"""Text from outside: what of it terminals, logs and Events may show, and durations in it."""

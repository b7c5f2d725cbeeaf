# SPDX-License-Identifier: Apache-2.0
"""What people look at, opened in a real browser."""

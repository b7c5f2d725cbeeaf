# SPDX-License-Identifier: Apache-2.0
"""What a program that may be the first process of its container has to do."""

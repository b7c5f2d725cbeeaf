# SPDX-License-Identifier: Apache-2.0
"""Facts that the doctor's checks judge, and how they are read."""

# SPDX-License-Identifier: Apache-2.0
"""Who uses a GPU or a part of it: processes and pods."""

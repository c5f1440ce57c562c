# SPDX-License-Identifier: Apache-2.0
"""The models of the sentinel table. Each file needs PyTorch and nothing else, and its functions return a Task."""

# SPDX-License-Identifier: Apache-2.0
"""PumpGraph inside of libraries that have a training loop of their own.

    from pumpgraph.integrations.transformers import PumpGraphCallback
    from pumpgraph.integrations.lightning import PumpGraphCallback

Importing this package needs neither library; each module of it imports its own. The guide is
docs/guide/huggingface-and-lightning.md.
"""

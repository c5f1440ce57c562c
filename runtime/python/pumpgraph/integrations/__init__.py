# SPDX-License-Identifier: Apache-2.0
"""PumpGraph inside libraries that have a training loop of their own.

    from pumpgraph.integrations.transformers import PumpGraphCallback
    from pumpgraph.integrations.lightning import PumpGraphCallback
    from pumpgraph.integrations.generation import graph_decoding

The import of this package needs none of the libraries; each module imports its own. The guide is
docs/guide/huggingface-and-lightning.md.
"""

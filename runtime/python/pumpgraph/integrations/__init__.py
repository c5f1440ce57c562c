# SPDX-License-Identifier: Apache-2.0
"""PumpGraph inside of libraries that have a training loop of their own.

    from pumpgraph.integrations.transformers import PumpGraphCallback
    from pumpgraph.integrations.lightning import PumpGraphCallback

Importing this package needs neither library; each module of it imports its own. docs/pytorch.md has the guide.
"""

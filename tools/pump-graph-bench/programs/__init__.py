# SPDX-License-Identifier: Apache-2.0
"""Real programs, a file each, as their users write them: main(run) is all of it,
and run (program_ways.py) says how."""

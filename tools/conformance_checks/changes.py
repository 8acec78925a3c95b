# SPDX-License-Identifier: Apache-2.0
"""Changes to the config of a drawn case."""


def combined(*changes):
    """All of them, one after the other."""
    def change(rng, config):
        for one in changes:
            one(rng, config)
    return change

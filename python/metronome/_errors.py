# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package."""

import re

__all__ = ["ArgumentError", "InternalError", "MetronomeError", "MetronomeWarning",
           "PolicyError", "RunError", "ScenarioError"]


class MetronomeError(Exception):
    """Base of all errors of Metronome."""


class ScenarioError(MetronomeError, ValueError):
    """A scenario or another input file that is not valid.

    ``str(error)`` is the line that the command prints.

    Attributes:
        file: the file's name, or the name of the text; None where no file is to blame
        line: the line in it, from 1; None where there is none to look up
        key: the key, with dots: ``scheduler.prefill_chunk_size``; None where no key is to blame
        problem: what is wrong
        allowed: what is allowed; None where nothing would be
    """

    file: "str | None"
    line: "int | None"
    key: "str | None"
    problem: str
    allowed: "str | None"

    def __init__(self, message: str):
        super().__init__(message)
        problem, _, allowed = message.partition("; allowed: ")
        self.allowed = allowed or None
        self.file = self.line = self.key = None
        # "FILE:LINE: KEY: PROBLEM", "NAME: KEY: PROBLEM" for a text without lines, "--set KEY:
        # PROBLEM", or "KEY: PROBLEM".
        place = re.match(r"(?P<file>.+?):(?P<line>\d+): (?:(?P<key>[\w.-]+): )?"
                         r"|(?P<name>\S+): (?P<named>[\w.-]+): |--set (?P<set>\S+): "
                         r"|(?P<bare>[\w.-]+): ", problem)
        if place is not None:
            self.file = place["file"] or place["name"]
            self.line = int(place["line"]) if place["line"] else None
            self.key = place["key"] or place["named"] or place["set"] or place["bare"]
        self.problem = problem[place.end() if place else 0:]

    def __reduce__(self):
        return type(self), (str(self),)


class ArgumentError(MetronomeError, ValueError):
    """An argument that cannot be understood, or that has no effect with the others.

    Messages name an argument as the package does: ``target_itl``.
    """

    def __init__(self, message: str):
        message = re.sub(r"(?<![\w-])--([a-z][a-z-]*)",
                         lambda found: found[1].replace("-", "_"), message)
        super().__init__(re.sub(r" \(see `metronome [\w-]+ --help`\)", "", message))


class PolicyError(MetronomeError, RuntimeError):
    """A decision of a policy that the books cannot carry out."""


class RunError(MetronomeError, RuntimeError):
    """A run, or another work, that failed: a full disk, a model that does not fit.

    Attributes:
        text: what the command prints before it fails; may be empty
    """

    text = ""


class InternalError(MetronomeError, RuntimeError):
    """A mistake in Metronome itself, or in a policy of Python that leaves requests unserved."""


class MetronomeWarning(UserWarning):
    """What a user should know about a result, such as requests that failed."""

# SPDX-License-Identifier: Apache-2.0
"""The engines whose schedulers can be driven, by the name of their package."""

import dataclasses
import pathlib
import re

import sglang_cases
import vllm_cases

EXAMPLES = ("vllm==0.33.0", "sglang==0.5.23")


class UnknownEngine(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Engine:
    package: str     # on PyPI
    decisions: str   # `metronome decisions --engine`
    recorder: str    # the module that drives its scheduler
    cases: object    # the module that draws cases
    versions: tuple  # whose rules Metronome knows, as 0.33 or 0.5.23

    def choose_kinds(self, version, wanted):
        kinds = [kind for kind in self.cases.KINDS
                 if self.cases.draw_case(0, version, kind, 1) is not None]
        if not wanted:
            return kinds
        names = [name for name in wanted.split(",") if name]
        for name in names:
            if name not in kinds:
                raise UnknownEngine(f"--kinds: {self.package} {version} has no '{name}'; allowed: "
                                    + ", ".join(kinds))
        return names


def vllm_versions():
    text = (pathlib.Path(__file__).parents[2] / "engines/vllm/settings.h").read_text()
    listed = re.search(r"kVllmVersions\[\] = \{(.*?)\}", text, re.DOTALL)
    return tuple(re.findall(r'"([\d.]+)"', listed[1]))


ENGINES = (Engine("vllm", "vllm", "vllm_recorder", vllm_cases, vllm_versions()),
           Engine("sglang", "sglang", "sglang_recorder", sglang_cases, ("0.5.23",)))


def find(text):
    """The engine and the version that PACKAGE==VERSION names."""
    match = re.fullmatch(r"([a-z]+)==(\d+\.\d+\.\d+[a-z0-9.]*)", text)
    engine = next((one for one in ENGINES if match and one.package == match[1]), None)
    if engine is None:
        raise UnknownEngine(f"'{text}' is not an engine's package; allowed: "
                            + ", ".join(EXAMPLES) + ", or another version")
    if not any(match[2] == known or match[2].startswith(known + ".") for known in engine.versions):
        known = (engine.versions[0] if len(engine.versions) == 1
                 else f"{engine.versions[0]} to {engine.versions[-1]}")
        raise UnknownEngine(f"Metronome does not know the rules of {text}; allowed: "
                            f"{engine.package} {known}")
    return engine, match[2]

# SPDX-License-Identifier: Apache-2.0
"""Scenarios that the program composes from one line: a model, a GPU, an engine with its version, the
number of GPUs, clients, and lengths. How servers of that release were started, and what its clients
do, is the program's knowledge (engines/NAME/recipe.cpp, client.preset)."""

import copy
import functools

from points import command, merged
from rows import ENGINES, clients_of, number, version_of

# Keys that points of a group have in common, by which operator tables are imported.
OF_GROUP = {"cost_model": ["tensor_parallel_size", "gpu_memory_utilization", "step_factor",
                           "prompt_factor", "expert_overhead_us", "tp_overhead_us"]}


def value_of(text):
    """Of a YAML scalar. A number that is written otherwise stays text: version 0.30."""
    words = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if str(value) == text else text
    return text.strip('"')


def parsed(yaml):
    """A composed scenario: nested keys, one a line, with the reason of a value behind it."""
    root = {}
    levels = [(-1, root)]
    for line in yaml.splitlines():
        text = line.split("  #", 1)[0].rstrip()
        if not text or text.lstrip().startswith("#"):
            continue
        depth = len(text) - len(text.lstrip())
        key, _, value = text.strip().partition(":")
        while levels[-1][0] >= depth:
            levels.pop()
        if value.strip():
            levels[-1][1][key] = value_of(value.strip())
        else:
            levels[-1][1][key] = section = {}
            levels.append((depth, section))
    return root


@functools.cache
def composed(options):
    """(scenario, None), or (None, why the program refuses the options)."""
    out, reason = command(["scenario", *options])
    return (None, reason) if out is None else (parsed(out), None)


def line_of(row, gpu, model, quantization, degree, version):
    """The options of a row."""
    options = ["--model", model, "--gpu", gpu, "--engine", ENGINES[row["backend"]].replace("-", "_"),
               "--tp", str(degree), "--clients", str(clients_of(row)),
               "--prompt", str(number(row["isl"])), "--output", str(number(row["osl"]))]
    if quantization != "auto":
        options += ["--quantization", quantization]
    if version:
        options += ["--engine-version", version]
    return tuple(options)


def divided(scenario):
    """(what points of a group share, what is a point's own)."""
    scenario = copy.deepcopy(scenario)
    base = {key: scenario.pop(key) for key in ("model", "hardware", "quantization", "kv_cache")
            if key in scenario}
    for section, keys in OF_GROUP.items():
        own = scenario.get(section, {})
        base[section] = {key: own.pop(key) for key in keys if key in own}
    return base, scenario


def point_scenario(row, gpu, model, quantization, degree, known):
    """(base, scenario) of a row's point. `known`: keys that its line cannot tell."""
    scenario, reason = composed(line_of(row, gpu, model, quantization, degree,
                                         version_of(row)))
    if reason is not None:
        raise ValueError(f"{row['id']}: {reason}")
    return divided(merged(scenario, known))

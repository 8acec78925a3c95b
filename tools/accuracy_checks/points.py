# SPDX-License-Identifier: Apache-2.0
"""Measured serving points, and what the simulator says of them."""

import dataclasses
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
METRONOME = ROOT / "build/release/metronome"


@dataclasses.dataclass
class Point:
    """A measured run by its figures. `scenario` has keys of its own, `base` those of its group."""
    source: str      # the set of points
    name: str        # unique in the set
    gpu: str         # hardware in our catalogue
    model: str
    precision: str   # of most weights: plain (bf16), fp8, ...
    engine: str      # with its version, if it is known
    degree: int      # GPUs of the engine
    has_experts: bool
    measured: dict   # figure -> value, keys of result.json
    base: dict
    scenario: dict
    tables: dict | None = None  # options of `calibrate --import`, if tables cover the point
    lacks_limit: bool = False   # the server's limit of requests is not on record
    row: dict | None = None     # of the source's table
    line: tuple = ()            # options of `metronome scenario` that say all of it
    simulated: dict = dataclasses.field(default_factory=dict)  # cost model -> figures or a reason

    def error(self, cost_model, figure):
        """simulated / measured - 1; None where it was not simulated."""
        figures = self.simulated.get(cost_model)
        if not isinstance(figures, dict):
            return None
        return figures[figure] / self.measured[figure] - 1


def merged(first, second):
    """Two settings as one; `second` counts where both have a value."""
    result = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def lengths(longest, share):
    """Lengths drawn evenly from `share` of the longest to the longest."""
    if share >= 1:
        return {"distribution": "fixed", "value": longest}
    return {"distribution": "uniform", "min": int(longest * share), "max": longest}


def closed_loop(clients, prompt, output, num_requests):
    return {"num_requests": num_requests,
            "arrivals": {"process": "closed_loop", "concurrency": clients},
            "prompt_tokens": prompt, "output_tokens": output}


def command(arguments):
    """The output of a command of the program, or what it says against it."""
    done = subprocess.run([METRONOME, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout, None
    lines = done.stderr.strip().splitlines()
    return None, lines[-1] if lines else f"exit code {done.returncode}"


def simulate(points, cost_model, settings):
    """Simulates points of one group with these settings of `cost_model`, all in one run. A point
    that is refused alone gets the reason."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "points.yaml"
        variants = [{"name": f"p{i}", **point.scenario} for i, point in enumerate(points)]
        base = merged(points[0].base, settings)
        base["results"] = {"requests": False, "steps": False, "trace": False, "report": False}
        path.write_text(json.dumps({**base, "variants": variants}))
        out, reason = command(["run", path, "--json", "--quiet", "--out",
                               pathlib.Path(folder) / "run"])
    if reason is None:
        for point, figures in zip(points, json.loads(out)):
            point.simulated[cost_model] = figures
    elif len(points) == 1:
        points[0].simulated[cost_model] = short_reason(reason)
    else:
        for point in points:
            simulate([point], cost_model, settings)


def short_reason(reason):
    """An error line without the path of a temporary file."""
    return reason.split("points.yaml", 1)[-1].lstrip(":0123456789 ") if "points.yaml" in reason \
        else reason.removeprefix("metronome: error: ")

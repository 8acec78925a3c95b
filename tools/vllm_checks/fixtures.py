# SPDX-License-Identifier: Apache-2.0
"""Small files of the ordinary tests, from the last run of the decisions: logs of the server with
their scenarios (tests/fixtures/served), and what its scheduler recorded (tests/goldens)."""

import re

from . import install

LOGS = ("budget-256", "full-prefixes", "async", "async-full")
CASES = ("full-prefixes", "priorities", "drafts", "two-ranks", "async-full")
SERVED = install.ROOT / "tests/fixtures/served"
GOLDEN = install.ROOT / "tests/goldens/vllm_0.32_served.jsonl"
ITERATION = re.compile(r"Engine \d+: Iteration\(.*")
VERSION = re.compile(r"Initializing a V1 LLM engine \(v[\d.]+\)")
RUNNER = re.compile(r"Model Runner V2 requires Triton; using the V1 model runner instead\.")


def short_log(text):
    """The facts of a log: the version, the model runner, and each iteration."""
    config = " with config: model='smollm2-135m', speculative_config=None"
    lines = [VERSION.search(text)[0] + config, RUNNER.search(text)[0]]
    return "".join(line + "\n" for line in lines + ITERATION.findall(text))


def write(folder):
    SERVED.mkdir(parents=True, exist_ok=True)
    for name in LOGS:
        source = folder / name
        if not (source / "cases.jsonl").exists():
            continue
        (SERVED / f"{name}.log").write_text(
            short_log((source / "server.log").read_text(errors="replace")), encoding="utf-8")
        scenario = (source / "scenario.yaml").read_text(encoding="utf-8")
        (SERVED / f"{name}.yaml").write_text(
            re.sub(r"(?m)^model: .*$", "model: smollm2-135m", scenario), encoding="utf-8")
    cases = [folder / name / "cases.jsonl" for name in CASES]
    GOLDEN.write_text("".join(path.read_text(encoding="utf-8") for path in cases if path.exists()),
                      encoding="utf-8")

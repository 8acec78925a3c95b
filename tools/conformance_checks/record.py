#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records cases: reads JSON lines, writes each with the steps of the engine's own scheduler.

usage: record.py RECORDER FOLDER, where FOLDER has the engine's package. A case that the engine
itself fails on is written with "error" in place of "steps".
"""

import importlib
import json
import sys


def main():
    recorder = importlib.import_module(sys.argv[1])
    sys.path.insert(0, sys.argv[2])
    recorder.install(sys.argv[2])
    for line in sys.stdin:
        case = json.loads(line)
        try:
            case["steps"] = recorder.record(case)
        except (AssertionError, ValueError) as error:  # an invariant of the engine
            case["error"] = repr(error)
        print(json.dumps(case, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Compares rows with what `metronome list models FILE` prints."""

import itertools
import re
import subprocess

TOLERANCE = 0.01  # of weights
# A line of the program's output each; numbers have commas.
NUMBERS = {
    "total": r"^  parameters: ([\d,]+),",
    "active": r"^  parameters: .* of a token's step ([\d,]+)",
    "towers": r"^  towers of images and sounds: ([\d,]+)",
    "weights": r"^  weights: ([\d,]+) bytes",
    "kv_bytes": r"^  KV: ([\d,]+) bytes a token",
    "state_bytes": r"^  states: ([\d,]+) bytes a request",
}
BYTES_OF_CACHE = 2  # bf16; 1 where a file asks for fp8
BYTES_OF_STATES = (2, 4)  # engines choose
INDEX_BLOCK = 128  # engines keep an index in fp8, with a scale of four bytes for so many


def read(program, path):
    """The numbers of that config.json, or the line of a refusal."""
    run = subprocess.run([str(program), "list", "models", str(path)], capture_output=True,
                         text=True, check=False)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"exit code {run.returncode}"
    found = {}
    for name, pattern in NUMBERS.items():
        match = re.search(pattern, run.stdout, re.MULTILINE)
        found[name] = int(match[1].replace(",", "")) if match else 0
    return found, ""


def allowed_kv_bytes(row):
    """Keys and values of all layers, with what an index keeps of a token."""
    index = row["index_elements"]
    scales = 4 * row["index_layers"] * -(-index // max(1, row["index_layers"]) // INDEX_BLOCK)
    return {width * row["kv_elements"] + of_index
            for width in range(1 if row["has_fp8_cache"] else BYTES_OF_CACHE, BYTES_OF_CACHE + 1)
            for of_index in (0, BYTES_OF_CACHE * index, index + scales)}


def allowed_state_bytes(row):
    return {row["recurrent_elements"] * a + convolution * b
            for a, b in itertools.product(BYTES_OF_STATES, BYTES_OF_STATES)
            for convolution in (row["convolution_elements"], row["whole_convolution_elements"])}


def faults(row, found):
    """What differs, a phrase each."""
    result = []
    for name, expected, number in (
            ("weights of text", row["text"], found["total"] - found["towers"]),
            ("weights", row["total"] if row["describes_towers"] else None, found["total"]),
            ("active weights", row.get("active"), found["active"])):
        if expected is not None and abs(number / expected - 1) > TOLERANCE:
            result.append(f"{name} {number:,} for {expected:,} ({number / expected - 1:+.1%})")
    kv_bytes = allowed_kv_bytes(row)
    if not row["has_compressed_keys"] and found["kv_bytes"] not in kv_bytes:
        result.append(f"KV {found['kv_bytes']:,} bytes for {max(kv_bytes):,}")
    states = allowed_state_bytes(row)
    if found["state_bytes"] not in states:
        result.append(f"states {found['state_bytes']:,} bytes for {min(states):,}")
    return result


def share(name, rows, wrong):
    """Prints and returns how many of these rows are not among the wrong ones."""
    equal = sum(row["key"] not in wrong for row in rows)
    print(f"{name}: {equal} of {len(rows)} equal ({equal / max(1, len(rows)):.1%})")
    return equal / max(1, len(rows))


def compare(rows, program):
    """Prints a line a family, those that differ last. Returns the share of families whose counts
    are equal without their towers, and that of all."""
    different, of_text = {}, set()
    for row in rows:
        found, refusal = read(program, row["path"])
        wrong = faults(row, found) if found else [f"refused: {refusal}"]
        if wrong:
            different[row["key"]] = wrong
            of_text |= {row["key"]} if any(not text.startswith("weights ") or "of text" in text
                                           for text in wrong) else set()
        else:
            error = (found["total"] - found["towers"]) / row["text"] - 1
            print(f"{row['key']}: {row['text']:,} weights of text ({error:+.2%}), "
                  f"{found['kv_bytes']:,} bytes of KV a token")
    for key, wrong in different.items():
        print(f"{key}: DIFFERENT: {'; '.join(wrong)}")
    of_text_share = share("without towers of images and sounds", rows, of_text)
    return of_text_share, share("all", rows, different)

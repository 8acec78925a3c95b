# SPDX-License-Identifier: Apache-2.0
"""Builds the models and writes what they are made of: a row a family, and its config.json."""

import json
import pathlib
import tempfile

from model_count_checks import caches, families, parts


def describe(family):
    """The row of one family. Raises what transformers raises."""
    model = families.build(family)
    decoder, _ = parts.decoder_of(model)
    text = model.config.get_text_config(decoder=True)
    return model, {"key": family.key, "class": type(model).__name__,
                   "model_type": model.config.model_type,
                   "has_fp8_cache": family.has_fp8_cache,
                   "describes_towers": family.describes_towers, **parts.count(model),
                   **caches.layers_by_kind(text), **caches.describe(model, decoder)}


def sources(files, only):
    """(key, a function that gives the family) of each family that is asked for."""
    if files:
        return [(str(path), lambda path=path: families.family_of_file(path)) for path in files]
    return [(key, lambda found=(key, *names): families.make_family(*found))
            for key, *names in families.lists_of_classes() if not only or key in only]


def write(folder, model, row):
    """Two forms of config.json: all keys, and as transformers saves a checkpoint's."""
    (folder / "saved").mkdir(parents=True, exist_ok=True)
    model.config.to_json_file(folder / "config.json", use_diff=False)
    model.config.to_json_file(folder / "saved/config.json", use_diff=True)
    (folder / "shapes.json").write_text(json.dumps(parts.shapes(model)))


def collect(files, only, keep):
    """Rows with the path of each config.json, and what was left out with the reason."""
    out = keep or pathlib.Path(tempfile.mkdtemp(prefix="model_counts"))
    out.mkdir(parents=True, exist_ok=True)
    rows, left_out = [], []
    for key, make in sources(files, only):
        if key in families.LEFT_OUT and key not in only:
            left_out.append({"key": key, "reason": families.LEFT_OUT[key]})
            continue
        try:
            family = make()
            model, row = describe(family)
        except Exception as error:  # any of some hundred models' own
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")
            left_out.append({"key": key, "reason": reason[:300], "is_failure": True})
            continue
        row["path"] = key if files else f"{out}/configs/{key.replace('/', '__')}/config.json"
        if not files:
            write(pathlib.Path(row["path"]).parent, model, row)
        rows.append(row)
    for name, lines in (("counts", rows), ("left_out", left_out)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return rows, left_out

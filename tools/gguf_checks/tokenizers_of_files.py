# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of GGUF files beside those that the models' authors use.

Byte-level BPE is compared with the `tokenizers` package, SentencePiece's BPE with `sentencepiece`.
Both get the file's tokens and merges or scores, and no code of llama.cpp.
"""

import importlib.machinery
import importlib.util
import random
import struct
import sys
import tempfile
from pathlib import Path

import gguf
import sentencepiece
import tokenizers

from gguf_checks import metadata

TOOLS = Path(__file__).resolve().parent.parent
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
WORD = r"[^\r\n\p{L}\p{N}]?"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Name of the split: patterns before ByteLevel, whether it has GPT-2's own pattern, NFC,
# ignore_merges.
SPLITS = {
    "gpt-2": ([], True, False, False),
    "smollm": (["digits"], True, False, False),
    "starcoder": (["digits"], True, False, False),
    "refact": (["digits"], True, False, False),
    "llama-bpe": ([LLAMA3], False, False, True),
    "dbrx": ([LLAMA3], False, False, False),
    "qwen2": ([LLAMA3.replace("{1,3}", "")], False, True, False),
    "tekken": ([f"{WORD}{UPPER}*{LOWER}+|{WORD}{UPPER}+{LOWER}*|\\p{{N}}{REST}"], False, False,
               True),
    "gpt-4o": ([f"{WORD}{UPPER}*{LOWER}+{SHORT}|{WORD}{UPPER}+{LOWER}*{SHORT}|\\p{{N}}{{1,3}}"
                f"{REST}"], False, False, False),
    "default": ([r"[\p{P}\$\+<=>\^~\|]+"], True, False, False),
}


def load_parity():
    """tools/tokenizer_parity, for its texts and for how it asks."""
    path = str(TOOLS / "tokenizer_parity")
    loader = importlib.machinery.SourceFileLoader("tokenizer_parity", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tokenizer_parity", loader))
    loader.exec_module(module)
    module.load_package()
    return module


def bytes_field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def int_field(number, value):
    return varint(number << 3) + varint(value)


def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


class ByteLevel:
    """`tokenizers` with the tokens and merges of a file."""

    def __init__(self, fields):
        pre = tokenizers.pre_tokenizers
        patterns, is_gpt2, is_nfc, ignores = SPLITS[fields.get("tokenizer.ggml.pre", "default")]
        tokens = fields["tokenizer.ggml.tokens"]
        types = fields["tokenizer.ggml.token_type"]
        merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
        self.tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
            vocab={token: i for i, token in enumerate(tokens)}, merges=merges,
            ignore_merges=ignores))
        steps = [pre.Digits(individual_digits=True) if pattern == "digits" else
                 pre.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns]
        steps.append(pre.ByteLevel(add_prefix_space=False, use_regex=is_gpt2))
        if fields.get("tokenizer.ggml.pre", "default") == "default":
            # llama.cpp splits further behind GPT-2's pattern.
            gpt2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
            steps = [pre.Split(tokenizers.Regex(pattern), "isolated")
                     for pattern in (*patterns, gpt2, r"\p{N}+", "[0-9][0-9][0-9]")]
            steps.append(pre.ByteLevel(add_prefix_space=False, use_regex=False))
        self.tokenizer.pre_tokenizer = pre.Sequence(steps)
        if is_nfc:
            self.tokenizer.normalizer = tokenizers.normalizers.NFC()
        self.tokenizer.decoder = tokenizers.decoders.ByteLevel()
        for token, kind in zip(tokens, types):
            if kind in (CONTROL, UNKNOWN, USER_DEFINED):
                added = tokenizers.AddedToken(token, normalized=False,
                                              special=kind != USER_DEFINED)
                (self.tokenizer.add_tokens if kind == USER_DEFINED else
                 self.tokenizer.add_special_tokens)([added])
        self.special = [token for token, kind in zip(tokens, types)
                        if kind in (CONTROL, USER_DEFINED)]

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)


class SentencePiece:
    """`sentencepiece` with the tokens, scores and types of a file. Control tokens are found before,
    as in Hugging Face's tokenizers; each text between them is a text of its own."""

    def __init__(self, fields):
        tokens = fields["tokenizer.ggml.tokens"]
        types = list(fields["tokenizer.ggml.token_type"])
        unknown = fields.get("tokenizer.ggml.unknown_token_id", 0)
        self.has_prefix = fields.get("tokenizer.ggml.add_space_prefix", True)
        self.controls = {token: i for i, (token, kind) in enumerate(zip(tokens, types))
                         if kind in (CONTROL, UNKNOWN)}
        types[unknown] = UNKNOWN
        model = b""
        for token, score, kind in zip(tokens, fields["tokenizer.ggml.scores"], types):
            text = token.replace(" ", SPACE) if kind == USER_DEFINED else token
            piece = bytes_field(1, text.encode()) + b"\x15" + struct.pack("<f", score)
            model += bytes_field(1, piece + int_field(3, kind))
        model += bytes_field(2, int_field(3, 2) + int_field(35, 1))
        model += bytes_field(3, bytes_field(1, b"identity") + int_field(3, int(self.has_prefix)) +
                             int_field(4, 0) + int_field(5, 1))
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        users = [token for token, kind in zip(tokens, types) if kind == USER_DEFINED]
        # Among 6,000 control tokens few are typed.
        self.special = users + sorted(self.controls)[:40]
        self.lengths = sorted({len(token) for token in self.controls}, reverse=True)
        self.firsts = {token[0] for token in self.controls}

    def control_at(self, text, at):
        """The longest control token there."""
        if text[at] in self.firsts:
            for length in self.lengths:
                if text[at:at + length] in self.controls:
                    return text[at:at + length]
        return None

    def encode(self, text):
        ids, done, at = [], 0, 0
        while at < len(text):
            token = self.control_at(text, at)
            if token is None:
                at += 1
                continue
            ids += self.processor.encode(text[done:at]) if at > done else []
            ids.append(self.controls[token])
            done = at = at + len(token)
        return ids + (self.processor.encode(text[done:]) if done < len(text) else [])


def oracle_of(fields):
    return (SentencePiece if fields["tokenizer.ggml.model"] == "llama" else ByteLevel)(fields)


def compare(parity, path, count, seed, program):
    """Prints the differences of one file; returns their number."""
    fields, _ = metadata.read_file(path)
    oracle = oracle_of(fields)
    numbers = random.Random(f"{seed} {path.stem}")
    questions, expected = [], []
    for i in range(count):
        data = (parity.random_text(numbers, oracle.special).encode(errors="replace") if i % 4 else
                parity.random_bytes(numbers))
        text = data.decode(errors="replace")
        if isinstance(oracle, SentencePiece):
            text = text.replace("\x00", "")  # sentencepiece ends at it
            data = text.encode()
        questions.append({"hex": data.hex(), "add": False})
        expected.append(oracle.encode(text))
        if isinstance(oracle, ByteLevel):
            ids = parity.random_ids(numbers, len(fields["tokenizer.ggml.tokens"]))
            skip = numbers.random() < 0.5
            questions.append({"ids": ids, "skip": skip})
            expected.append(oracle.decode(ids, skip).encode().hex())
        elif not oracle.has_prefix:
            # Tokens of a text become the text again.
            questions.append({"ids": expected[-1], "skip": False})
            expected.append(text.replace(SPACE, " ").encode().hex())
    wrong = 0
    for question, theirs, ours in zip(questions, expected,
                                      parity.Program(program, path).ask(questions)):
        if theirs == ours:
            continue
        wrong += 1
        if wrong <= 3:
            asked = bytes.fromhex(question["hex"]) if "hex" in question else question
            print(f"gguf_parity: {path.name}: {asked}\n  expected: {theirs}\n  metronome: {ours}",
                  file=sys.stderr)
    print(f"{path.name}: seed {seed}, {len(questions)} texts and lists of ids, {wrong} differ",
          flush=True)
    return wrong


def write_vocabulary(path, fields):
    """A GGUF file of metadata alone."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(fields["model"])
    writer.add_tokenizer_pre(fields["pre"])
    writer.add_token_list(fields["tokens"])
    writer.add_token_types(fields["types"])
    if "merges" in fields:
        writer.add_token_merges(fields["merges"])
    else:
        writer.add_token_scores(fields["scores"])
        writer.add_unk_token_id(fields["unknown"])
        writer.add_bos_token_id(fields["bos"])
        writer.add_eos_token_id(fields["eos"])
        writer.add_add_space_prefix(fields["prefix"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_level_files(parity, folder):
    """The vocabularies of the tokenizers' fixtures with every split that is known."""
    import json
    for name in ("llama3", "qwen3"):
        data = json.loads((parity.FIXTURES / f"{name}.json").read_text())
        tokens = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
        types = [NORMAL] * len(tokens)
        for token in data["added_tokens"]:
            tokens.append(token["content"])
            types.append(CONTROL if token["special"] else USER_DEFINED)
        merges = [merge if isinstance(merge, str) else " ".join(merge)
                  for merge in data["model"]["merges"]]
        for pre in SPLITS:
            path = Path(folder) / f"{name}-{pre}.gguf"
            write_vocabulary(path, {"model": "gpt2", "pre": pre, "tokens": tokens, "types": types,
                                    "merges": merges})
            yield path


def sentence_piece_files(parity, folder):
    """Vocabularies that `sentencepiece` trains, with and without a space in front."""
    texts = Path(folder) / "texts.txt"
    texts.write_text("\n".join(text.replace("\n", " ") for text in parity.TEXTS * 3))
    users = [["<table>", "</table>"], [SPACE * 2, SPACE * 3, "ab", "<mask>", "token of"], []]
    for number, user in enumerate(users):
        for has_prefix in (False, True):
            prefix = Path(folder) / "trained"
            sentencepiece.SentencePieceTrainer.train(
                input=str(texts), model_prefix=str(prefix), model_type="bpe",
                vocab_size=1200 + 100 * number, byte_fallback=True, character_coverage=0.98,
                user_defined_symbols=user, control_symbols=["<start>", "<stop>"],
                normalization_rule_name="identity", remove_extra_whitespaces=False,
                add_dummy_prefix=has_prefix, minloglevel=2)
            trained = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
            size = trained.get_piece_size()

            def kind(i, trained=trained, user=user):
                if trained.is_unknown(i):
                    return UNKNOWN
                if trained.is_control(i):
                    return CONTROL
                if trained.is_byte(i):
                    return BYTE
                return USER_DEFINED if trained.id_to_piece(i) in user else NORMAL

            types = [kind(i) for i in range(size)]
            # The conversion writes spaces of user-defined tokens as they are.
            tokens = [trained.id_to_piece(i).replace(SPACE, " ") if types[i] == USER_DEFINED else
                      trained.id_to_piece(i) for i in range(size)]
            path = Path(folder) / f"sentencepiece-{number}-{'prefix' if has_prefix else 'plain'}.gguf"
            write_vocabulary(path, {
                "model": "llama", "pre": "default", "tokens": tokens, "types": types,
                "scores": [trained.get_score(i) for i in range(size)],
                "unknown": trained.unk_id(), "bos": trained.bos_id(), "eos": trained.eos_id(),
                "prefix": has_prefix})
            yield path


def check(program, count, seed, paths):
    """Compares the given files, or made ones; returns the number of differences."""
    parity = load_parity()
    if paths:
        return sum(compare(parity, Path(path), count, seed, program) for path in paths)
    with tempfile.TemporaryDirectory() as folder:
        return sum(compare(parity, path, count, seed, program)
                   for make in (byte_level_files, sentence_piece_files)
                   for path in make(parity, folder))

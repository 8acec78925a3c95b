# SPDX-License-Identifier: Apache-2.0
"""The flags of llama-server: the calls add_opt(common_arg(...)) of llama.cpp's common/arg.cpp."""

import re

from engine_flag_readers.rows import Flag, FlagError

OPENING, CLOSING = "([{", ")]}"
SERVER = "LLAMA_EXAMPLE_SERVER"
# is_truthy(), is_falsey() and is_autoy() of common/arg.cpp.
MORE_WORDS = {"on": ("enabled", "true", "1"), "off": ("disabled", "false", "0"), "auto": ("-1",)}


def without_comments(text):
    """The code with its texts; comments become spaces."""
    token = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return token.sub(lambda one: " " if one[0].startswith("/") else one[0], text)


def end_of_call(text, begin):
    """Behind the bracket that closes the one at `begin`."""
    depth, at = 0, begin
    while at < len(text):
        if text[at] in "\"'":
            at = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'').match(text, at).end()
            continue
        depth += (text[at] in OPENING) - (text[at] in CLOSING)
        at += 1
        if depth == 0:
            return at
    raise FlagError("arg.cpp: a bracket is not closed")


def arguments_of(call):
    """The arguments of "(a, {b, c}, d)"."""
    parts, begin, at = [], 1, 1
    while at < len(call) - 1:
        if call[at] in OPENING:
            at = end_of_call(call, at)
        elif call[at] in "\"'":
            at = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'').match(call, at).end()
        else:
            if call[at] == ",":
                parts.append(call[begin:at].strip())
                begin = at + 1
            at += 1
    return [*parts, call[begin:-1].strip()]


def texts_of(braces):
    return re.findall(r'"((?:\\.|[^"\\])*)"', braces)


def is_of_server(calls):
    """Whether the calls behind common_arg(), `.set_examples({...})`, leave it to the server."""
    if "set_preset_only" in calls:
        return False
    excluded = re.search(r"set_excludes\(\{(.*?)\}", calls)
    if excluded and SERVER in excluded[1]:
        return False
    examples = re.search(r"set_examples\(\{(.*?)\}", calls)
    return examples is None or SERVER in examples[1] or "LLAMA_EXAMPLE_COMMON" in examples[1]


def choices_of(hint, description, types):
    """The words of a hint, "{none,linear}" or "[on|off|auto]", or the types of KV where the
    description lists them."""
    closed = re.fullmatch(r'"[{\[]([\w,|-]+)[}\]]"', hint)
    if closed:
        words = re.split(r"[,|]", closed[1])
        return words + [more for word in words for more in MORE_WORDS.get(word, ())]
    return types if "get_all_kv_cache_types()" in description else []


def kv_types(text):
    """The names of `kv_cache_types`, "f16" of GGML_TYPE_F16."""
    found = re.search(r"kv_cache_types\s*=\s*\{(.*?)\}", text, re.DOTALL)
    return [name.lower() for name in re.findall(r"GGML_TYPE_(\w+)", found[1])] if found else []


def read_option(call, calls, types):
    """The flag of common_arg's arguments; None if it is not the server's, or was removed."""
    parts = arguments_of(call)
    if not is_of_server(calls) or "arg_removed(" in call:
        return None
    words = texts_of(parts[0])
    longs = [word for word in words if word.startswith("--")]
    name = (longs or words)[0]
    flag = Flag(name, "nothing", [word for word in words if word != name])
    if parts[1].startswith("{"):
        negations = texts_of(parts[1])
        flag.has_negation = "--no-" + name[2:] in negations
        flag.negations = [word for word in negations if word != "--no-" + name[2:]]
    else:
        flag.takes = {3: "nothing", 4: "value", 5: "values"}[len(parts)]
        if flag.takes == "value":
            flag.choices = choices_of(parts[1], parts[2], types)
    return flag


def read(folder):
    path = folder / "vendor/llama.cpp/common/arg.cpp"
    if not path.exists():
        raise FlagError(f"{folder}: no vendor/llama.cpp/common/arg.cpp")
    text = without_comments(path.read_text())
    flags = {}
    types = kv_types(text)
    for start in re.finditer(r"add_opt\((?=common_arg\()", text):
        begin = start.end() + len("common_arg")
        end = end_of_call(text, begin)
        calls = text[end:end_of_call(text, start.end() - 1) - 1]
        flag = read_option(text[begin:end], calls, types)
        if flag is not None:
            flags[flag.name] = flag
    return list(flags.values())

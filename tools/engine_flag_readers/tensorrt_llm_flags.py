# SPDX-License-Identifier: Apache-2.0
"""The flags of `trtllm-serve`, and the keys of the YAML file that it takes.

The flags are click's options of tensorrt_llm/commands/serve.py. The keys are the fields of
TorchLlmArgs in tensorrt_llm/llmapi/llm_args.py, with those of the classes that they may hold:
"kv_cache_config.dtype".
"""

import ast

from engine_flag_readers.python_source import (Source, calls_of, flag_names, keywords, name_of,
                                               text_of)
from engine_flag_readers.rows import Flag, FlagError

# A class of a section may hold others; deeper ones are not listed.
DEEPEST = 3
MEANS_SEVERAL = "AliasChoices"


class Reader:
    def __init__(self, folder):
        package = folder / "tensorrt_llm"
        self.commands = [package / "commands" / name
                         for name in ("serve.py", "common_llm_options.py")]
        sources = [package / "llmapi/llm_args.py", *sorted((package / "llmapi").glob("*.py")),
                   package / "lora_helper.py"]
        self.source = Source([path for path in sources if path.exists()])
        if "TorchLlmArgs" not in self.source.classes or not self.commands[0].exists():
            raise FlagError(f"{folder}: no TorchLlmArgs in tensorrt_llm/llmapi/llm_args.py, or no "
                            "tensorrt_llm/commands/serve.py")
        self.flags = {}

    def read(self):
        for path in self.commands:
            if path.exists():
                self.add_options(ast.parse(path.read_text()))
        self.add_keys("TorchLlmArgs", "", 1)
        return list(self.flags.values())

    def add_options(self, module):
        """The options of the command `serve`, and those that a file shares among commands."""
        commands = [node for node in module.body if isinstance(node, ast.FunctionDef)
                    and (node.name == "serve" or not calls_of(node, "command"))]
        for node in commands:
            for call in calls_of(node, "option"):
                self.add_option(call)

    def add_option(self, call):
        given = keywords(call)
        names = [part for name in flag_names(call) for part in name.split("/")]
        if not names:
            return
        is_switch = "is_flag" in given or len(names) > len(flag_names(call))
        flag = Flag(names[0], "nothing" if is_switch else "value", names[1:])
        negation = "--no-" + names[0][2:]
        flag.has_negation = negation in flag.aliases
        flag.aliases = [name for name in flag.aliases if name != negation]
        kind = given.get("type")
        if isinstance(kind, ast.Call) and name_of(kind.func) == "Choice" and kind.args:
            flag.choices = self.source.listed(kind.args[0])
        self.flags[flag.name] = flag

    def add_keys(self, record, before, depth):
        for field, (annotation, value) in self.source.fields(record).items():
            name = before + field
            kinds = self.source.kinds(annotation)
            inner = sorted(self.source.records(annotation))
            takes = "values" if "list" in kinds and not inner else "value"
            flag = Flag(name, "json" if inner or "dict" in kinds else takes,
                        [before + alias for alias in aliases_of(value) if alias != field],
                        choices=self.source.choices(annotation))
            self.flags.setdefault(name, flag)
            for one in inner if depth < DEEPEST else ():
                self.add_keys(one, name + ".", depth + 1)


def aliases_of(value):
    """Other names of a field: Field(validation_alias=AliasChoices("a", "b"))."""
    if not isinstance(value, ast.Call):
        return []
    alias = keywords(value).get("validation_alias")
    if isinstance(alias, ast.Call) and name_of(alias.func) == MEANS_SEVERAL:
        return [text_of(one) for one in alias.args if text_of(one)]
    return [text_of(alias)] if text_of(alias) else []


def read(folder):
    return Reader(folder).read()

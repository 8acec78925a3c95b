# SPDX-License-Identifier: Apache-2.0
"""The flags of `vllm serve`: vllm/engine/arg_utils.py and the command line of its server.

Most flags are made from fields of its configurations, `add_argument("--x", **kwargs["x"])`. The
types of the fields say what they take.
"""

import ast

from engine_flag_readers.python_source import (Source, calls_of, flag_names, keywords, name_of,
                                               takes_of_call, text_of, usual_of)
from engine_flag_readers.rows import Flag, FlagError

# Flags whose inner keys are listed, with the class that has them.
INNER = {"--compilation-config": "CompilationConfig", "--speculative-config": "SpeculativeConfig",
         "--attention-config": "AttentionConfig", "--kernel-config": "KernelConfig",
         "--mamba-config": "MambaConfig", "--eplb-config": "EPLBConfig",
         "--compilation-config.pass_config": "PassConfig"}
# Fields that may be any text, which the server compares with their words when it starts.
CHECKED_AT_START = ("cache_dtype", "kv_cache_dtype", "quantization")


def takes_of_field(kinds):
    """As _compute_kwargs() of vLLM decides it."""
    if "record" in kinds:
        return "json"
    if kinds == {"bool", "str", "none"}:
        return "optional"
    for kind, takes in (("bool", "nothing"), ("literal", "value"), ("list", "values"),
                        ("int", "value"), ("float", "value")):
        if kind in kinds:
            return takes
    return "json" if "dict" in kinds else "value"


class Reader:
    def __init__(self, folder):
        package = folder / "vllm"
        # Other files name its type as text.
        self.paths = [package / "model_executor/layers/quantization/__init__.py",
                      package / "engine/arg_utils.py",
                      *sorted((package / "config").glob("*.py")),
                      *sorted((package / "entrypoints").rglob("cli_args.py")),
                      package / "config.py", package / "lora/request.py"]
        self.source = Source([path for path in self.paths if path.exists()])
        for name in ("EngineArgs", "AsyncEngineArgs"):
            if name not in self.source.classes:
                raise FlagError(f"{folder}: no class {name}")
        self.short = self.short_numbers()
        self.flags = {}

    def short_numbers(self):
        """The fields that take "8K": those that _compute_kwargs() names."""
        function = (self.source.functions.get("_compute_kwargs")
                    or self.source.functions["get_kwargs"])
        found = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Set) or (isinstance(node, ast.Compare) and
                                             name_of(node.left) == "name"):
                found |= {text_of(one) for one in ast.walk(node) if text_of(one)}
        return found

    def read(self):
        self.add_calls(self.source.method("EngineArgs", "add_cli_args"))
        self.add_calls(self.source.method("AsyncEngineArgs", "add_cli_args"))
        self.add_calls(self.source.functions["make_arg_parser"])
        if "FrontendArgs" in self.source.classes:
            self.add_frontend()
        for name, record in INNER.items():
            if name in self.flags and record in self.source.classes:
                self.add_inner(name, record)
        return list(self.flags.values())

    def add(self, flag):
        if flag.name in self.flags and self.flags[flag.name].takes != flag.takes:
            raise FlagError(f"two flags {flag.name}")
        self.flags[flag.name] = flag

    def add_calls(self, function):
        classes = self.named_fields(function)
        for call in calls_of(function, "add_argument"):
            names = flag_names(call)
            if names:
                self.add_call(call, names, classes)

    def named_fields(self, function):
        """{variable: class} of `x = get_kwargs(Class)`, {variable: (class, field)} of a field."""
        found = {}
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            value, field = node.value, None
            if isinstance(value, ast.Subscript):
                value, field = value.value, text_of(value.slice)
            if isinstance(value, ast.Call) and name_of(value.func) == "get_kwargs":
                found[node.targets[0].id] = (name_of(value.args[0]), field)
        return found

    def add_call(self, call, names, classes):
        given = keywords(call)
        flag = Flag(names[0], takes_of_call(given), names[1:], text_of(given.get("dest")) or "",
                    choices=self.source.listed(given.get("choices")))
        flag.has_negation = "BooleanOptional" in ast.unparse(given.get("action") or call.func)
        for node in (one for keyword in call.keywords if keyword.arg is None
                     for one in ast.walk(keyword.value)):
            is_field = isinstance(node, ast.Subscript)
            record, field = classes.get(name_of(node.value if is_field else node), (None, None))
            field = text_of(node.slice) if is_field else field
            if record and field:
                self.set_from_field(flag, record, field)
        self.add(flag)

    def set_from_field(self, flag, record, field):
        if field not in self.source.fields(record):
            raise FlagError(f"{flag.name}: {record} has no field {field}")
        annotation, value = self.source.fields(record)[field]
        kinds = self.source.kinds(annotation)
        flag.takes = takes_of_field(kinds)
        flag.has_negation = flag.takes == "nothing"
        flag.is_short = field in self.short and "int" in kinds
        flag.usual = usual_of(value) if flag.takes == "value" else ""
        flag.choices = self.choices(field, annotation)

    def choices(self, field, annotation):
        return self.source.choices(annotation, ("str",) if field in CHECKED_AT_START else ())

    def add_frontend(self):
        changes = {}
        for function in (self.source.method("FrontendArgs", "add_cli_args"),
                         *(one for node in self.source.bases("FrontendArgs") for one in node.body
                           if isinstance(one, ast.FunctionDef))):
            for node in ast.walk(function):
                self.note_change(node, changes)
        for field, (annotation, _) in self.source.fields("FrontendArgs").items():
            takes = takes_of_field(self.source.kinds(annotation))
            changed = changes.get(field, {})
            if changed.get("type") == "json.loads":
                takes = "json"
            elif changed.get("nargs") == "deleted":
                takes = "value"
            elif "nargs" in changed:
                takes = "optional" if changed["nargs"] == "'?'" else "values"
            self.add(Flag("--" + field.replace("_", "-"), takes, has_negation=takes == "nothing"))

    @staticmethod
    def note_change(node, changes):
        """`kwargs["field"]["type"] = json.loads` and `del kwargs["field"]["nargs"]`."""
        if isinstance(node, ast.Assign):
            targets, value = node.targets, ast.unparse(node.value)
        elif isinstance(node, ast.Delete):
            targets, value = node.targets, "deleted"
        else:
            return
        for target in targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Subscript):
                field, key = text_of(target.value.slice), text_of(target.slice)
                changes.setdefault(field, {})[key] = value

    def add_inner(self, name, record):
        for field, (annotation, value) in self.source.fields(record).items():
            takes = takes_of_field(self.source.kinds(annotation))
            takes = "value" if takes == "nothing" else takes
            self.add(Flag(f"{name}.{field}", takes, choices=self.choices(field, annotation),
                          usual=usual_of(value) if takes == "value" else ""))


def read(folder):
    return Reader(folder).read()

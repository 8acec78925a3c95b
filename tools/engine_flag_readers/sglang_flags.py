# SPDX-License-Identifier: Apache-2.0
"""The flags of `python -m sglang.launch_server`: srt/server_args.py and srt/arg_groups.

Newer versions make them from fields, `x: A[type, "help"]` or `x: A[type, Arg(...)]`. Older ones
call add_argument().
"""

import ast

from engine_flag_readers.python_source import (Source, calls_of, flag_names, keywords, name_of,
                                               takes_of_call, text_of, usual_of)
from engine_flag_readers.rows import Flag, FlagError


# The flag whose inner keys are listed, a phase's settings below each phase.
GRAPHS = "--cuda-graph-config"
PHASES = ("decode", "prefill")


class Reader:
    def __init__(self, folder):
        srt = folder / "sglang/srt"
        if not (srt / "server_args.py").exists():
            raise FlagError(f"{folder}: no sglang/srt/server_args.py")
        self.source = Source([srt / "server_args.py",
                              *sorted((srt / "arg_groups/fields").glob("*.py")),
                              *srt.glob("arg_groups/choices.py"),
                              *srt.glob("model_executor/cuda_graph_config.py")])
        self.flags = {}

    def read(self):
        for name, node in self.source.classes.items():
            if name == "ServerArgs" or self.is_namespace(node):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign):
                        self.add_field(field)
        function = self.source.method("ServerArgs", "add_cli_args")
        for call in calls_of(function, "add_argument"):
            if flag_names(call):
                self.add_call(call)
        if GRAPHS in self.flags:
            self.add_graph_keys()
        return list(self.flags.values())

    @staticmethod
    def is_namespace(node):
        return any(isinstance(one, ast.Assign) and name_of(one.targets[0]) == "_NS_PATH"
                   for one in node.body)

    def add_call(self, call):
        names, given = flag_names(call), keywords(call)
        takes = takes_of_call(given)
        self.flags[names[0]] = Flag(names[0], takes, names[1:],
                                    text_of(given.get("dest")) or "",
                                    has_negation="BooleanOptional" in action_of(given),
                                    is_short="human_readable" in kind_of(given),
                                    choices=self.source.listed(given.get("choices")),
                                    usual=self.usual_of_call(given) if takes == "value" else "")

    def add_graph_keys(self):
        self.flags[GRAPHS].takes = "json"
        for phase in PHASES:
            name = f"{GRAPHS}.{phase}"
            self.flags[name] = Flag(name, "json")
            for field in self.source.fields("PhaseConfig"):
                self.flags[f"{name}.{field}"] = Flag(f"{name}.{field}", "value")

    def usual_of_call(self, given):
        """The default of a field, which older versions name: `default=ServerArgs.dtype`."""
        default = given.get("default")
        field = self.source.fields("ServerArgs").get(name_of(default))
        return usual_of(field[1] if field else default)

    def add_field(self, node):
        """A field whose type is A[type, metadata]."""
        if not isinstance(node.annotation, ast.Subscript):
            return
        if name_of(node.annotation.value) not in ("A", "Annotated"):
            return
        kind, *more = node.annotation.slice.elts
        calls = {name_of(one.func): one for one in more if isinstance(one, ast.Call)}
        if "Arg" not in calls and not any(is_text(one) for one in more):
            return
        given = keywords(calls["Arg"]) if "Arg" in calls else {}
        if "no_cli" in given and given["no_cli"].value:
            return
        name = text_of(given.get("cli_name")) or "--" + node.target.id.replace("_", "-")
        aliases = [text_of(one) for one in getattr(given.get("aliases"), "elts", [])]
        flag = Flag(name, self.takes(kind, given), aliases, node.target.id)
        flag.has_negation = "BooleanOptional" in action_of(given)
        flag.is_short = "human_readable" in kind_of(given)
        flag.usual = usual_of(node.value) if flag.takes == "value" else ""
        flag.choices = (self.source.listed(given["choices"]) if "choices" in given
                        else self.source.choices(kind))
        self.flags[name] = flag

    def takes(self, kind, given):
        """As add_cli_args_from_dataclass() of SGLang decides it."""
        if "action" in given:
            more = given.get("action_kwargs")
            if isinstance(more, ast.Dict):
                given = given | {text_of(key): value for key, value in zip(more.keys, more.values)}
            return takes_of_call(given)
        kinds = self.source.kinds(kind) - {"none"}
        parser = kind_of(given)
        if "json" in parser:
            return "json"
        if kinds == {"bool"}:
            return "nothing"
        nargs = text_of(given.get("nargs"))
        if nargs == "?":
            return "optional"
        return "values" if nargs or (kinds == {"list"} and not parser) else "value"


def action_of(given):
    return ast.unparse(given["action"]) if "action" in given else ""


def kind_of(given):
    """The function that reads the value."""
    kind = given.get("type_parser") or given.get("type")
    return ast.unparse(kind) if kind is not None else ""


def is_text(node):
    """A help text, or one that is put together."""
    return text_of(node) is not None or isinstance(node, (ast.JoinedStr, ast.BinOp))


def read(folder):
    return Reader(folder).read()

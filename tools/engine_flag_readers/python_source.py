# SPDX-License-Identifier: Apache-2.0
"""Reads flags from the source of a Python program, without running it.

A program declares its flags by calls of add_argument(), or by the fields of classes from whose
types it makes such calls.
"""

import ast
import functools

BUILTIN_KINDS = {"bool": "bool", "int": "int", "float": "float", "str": "str", "list": "list",
                 "List": "list", "set": "list", "Set": "list", "tuple": "list", "Tuple": "list",
                 "Sequence": "list", "dict": "dict", "Dict": "dict", "Mapping": "dict",
                 "Literal": "literal", "None": "none"}
UNIONS = ("Union", "Optional")
WRAPPERS = ("Annotated", "Final", "ReadOnly", "Required", "NotRequired", "SkipValidation", "A")
ENUMS = ("Enum", "StrEnum", "IntEnum")


def text_of(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def name_of(node):
    """The last part of a dotted name; None for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def keywords(call):
    return {one.arg: one.value for one in call.keywords if one.arg}


def base_name(base):
    return name_of(base.value if isinstance(base, ast.Subscript) else base)


def usual_of(value):
    """The default of a field or a flag as one writes it on a command line; "" if it has none."""
    if isinstance(value, ast.Call) and name_of(value.func) in ("Field", "field"):
        value = keywords(value).get("default", value.args[0] if value.args else None)
    if not isinstance(value, ast.Constant) or value.value is None:
        return ""
    text = str(value.value)
    return text if text and not set(text) & set(" :#'\"") else ""


def is_word(text):
    """Whether a row of flags.yaml can hold it among the words of a flag."""
    return bool(text) and not set(text) & set(" |#'\"")


def calls_of(node, name):
    return [one for one in ast.walk(node)
            if isinstance(one, ast.Call) and name_of(one.func) == name]


class Source:
    """The classes and the names of types of some files."""

    def __init__(self, paths):
        self.classes = {}
        self.aliases = {}
        self.functions = {}
        for path in paths:
            for node in ast.parse(path.read_text()).body:
                self.index(node)

    def index(self, node):
        if isinstance(node, ast.ClassDef):
            self.classes.setdefault(node.name, node)
        elif isinstance(node, ast.FunctionDef):
            self.functions.setdefault(node.name, node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.aliases.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.aliases.setdefault(name_of(node.target), node.value)
        elif isinstance(node, (ast.If, ast.Try)):
            for one in node.body + node.orelse:
                self.index(one)

    def bases(self, name):
        """The class and those that it inherits from, its own fields first."""
        node = self.classes.get(name)
        if node is None:
            return []
        found = [node]
        for base in node.bases:
            found += [one for one in self.bases(base_name(base)) if one not in found]
        return found

    @functools.lru_cache(maxsize=None)
    def fields(self, name):
        """{field: (type, value or None)} of a class, without those that it computes."""
        found = {}
        for node in reversed(self.bases(name)):
            for one in node.body:
                if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
                    continue
                if is_given(one) and not one.target.id.startswith("_"):
                    found[one.target.id] = (one.annotation, one.value)
        return found

    def method(self, name, method):
        for node in self.bases(name):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == method:
                    return one
        return None

    def is_record(self, name):
        return bool(self.fields(name)) and not self.derives_from(name, "TypedDict", "dict")

    def derives_from(self, name, *bases):
        return any(base_name(base) in bases for node in self.bases(name) for base in node.bases)

    def records(self, annotation):
        """The names of the classes with fields that a type allows."""
        names = set()
        for node in ast.walk(parsed(annotation)):
            name = name_of(node)
            if name in self.classes and self.is_record(name):
                names.add(name)
            elif name in self.aliases and name not in self.classes:
                names |= self.records(self.aliases[name])
            elif text_of(node) in self.classes and self.is_record(text_of(node)):
                names.add(text_of(node))
        return names

    def kinds(self, annotation, depth=0):
        """Which of "bool", "int", "float", "str", "none", "literal", "list", "dict", "record" and
        "other" a type allows."""
        node = parsed(annotation)
        if isinstance(node, ast.BinOp):
            return self.kinds(node.left, depth) | self.kinds(node.right, depth)
        if isinstance(node, ast.Constant) and node.value is None:
            return {"none"}
        if isinstance(node, ast.Subscript):
            return self.kinds_of_subscript(node, depth)
        name = name_of(node)
        if name in BUILTIN_KINDS:
            return {BUILTIN_KINDS[name]}
        if name in self.classes:
            return {self.kind_of_class(name)}
        if name in self.aliases and depth < 8:
            return self.kinds(self.aliases[name], depth + 1)
        return {"other"}

    def choices(self, annotation, beside=(), depth=0):
        """The only words of a type, as text; none for a type that is open. Beside a Literal, a class
        does not open it, nor do the kinds `beside`."""
        node = parsed(annotation)
        name = name_of(node)
        if isinstance(node, ast.BinOp):
            return self.choices_of_union([node.left, node.right], beside, depth)
        if isinstance(node, ast.Subscript):
            name = name_of(node.value)
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if name == "Literal":
                return self.words(parts)
            if name in WRAPPERS:
                return self.choices(parts[0], beside, depth)
            return self.choices_of_union(parts, beside, depth) if name in UNIONS else []
        if name in self.aliases and name not in self.classes and depth < 8:
            return self.choices(self.aliases[name], beside, depth + 1)
        return []

    def choices_of_union(self, parts, beside, depth):
        found = [self.choices(part, beside, depth) for part in parts]
        closes = [words or self.kinds(part) <= {"none", "other", *beside}
                  for words, part in zip(found, parts)]
        return sum(found, []) if all(closes) else []

    def words(self, nodes):
        """Texts and numbers as one writes them on a command line; none where one is neither."""
        found = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.listed(node.value)
                if not inner:
                    return []
                found += inner
            elif isinstance(node, ast.Constant) and isinstance(node.value, (str, int)):
                found.append(str(node.value))
            elif name_of(node) in self.aliases:
                found += self.choices(self.aliases[name_of(node)], depth=1)
            elif not (isinstance(node, ast.Constant) and node.value is None):
                return []
        return found if all(is_word(one) for one in found) else []

    def listed(self, node, depth=0):
        """The words of a list, or of one that a name stands for; none for another expression."""
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self.words(node.elts)
        name = name_of(node)
        return self.listed(self.aliases[name], depth + 1) if name in self.aliases and depth < 8 \
            else []

    def kinds_of_subscript(self, node, depth):
        name = name_of(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in UNIONS:
            found = set().union(*(self.kinds(part, depth) for part in parts))
            return found | ({"none"} if name == "Optional" else set())
        if name in WRAPPERS:
            return self.kinds(parts[0], depth)
        return {BUILTIN_KINDS.get(name, "other")}

    def kind_of_class(self, name):
        if self.derives_from(name, *ENUMS):
            return "literal"
        if self.derives_from(name, "dict", "TypedDict"):
            return "dict"
        return "record" if self.is_record(name) else "other"


def parsed(annotation):
    """A type that is written as text is a type as well."""
    text = text_of(annotation)
    return annotation if text is None else ast.parse(text, mode="eval").body


def is_given(field):
    """Whether a field is one that a user may give, not of the class or computed by it."""
    outer = field.annotation
    if isinstance(outer, ast.Subscript) and name_of(outer.value) in ("ClassVar", "InitVar"):
        return False
    if name_of(outer) == "ClassVar":
        return False
    if name_of(getattr(field.value, "func", field.value)) == "PrivateAttr":
        return False
    if not isinstance(field.value, ast.Call):
        return True
    init = keywords(field.value).get("init")
    return not (isinstance(init, ast.Constant) and init.value is False)


def takes_of_call(given):
    """What a flag takes by the keywords of its add_argument()."""
    action = given.get("action")
    action_name = text_of(action) or name_of(action) or ""
    if action_name in ("store_true", "store_false", "store_const", "count", "version", "help"):
        return "nothing"
    if "BooleanOptional" in action_name or "StoreTrue" in action_name:
        return "nothing"
    nargs = given.get("nargs")
    if nargs is None and ("StoreConst" in action_name or action_name == "DeprecatedAction"):
        return "nothing"
    if isinstance(nargs, ast.Constant) and nargs.value is not None:
        return "optional" if nargs.value == "?" else "nothing" if nargs.value == 0 else "values"
    kind = given.get("type")
    if kind is not None and "json" in ast.unparse(kind):
        return "json"
    return "value"


def flag_names(call):
    """The names of an add_argument(), the longest first; none for a positional argument."""
    names = [text_of(one) for one in call.args if text_of(one)]
    names = [name for name in names if name.startswith("-")]
    longs = [name for name in names if name.startswith("--")]
    return longs + [name for name in names if name not in longs]

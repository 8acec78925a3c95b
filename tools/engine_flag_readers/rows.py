# SPDX-License-Identifier: Apache-2.0
"""Flags of a server, and the files of engines/NAME/flags.yaml that list them."""

import dataclasses
import re

TAKES = ("nothing", "value", "optional", "values", "json")
UNDECIDED = "undecided"


class FlagError(Exception):
    pass


@dataclasses.dataclass
class Flag:
    name: str                # "--max-num-seqs", or "kv_cache_config.dtype" of a YAML file
    takes: str               # one of TAKES
    aliases: list = dataclasses.field(default_factory=list)
    argument: str = ""       # where the server keeps the value, if not by the flag's name
    has_negation: bool = False    # --no-NAME
    negations: list = dataclasses.field(default_factory=list)    # other words that switch it off
    is_short: bool = False   # takes "8K" for 8192
    usual: str = ""          # its default, where that is one word
    choices: list = dataclasses.field(default_factory=list)    # the only words that it takes
    first: str = ""          # the first version that has it, if not all have
    last: str = ""
    fate: str = UNDECIDED    # "acts", "ignored" or the name of a reason

    def usual_argument(self):
        return self.name.lstrip("-").replace("-", "_")

    def off_words(self):
        """The words that switch it off."""
        own = ["--no-" + self.name[2:]] if self.has_negation else []
        return own + self.negations

    def line(self):
        words = [self.takes, self.fate, *self.aliases]
        if self.has_negation:
            words.append("no")
        for word in self.negations:
            words += ["not", word]
        if self.is_short:
            words.append("short")
        if self.argument and self.argument != self.usual_argument():
            words += ["as", self.argument]
        if self.usual and self.fate not in ("acts", "ignored"):
            words += ["usual", self.usual]
        if self.choices:
            words += ["of", "|".join(self.choices)]
        if self.first:
            words += ["from", self.first]
        if self.last:
            words += ["to", self.last]
        return f"  {self.name}: {' '.join(words)}\n"


def read_line(line, where):
    name, colon, rest = line.strip().partition(": ")
    words = rest.split()
    if not colon or len(words) < 2 or words[0] not in TAKES:
        raise FlagError(f"{where}: not a flag: {line.strip()}")
    flag = Flag(name, words[0], fate=words[1])
    rest = iter(words[2:])
    for word in rest:
        if word == "no":
            flag.has_negation = True
        elif word == "not":
            flag.negations.append(next(rest))
        elif word == "short":
            flag.is_short = True
        elif word == "as":
            flag.argument = next(rest)
        elif word == "usual":
            flag.usual = next(rest)
        elif word == "of":
            flag.choices = next(rest).split("|")
        elif word == "from":
            flag.first = next(rest)
        elif word == "to":
            flag.last = next(rest)
        else:
            flag.aliases.append(word)
    return flag


def order(version):
    """Versions in their order: 0.5.10 comes behind 0.5.9.post1."""
    return [int(part) for part in re.findall(r"\d+", version)]


def merge(flags_of):
    """One list of the lists of several versions; each flag says which of them have it."""
    versions = sorted(flags_of, key=order)
    merged = {}
    for version in versions:
        names = {flag.name for flag in flags_of[version]}
        for flag in flags_of[version]:
            old = take_same(flag, names, merged)
            if old is None:
                flag.first = "" if version == versions[0] else version
            else:
                flag.first = old.first
                # A list that the newest version closes has the words of all versions.
                more = [word for word in old.choices if word not in flag.choices]
                flag.choices = flag.choices + more if flag.choices else []
                if old.takes in ("nothing", "optional") and flag.takes == "value":
                    flag.takes = "optional"
                # Short ones may have got another meaning since.
                flag.aliases += [name for name in (old.name, *old.aliases) if name.startswith("--")
                                 and name not in (flag.name, *flag.aliases, *flag.off_words())]
            flag.last = version
            merged[flag.name] = flag
            for word in flag.off_words():
                if word not in names:
                    merged.pop(word, None)
    for flag in merged.values():
        if flag.last == versions[-1]:
            flag.last = ""
        # An alias that is a flag of its own in other versions belongs to the flag.
        flag.aliases = [name for name in flag.aliases if name not in merged]
    drop_taken_aliases(merged.values())
    return sorted(merged.values(), key=lambda flag: flag.name)


def take_same(flag, names, merged):
    """The flag of older versions that is this one, taken out; under an alias, or as the word that
    switches it off, where no flag of this version has its name."""
    if flag.name in merged:
        return merged.pop(flag.name)
    for old in list(merged.values()):
        is_same = old.name in (*flag.aliases, *flag.off_words()) or flag.name in old.aliases
        if old.name not in names and is_same:
            return merged.pop(old.name)
    return None


def drop_taken_aliases(flags):
    """Two flags of different versions may share an alias: that of the newest keeps it."""
    owners = {}
    for flag in sorted(flags, key=lambda flag: (order(flag.last or "9999"), flag.name)):
        for name in flag.aliases:
            owners[name] = flag.name
    for flag in flags:
        flag.aliases = [name for name in flag.aliases if owners[name] == flag.name]


class FlagFile:
    """A list that was written: what stands before the flags is by hand, but for `versions`."""

    def __init__(self, path):
        self.path = path
        self.versions = []
        self.flags = {}
        head, mark, rows = path.read_text().partition("\nflags:\n")
        if not mark:
            raise FlagError(f"{path}: no line 'flags:'")
        self.head = head
        versions = re.search(r"^versions: (.*)$", head, re.MULTILINE)
        if versions is None:
            raise FlagError(f"{path}: no line 'versions:'")
        self.versions = versions[1].split()
        self.reasons = re.findall(r"^  ([a-z0-9_]+): ", head.partition("\nreasons:\n")[2],
                                  re.MULTILINE)
        for line in rows.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                flag = read_line(line, path)
                self.flags[flag.name] = flag

    def text(self, versions, flags):
        head = re.sub(r"^versions: .*$", "versions: " + " ".join(versions), self.head,
                      flags=re.MULTILINE)
        return head + "\nflags:\n" + "".join(flag.line() for flag in flags)

    def undecided(self, flags):
        """The flags without a fate, and those whose reason is not one of the file's."""
        known = {"acts", "ignored", *self.reasons}
        return [flag.name for flag in flags if flag.fate not in known]

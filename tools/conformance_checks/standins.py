# SPDX-License-Identifier: Apache-2.0
"""Imports a few real modules of an engine's package, and stand-ins for all that they import.

A scheduler needs no GPU, no torch and no web server, but its modules import them. Here a module is
real when its name is in a list; every other module of the package, and every library of a second
list, is an empty module that makes up a class for each name that it is asked for. A made-up class
has no behaviour: what a scheduler calls must be real, or be given by the recorder.
"""

import importlib.abc
import importlib.machinery
import pathlib
import sys
import types


class MadeUpMeta(type):
    """Lets made-up classes stand in annotations, in unions and as enums."""

    def __or__(cls, other):
        return cls

    def __ror__(cls, other):
        return cls

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made_up = make_up(cls.__module__, name)
        setattr(cls, name, made_up)
        return made_up


def do_nothing(*arguments, **options):
    return None


def made_up_method(instance, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return do_nothing


def make_up(module, name):
    return MadeUpMeta(name, (), {
        "__module__": module,
        "__class_getitem__": classmethod(lambda cls, item: cls),
        "__init_subclass__": classmethod(do_nothing),
        "__init__": do_nothing,
        "__enter__": do_nothing,
        "__exit__": do_nothing,
        "__getattr__": made_up_method,
    })


class MadeUpModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made_up = make_up(self.__name__, name)
        setattr(self, name, made_up)
        return made_up


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`folder` has the package `package`; modules below the names in `real` are imported from it,
    those below `libraries` never. `values` has names of made-up modules that need a value."""

    def __init__(self, folder, package, real, libraries, values):
        self.folder = pathlib.Path(folder)
        self.package = package
        self.real = real
        self.libraries = libraries
        self.values = values

    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top != self.package and top not in self.libraries:
            return None
        if any(name == real or name.startswith(real + ".") for real in self.real):
            return importlib.machinery.PathFinder.find_spec(name, path)
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(self.folder / name.replace(".", "/"))]
        return spec

    def create_module(self, spec):
        module = MadeUpModule(spec.name)
        module.__path__ = list(spec.submodule_search_locations)
        vars(module).update(self.values.get(spec.name, {}))
        return module

    def exec_module(self, module):
        pass

    def install(self):
        sys.meta_path.insert(0, self)

# SPDX-License-Identifier: Apache-2.0
"""The few torch operations that SGLang's schedulers and allocators need, over Python lists.

Only integers, in one dimension, and a table of rows for `req_to_token`. A missing operation is
an error; nothing is made up.
"""

import bisect
import itertools
import operator


class Number(int):
    """A tensor of one number."""

    def item(self):
        return int(self)

    def to(self, *arguments, **options):
        return self


class Device(str):
    @property
    def type(self):
        return str(self)


CPU = Device("cpu")


def plain(value):
    return value.values if isinstance(value, Tensor) else value


class Tensor:
    """One dimension: `values` is a list of integers."""

    device = CPU
    dtype = "int64"

    def __init__(self, values):
        self.values = values

    # ---- Shape and copies ----

    @property
    def shape(self):
        return (len(self.values),)

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return map(Number, self.values)

    def numel(self):
        return len(self.values)

    def tolist(self):
        return list(self.values)

    def item(self):
        (value,) = self.values
        return value

    def clone(self):
        return Tensor(list(self.values))

    def to(self, *arguments, copy=False, **options):
        return self.clone() if copy else self

    def cpu(self):
        return self

    def int(self):
        return Tensor([int(value) for value in self.values])

    def bool(self):
        return Tensor([value != 0 for value in self.values])

    def sum(self):
        return Number(sum(self.values))

    # ---- Parts ----

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Tensor(self.values[index])
        if isinstance(index, int):
            return Number(self.values[index])
        return Tensor([self.values[i] for i in plain(index)])

    def __setitem__(self, index, value):
        if isinstance(index, slice):
            places = range(*index.indices(len(self.values)))
        else:
            places = plain(index)
        news = plain(value)
        if isinstance(news, int):
            news = itertools.repeat(news)
        else:
            assert len(news) == len(places), "as many values as places"
        for place, new in zip(places, news):
            self.values[place] = new

    def copy_(self, other):
        self[:] = other

    # ---- Arithmetic, element by element ----

    def combined(self, function, other):
        if isinstance(other, Tensor):
            assert len(other) == len(self), "tensors of one length"
            return Tensor(list(map(function, self.values, other.values)))
        return Tensor([function(value, other) for value in self.values])

    def __add__(self, other):
        return self.combined(operator.add, other)

    __radd__ = __add__

    def __sub__(self, other):
        return self.combined(operator.sub, other)

    def __mul__(self, other):
        return self.combined(operator.mul, other)

    def __floordiv__(self, other):
        return self.combined(operator.floordiv, other)

    def __mod__(self, other):
        return self.combined(operator.mod, other)

    def __and__(self, other):
        return self.combined(operator.and_, other)

    def __invert__(self):
        assert all(isinstance(value, bool) for value in self.values), "only truth values"
        return Tensor([not value for value in self.values])

    def __eq__(self, other):
        return self.combined(operator.eq, other)

    def __lt__(self, other):
        return self.combined(operator.lt, other)

    def __gt__(self, other):
        return self.combined(operator.gt, other)

    __hash__ = None

    def clamp(self, min=None, max=None):
        result = self
        if min is not None:
            result = result.combined(lambda a, b: a if a > b else b, min)
        if max is not None:
            result = result.combined(lambda a, b: a if a < b else b, max)
        return result

    clamp_ = clamp  # its callers use what it returns


class Table:
    """Two dimensions: a list of rows."""

    device = CPU

    def __init__(self, num_rows, num_columns):
        self.shape = (num_rows, num_columns)
        self.rows = [Tensor([0] * num_columns) for _ in range(num_rows)]

    def __getitem__(self, index):
        if isinstance(index, int):
            return self.rows[index]
        row, column = index
        if isinstance(row, int):
            return self.rows[row][column]
        return Tensor([self.rows[r].values[c] for r, c in zip(plain(row), plain(column))])

    def __setitem__(self, index, value):
        row, column = index
        if isinstance(row, int):
            self.rows[row][column] = value
            return
        for r, c, new in zip(plain(row), plain(column), plain(value)):
            self.rows[r].values[c] = new


# ---- Functions of the module ----

def tensor(values, **options):
    return Tensor([int(value) for value in values])


def full(shape, value, **options):
    (size,) = shape
    return Tensor([value] * size)


def empty(shape, **options):
    return full((shape,) if isinstance(shape, int) else shape, 0)


def zeros(shape, **options):
    if isinstance(shape, tuple) and len(shape) == 2:
        return Table(*shape)
    return empty(shape)


def zeros_like(other):
    return Tensor([0] * len(other))


def arange(*bounds, **options):
    return Tensor(list(range(*bounds)))


def cat(tensors, **options):
    return Tensor(list(itertools.chain.from_iterable(one.values for one in tensors)))


def cumsum(values, dimension):
    return Tensor(list(itertools.accumulate(values.values)))


def searchsorted(bounds, values, right=False):
    find = bisect.bisect_right if right else bisect.bisect_left
    return Tensor([find(bounds.values, value) for value in values.values])


def where(condition, yes, no):
    return Tensor([a if chosen else b
                   for chosen, a, b in zip(condition.values, yes.values, no.values)])


def unique(values):
    return Tensor(sorted(set(values.values)))


def sort(values):
    order = sorted(range(len(values)), key=values.values.__getitem__)
    return values[order], Tensor(order)


class Int64:
    max = 2 ** 63 - 1


VALUES = {
    "Tensor": Tensor, "tensor": tensor, "full": full, "empty": empty, "zeros": zeros,
    "zeros_like": zeros_like, "arange": arange, "cat": cat, "cumsum": cumsum,
    "searchsorted": searchsorted, "where": where, "unique": unique, "sort": sort,
    "clamp": lambda values, **limits: values.clamp(**limits),
    "sum": lambda values: values.sum(), "all": lambda values: all(values.values),
    "is_tensor": lambda value: isinstance(value, Tensor),
    "device": Device, "iinfo": lambda kind: Int64, "__version__": "0.0",
    "int64": "int64", "int32": "int32", "int": "int", "bool": "bool"}

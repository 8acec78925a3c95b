# SPDX-License-Identifier: Apache-2.0
"""Results of runs."""

import difflib
import functools
import html
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from ._errors import ArgumentError, MetronomeWarning

if TYPE_CHECKING:
    import numpy
    import pandas


def decoded(column: Any) -> "numpy.ndarray":
    """A column of the native module as an array of its values."""
    import numpy
    if isinstance(column, tuple):
        codes, words = column
        return numpy.array(words, dtype=object)[codes]
    return column.view(bool) if column.dtype == numpy.uint8 else column


def unknown(what: str, name: Any, names: Iterable[str]) -> str:
    """A message for a name that is none of these."""
    near = difflib.get_close_matches(str(name), names, 1)
    hint = f", did you mean '{near[0]}'?" if near else ""
    return f"{what}: has no '{name}'{hint}; allowed: {', '.join(names)}"


class Figures(dict[str, Any]):
    """Figures by their names."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(unknown("summary", name, self))


class Table(Mapping[str, "numpy.ndarray"]):
    """Columns of equal length, by name.

    ``table["ttft_ms"]`` is a NumPy array. Names that end in ``_ns`` are whole nanoseconds since the
    start of the clock, or durations; -1 where there is none. Names that end in ``_ms`` are
    milliseconds; NaN where there is none.
    """

    def __init__(self, name: str, make: Callable[[], Mapping[str, Any]]):
        try:
            import numpy  # noqa: F401
        except ImportError as error:
            raise ImportError(f"{name}: columns need NumPy; pip install numpy") from error
        self.name = name
        self._make = make
        self._columns = {key: decoded(column) for key, column in make().items()}

    def __getitem__(self, column: str) -> "numpy.ndarray":
        if column not in self._columns:
            raise KeyError(unknown(self.name, column, self._columns))
        return self._columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def num_rows(self) -> int:
        """Rows, each with a value in every column."""
        return len(next(iter(self._columns.values()), ()))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.num_rows} rows of {', '.join(self._columns)}>"

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a DataFrame, which shares no memory with it."""
        import pandas
        return pandas.DataFrame({key: array.copy() for key, array in self._columns.items()})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """For libraries that read columns by Arrow's C data interface: ``pyarrow.table(table)``,
        ``polars.DataFrame(table)``. Columns are as here; those of words are dictionaries.
        """
        return _native.arrow_stream(self._make())

    def _repr_html_(self) -> str:
        try:
            return self.to_pandas()._repr_html_()
        except ImportError:
            return f"<pre>{html.escape(repr(self))}</pre>"


class Result:
    """One variant's run: its figures, and each of its requests, steps and gaps."""

    def __init__(self, native: "_native.VariantResult"):
        self._native = native

    @property
    def name(self) -> str:
        """The variant's name, or that of a scenario without variants."""
        return self._native.name

    @property
    def digest(self) -> str:
        """Fingerprint of every decision and time; equal for identical runs."""
        return self._native.digest

    @property
    def output_digest(self) -> Optional[str]:
        """Fingerprint of every token; None for a simulation, whose tokens have no content."""
        return self._native.output_digest or None

    @property
    def warnings(self) -> list[str]:
        """What a reader of the figures should know, such as requests that failed."""
        return self._native.warnings

    @property
    def elapsed_ms(self) -> float:
        """Wall time of the engine's loop, in milliseconds."""
        return self._native.elapsed_ms

    @functools.cached_property
    def summary(self) -> Figures:
        """The figures of the run, with the names and units of ``summary.json``.

        Latencies are milliseconds (``p99_ttft_ms``), ``duration`` is seconds, throughputs are per
        second. A figure that does not exist is None.
        """
        return Figures(json.loads(_native.summary_json([self._native]))[0])

    @functools.cached_property
    def details(self) -> dict[str, Any]:
        """The content of ``result.json``: the figures, their formulas, the resolved scenario."""
        return json.loads(self._native.result_json())

    @property
    def config(self) -> dict[str, Any]:
        """The resolved scenario, with every default. ``run`` takes it as a scenario."""
        return self.details["config"]

    @functools.cached_property
    def requests(self) -> Table:
        """One row a request, with the names of ``requests.jsonl``."""
        return Table("requests", self._native.requests)

    @functools.cached_property
    def steps(self) -> Table:
        """One row a step of the engine, with the names of ``steps.jsonl``."""
        return Table("steps", self._native.steps)

    @functools.cached_property
    def prefills(self) -> Table:
        """One row a prefill chunk: ``step``, ``request``, ``first_position``, ``tokens``."""
        return Table("prefills", self._native.prefills)

    @functools.cached_property
    def preemptions(self) -> Table:
        """One row for each time that a request lost its KV blocks: ``time_ns``, ``request``."""
        return Table("preemptions", self._native.preemptions)

    @functools.cached_property
    def gaps(self) -> Table:
        """One row a gap between two tokens of a request (inter-token latency, ITL).

        ``decode_ns``, ``draft_ns``, ``encode_ns``, ``prefill_ns``, ``host_ns``, ``waiting_ns`` and
        ``preemption_ns`` add up to ``gap_ns``. ``cause`` is ``prefill``, ``encoding``,
        ``preemption`` or ``unknown``; ``chunk_request``, ``chunk_position``, ``chunk_tokens`` and
        ``chunk_step`` name the prefill chunk that delayed the token most, -1 without one.
        """
        return Table("gaps", self._native.gaps)

    def __repr__(self) -> str:
        figures = self.summary
        return (f"<Result {self.name}: {figures['completed']} requests completed, digest "
                f"{self.digest}>")

    def __str__(self) -> str:
        return _native.table([self._native])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class Results(Sequence[Result]):
    """The runs of a scenario's variants, in the order of the file.

    ``results[0]`` and ``results["chunked-512"]`` are one variant's. Of a scenario with one variant
    the attributes are those of its only result: ``results.summary``.
    """

    def __init__(self, natives: "list[_native.VariantResult]", notes: Sequence[str] = ()):
        self._natives = natives
        self._results = [Result(native) for native in natives]
        #: What an answer must say about the scenario, such as flags that are not simulated.
        self.notes = list(notes)

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, key: Union[int, str, slice]) -> Any:
        if not isinstance(key, str):
            return self._results[key]
        for result in self._results:
            if result.name == key:
                return result
        raise KeyError(f"no variant '{key}'; allowed: {', '.join(self.names)}")

    @property
    def names(self) -> list[str]:
        """The names of the variants."""
        return [result.name for result in self._results]

    @property
    def only(self) -> Result:
        """The result of a scenario with one variant."""
        if len(self._results) != 1:
            raise ArgumentError("there are several variants; allowed: results[NAME] with one of "
                                f"{', '.join(self.names)}")
        return self._results[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Result, name):
            raise AttributeError(f"'Results' object has no attribute '{name}'")
        return getattr(self.only, name)

    def save(self, folder: "str | os.PathLike[str]") -> None:
        """Writes the folder that ``metronome run --out FOLDER`` writes, with the same bytes.

        The folder appears whole or not at all, and replaces only an earlier result.
        """
        for file in _native.save(self._natives, os.fspath(folder), self.notes):
            warnings.warn(f"not written, as larger than 64 MB: {file}; the key in brackets, set to "
                          "True, writes the file", MetronomeWarning, stacklevel=2)

    def to_pandas(self) -> "pandas.DataFrame":
        """The figures as a DataFrame: a row a variant, a column a figure of ``summary``."""
        import pandas
        return pandas.DataFrame([result.summary for result in self._results], index=self.names)

    def report(self) -> "Page":
        """The report of ``report.html``: figures, table, formulas and configurations."""
        return Page(_native.report_html(self._natives, self.notes))

    def __repr__(self) -> str:
        return f"<Results of {', '.join(self.names)}>"

    def __str__(self) -> str:
        return _native.table(self._natives)

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<pre>{html.escape(str(self))}</pre>" + (f"<ul>{notes}</ul>" if notes else "")


class Page(str):
    """A page of HTML. A notebook shows it inline."""

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes it to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{html.escape(self)}" style="width: 100%; height: 900px; '
                'border: 0"></iframe>')

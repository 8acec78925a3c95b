# SPDX-License-Identifier: Apache-2.0
"""The other commands. Each call is that of the command of its name, inside this process."""

import functools
import html
import json
import os
import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union, Unpack

from . import _native
from ._errors import ArgumentError, MetronomeWarning, RunError
from ._executors import Lost, Trials, answers_of, check_executor, keep, question_of
from ._result import Page, Result, Results
from ._scenario import (Scenario, ScenarioLike, Searched, arguments_of, assignments_of, plain,
                        refuse_unknown, source_of, split)

if TYPE_CHECKING:
    import pandas

PathLike = Union[str, "os.PathLike[str]"]
#: A folder that ``metronome run`` wrote, or results that are not saved.
RunLike = Union[PathLike, Result, Results]
Values = Union[str, Iterable[Any]]

_REMOTE_JOBS = 64  # trials that wait for workers; a search has fewer settings at once

# Progress: a bar where standard error is a terminal, elsewhere a line now and then.
_BAR = re.compile(r"\r\x1b\[K[^\r\n]*|^trial \d+: .*\n|^\S+ \[[#.]+\] +\d+% .*\n",
                  re.MULTILINE)


def _call(name: str, words: Sequence[str], given: "Optional[_native.ScenarioSource]" = None,
          trials: Optional[Trials] = None) -> tuple[int, str, str]:
    texts: list[str] = []
    try:
        if trials is None:
            code = _native.command(name, list(words), given, texts)
        else:
            code = _native.tune(list(words), given, trials, texts)
    except RunError as error:
        error.text = _BAR.sub("", texts[1])
        raise
    return code, texts[0], _BAR.sub("", texts[1])


def _warn(errors: str) -> None:
    """What a command says on standard error, but for its tables."""
    for line in errors.splitlines():
        for mark in ("warning: ", "note: ", "metronome: error: "):
            if line.startswith(mark):
                warnings.warn(line.removeprefix(mark), MetronomeWarning, stacklevel=3)


def _scenario_words(scenario: Optional[ScenarioLike], described: Mapping[str, Any]
                    ) -> "tuple[list[str], Optional[_native.ScenarioSource]]":
    """The words that name a scenario to a command, and its text where it is no file."""
    if described or scenario is None:
        refuse_unknown(described)
        if scenario is not None and not isinstance(scenario, str):
            raise ArgumentError(f"{next(iter(described))}: describes a scenario, but there is one; "
                                "allowed: a server's command, or sets= for keys of a scenario")
        return arguments_of({"command": scenario, **described}), None
    source = source_of(scenario)
    return [source.name], source if source.text else None


def _over_words(over: Optional[Mapping[str, Values]]) -> list[str]:
    words = []
    for key, values in (over or {}).items():
        if not isinstance(values, str):
            texts = [plain(value) for value in values]
            if wrong := [text for text in texts if "," in text]:
                raise ArgumentError(f"over: '{wrong[0]}' has a comma; allowed: values without")
            values = ",".join(texts)
        words.append(f"--over={key}={values}")
    return words


def _names(names: Union[str, Sequence[str]]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


class _Folder:
    """A folder for files: the caller's, or one that goes with this object."""

    def __init__(self, path: Optional[PathLike], name: str):
        self._is_kept = path is not None
        if path is None:
            own = tempfile.mkdtemp(prefix="metronome-")
            weakref.finalize(self, shutil.rmtree, own, ignore_errors=True)
            path = os.path.join(own, name)
        self.path = os.fspath(path)

    def without_path(self, text: str) -> str:
        """What a command printed, without lines about a folder that goes."""
        if self._is_kept:
            return text
        own = re.escape(os.path.dirname(self.path))
        return re.sub(rf"^.*: {own}\S*\n|^scenario +{own}\S*\n|; results: {own}\S*", "", text,
                      flags=re.MULTILINE)

    def read(self, name: str) -> str:
        with open(os.path.join(self.path, name), encoding="utf-8") as file:
            return file.read()


class Sweep:
    """The points of a sweep, in the order of the grid.

    Attributes:
        rows: one dict a point and variant: the varied keys, then the figures of ``summary.json``
        text: what the command prints
    """

    def __init__(self, folder: _Folder, rows: list[dict[str, Any]], text: str):
        self._folder = folder
        self.rows = rows
        self.text = folder.without_path(text)

    @property
    def folder(self) -> str:
        """The folder, with one for each point in it. Without ``out`` it goes with this object."""
        return self._folder.path

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a DataFrame."""
        import pandas
        return pandas.DataFrame(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def sweep(scenario: Optional[ScenarioLike] = None, over: Optional[Mapping[str, Values]] = None,
          sets: Optional[Mapping[str, Any]] = None, *, variants: Union[str, Sequence[str]] = (),
          backend: str = "sim", seed: Optional[int] = None, runs: Optional[int] = None,
          jobs: Optional[int] = None, out: Optional[PathLike] = None,
          log: Optional[PathLike] = None, executor: Any = None,
          steps_of: Optional[Sequence[int]] = None, **options: Unpack[Searched]) -> Sweep:
    """Runs every variant at every point of a grid, several points at once.

    Args:
        scenario: as for ``run``
        over: values of keys, all combinations: ``{"workload.arrivals.rate": [2, 4, 8]}``; a range
            as a text, ``"2:16:2"`` or ``"128:4096:x2"``; None: the scenario's section ``sweep``
        sets: values of keys at all points
        variants: names of the variants to run; none: all of them
        backend: ``sim`` or ``cpu``
        seed: in the place of the scenario's
        runs: runs of each point, for a backend that measures
        jobs: points to run at once; None: one per CPU core, or one for a backend that measures
        out: the folder, which a later call with it continues: it runs the points that are missing;
            None: a temporary folder
        log: a file that gets a line when a point starts and when it is done
        executor: where the points run instead: an executor of concurrent.futures, a client of Dask,
            or the module ``ray``. Workers need this package and the scenario's files; policies and
            routers of Python are sent to them. The results are the same bytes; a point whose worker
            is lost runs here.
        steps_of: the replicas of a fleet whose steps are kept, ``()`` for none: memory does not grow
            with the others' steps; None: as the scenario says
        **options: goals such as ``target_itl``, and a scenario without a file; see ``Searched``

    A point that failed, or is no valid scenario, is a warning; the others have rows.

    >>> metronome.sweep("quickstart", {"workload.arrivals.rate": [2, 4]}).to_pandas()
    """
    folder = _Folder(out, "sweep")
    goals, described = split(options)
    words, given = _scenario_words(scenario, described)
    words += _over_words(over) + arguments_of({
        "set": assignments_of(sets), "variant": _names(variants), "backend": backend, "seed": seed,
        "runs": runs, **goals})
    if steps_of is not None:
        words += arguments_of({"steps_of": ",".join(map(str, steps_of)) or "none"})
    if executor is not None:
        _run_elsewhere(words, given, folder.path, executor)
    words += arguments_of({"jobs": jobs, "out": folder.path, "log": log, "json": True})
    _, output, errors = _call("sweep", words, given)
    _warn(errors)
    return Sweep(folder, json.loads(output or "[]"), errors)


def _run_elsewhere(words: Sequence[str], given: "Optional[_native.ScenarioSource]", folder: str,
                   executor: Any) -> None:
    """Has workers run what the folder lacks. What they lose is left to the caller."""
    check_executor(executor)
    # Makes the folder, or refuses one of something else.
    _call("sweep", [*words, f"--out={folder}", "--merge", "--quiet"], given)
    _, listed, _ = _call("sweep", [*words, "--dry-run"], given)
    ids = [line.split()[0] for line in listed.splitlines()]
    question = question_of(words, given)
    calls = [(question, f"{i + 1}/{len(ids)}") for i, run in enumerate(ids)
             if not os.path.lexists(os.path.join(folder, run))]
    lost = Lost()
    for files in answers_of(executor, calls, lost):
        keep(files or {}, folder, set(ids))
    lost.warn(len(calls), "points", stacklevel=3)


class FleetSizes(Sweep):
    """Fleets of several sizes and routers: a ``Sweep`` over them."""

    def smallest(self, attainment: float = 0.99) -> Optional[dict[str, Any]]:
        """The row with the fewest replicas that keeps the SLO for this share of the requests, of
        several the one with the highest share; None: no size does."""
        kept = [row for row in self.rows if (row["slo_attainment"] or 0) >= attainment]
        return min(kept, default=None,
                   key=lambda row: (row["fleet.replicas"], -row["slo_attainment"]))


def fleet(scenario: Optional[ScenarioLike] = None, replicas: Iterable[int] = (1, 2, 4, 8),
          routers: Union[str, Iterable[str]] = "least_loaded",
          sets: Optional[Mapping[str, Any]] = None, **options: Any) -> FleetSizes:
    """Runs a scenario on fleets of several sizes, behind one router or more.

    Args:
        scenario: as for ``run``; its load is that of the whole fleet
        replicas: sizes of the fleet
        routers: names of ``metronome list routers``, or of routers of Python
        sets: values of keys, such as ``{"workload.arrivals.rate": 40, "slo.ttft_ms": 500}``
        **options: as for ``sweep``

    >>> metronome.fleet("chat.yaml", range(2, 9), sets={"workload.arrivals.rate": 24}).smallest()
    """
    over = {"fleet.replicas": list(replicas), "fleet.router": _names(routers)}  # type: ignore
    swept = sweep(scenario, over, sets, **options)
    return FleetSizes(swept._folder, swept.rows, swept.text)


class Tuning:
    """What a search for the best settings found.

    Attributes:
        details: the content of ``tune.json``
        best: the scenario with the best setting; None where no setting is known to be the best
        text: what the command prints: tables, and the settings as flags of servers
    """

    def __init__(self, folder: _Folder, text: str):
        self._folder = folder
        self.text = folder.without_path(text)
        self.details: dict[str, Any] = json.loads(folder.read("tune.json"))
        try:
            self.best: Optional[Scenario] = Scenario(folder.read("best.yaml"), "best")
        except FileNotFoundError:
            self.best = None

    @property
    def folder(self) -> str:
        """The folder of ``tune.json``, ``best.yaml``, the trials and ``report.html``."""
        return self._folder.path

    @property
    def settings(self) -> list[dict[str, Any]]:
        """One dict a setting, the best first: highest load within the SLO, figures, trials."""
        return self.details["settings"]

    def report(self) -> Page:
        """The page of the trials."""
        return Page(self._folder.read("report.html"))

    def to_pandas(self) -> "pandas.DataFrame":
        """The settings as a DataFrame."""
        import pandas
        return pandas.DataFrame(self.settings)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def tune(scenario: Optional[ScenarioLike] = None, over: Optional[Mapping[str, Values]] = None,
         sets: Optional[Mapping[str, Any]] = None, *, slo: Optional[str] = None,
         attainment: Optional[float] = None, load: Optional[float] = None,
         minimise: Optional[str] = None, variants: Union[str, Sequence[str]] = (),
         seed: Optional[int] = None, seeds: Optional[int] = None,
         time_limit: Optional[float] = None, jobs: Optional[int] = None,
         out: Optional[PathLike] = None, executor: Any = None,
         **options: Unpack[Searched]) -> Tuning:
    """Finds the settings that carry the highest load within an SLO, or serve one load best.

    Args:
        scenario: as for ``run``
        over: settings to choose from, as for ``sweep``; None: the variants
        sets: values of keys of all settings; ``slo.ttft_ms``, ``slo.itl_ms``, ... are the limits
        slo: limits of MLPerf Inference, as ``slo.preset``
        attainment: required share of requests within every limit, 0 to 0.9999
        load: requests per second to serve, instead of the highest load
        minimise: with ``load``: ``p99_itl``, ``ttft``, ``tpot``, ``cost`` or ``gpus``; without it:
            ``token_cost``, of output tokens at the highest load of each setting
        variants: names of the variants to choose from; none: all of them
        seed: in the place of the scenario's
        seeds: workloads to draw and evaluate together
        time_limit: seconds after which the search ends with what it has found
        jobs: settings to try at once; None: one per CPU core, or 64 with an executor
        out: the folder, which a later call with it continues, also after Ctrl-C; None: a temporary
            folder
        executor: where the trials run, as for ``sweep``. The answer is the same; a trial whose
            worker is lost runs here.
        **options: goals such as ``target_itl``, and a scenario without a file; see ``Searched``

    Raises:
        RunError: no setting meets the SLO under load; ``error.text`` says what would help
    """
    folder = _Folder(out, "tune")
    goals, described = split(options)
    words, given = _scenario_words(scenario, described)
    words += _over_words(over) + arguments_of({
        "set": assignments_of(sets), "slo": slo, "attainment": attainment, "load": load,
        "minimise": minimise, "variant": _names(variants), "seed": seed, "seeds": seeds,
        **goals})
    call = words + arguments_of({
        "time_limit": time_limit, "jobs": jobs or (None if executor is None else _REMOTE_JOBS),
        "out": folder.path, "json": True})
    trials = None if executor is None else Trials(question_of(words, given), executor)
    _, _, errors = _call("tune", call, given, trials)
    _warn(errors)
    if trials is not None:
        trials.lost.warn(trials.asked, "trials", stacklevel=2)
    return Tuning(folder, errors)


def _saved(run: RunLike, folder: str, is_one: bool = False) -> str:
    """The path of a run's folder; with ``is_one``, of the only run in it."""
    if not isinstance(run, (Result, Results)):
        return os.fspath(run)
    results = run if isinstance(run, Results) else Results([run._native])
    path = os.path.join(folder, "run")
    results.save(path)
    if is_one:
        results.only
    one = os.path.join(path, results[0].name)  # of a scenario with variants
    return one if len(results) == 1 and os.path.isdir(one) else path


class Diagnosis(list[dict[str, Any]]):
    """A dict for each run, as ``metronome diagnose --json`` prints it. ``what_if`` has the change
    of settings. ``print`` shows what the command prints.
    """

    def __init__(self, runs: list[dict[str, Any]], tell: Callable[[], str]):
        super().__init__(runs)
        self._tell = tell

    @functools.cached_property
    def text(self) -> str:
        """What the command prints. It is made when it is asked for, by a second call."""
        return self._tell()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Diagnosis of {', '.join(run['label'] for run in self)}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def diagnose(run: Union[RunLike, None] = None, *, top: Optional[int] = None,
             replay: bool = True, hardware: Optional[str] = None,
             scenario: Optional[PathLike] = None, variant: Optional[str] = None,
             flags: Optional[str] = None, iterations: Optional[str] = None,
             engine: Optional[str] = None, run_number: Optional[int] = None,
             requests: Union[int, PathLike, None] = None,
             save: Optional[PathLike] = None, html: Optional[PathLike] = None,
             **options: Unpack[Searched]) -> Diagnosis:
    """Splits every gap between tokens into its causes, and finds the smallest change of settings
    that keeps every gap within a limit.

    Args:
        run: results, a folder that ``metronome run`` wrote, a log of a vLLM or SGLang server, or
            the result of a benchmark's client; or a server's command together with ``gpu``
        top: stalls, chunks and requests to list
        replay: False: do not search for settings
        hardware: GPU that the replay simulates; None: the scenario's
        scenario: of a log: its requests are replayed
        variant: of ``scenario``
        flags: of the engine, in the place of those in a log: ``"--max-num-seqs 64"``
        iterations: of a vLLM log, ``"FIRST:LAST"``
        engine: ``vllm`` or ``sglang``, if a log has lines of both
        run_number: of a client's result with several runs
        requests: how many of a scenario without a file; or, of a log, a client's result that has
            the exact lengths and starts of its requests
        save: a new folder that gets the requests, settings and step times of a log as a scenario
        html: a file that gets the answer as a page
        **options: goals such as ``target_itl``, and a scenario without a file; see ``Searched``

    Returns:
        One dict a run; ``print`` shows the answer in words.
    """
    goals, described = split(options)
    folder = _Folder(None, "run")
    if described or run is None or isinstance(requests, int):
        refuse_unknown(described)
        words = arguments_of({"command": run, "engine": engine, **described})
    else:
        words = [_saved(run, folder.path)] + arguments_of({"engine": engine})
    words += arguments_of({
        **goals, "top": top, "no_replay": not replay, "hardware": hardware,
        "scenario": scenario, "variant": variant, "flags": flags, "iterations": iterations,
        "run": run_number, "requests": requests})
    _, output, errors = _call("diagnose", words + arguments_of(
        {"save": save, "html": html, "json": True}))
    _warn(errors)
    # The folder of unsaved results stays as long as somebody may ask for the words.
    return Diagnosis(json.loads(output),
                     lambda: folder.without_path(_call("diagnose", words)[1]))


def validate(measured: RunLike, simulated: Union[RunLike, None] = None, *,
             scenario: Optional[PathLike] = None, run_number: Optional[int] = None,
             after: Optional[float] = None, allow_differences: bool = False,
             iterations: Optional[str] = None, same_decisions: bool = False) -> dict[str, Any]:
    """Compares a measured run with a simulated one of the same workload.

    Args:
        measured: results, a folder that ``metronome run`` wrote, a request log, a log of a vLLM
            server, or the result of a benchmark's client
        simulated: results or a folder of one run; None: ``scenario`` is run first
        scenario: the scenario file of ``simulated``, or the one to run
        run_number: of a client's result with several runs
        after: compare only requests whose first token came later, in seconds
        allow_differences: compare runs of different models or requests, too
        iterations: of a log, ``"FIRST:LAST"``
        same_decisions: raise RunError when a decision differs

    Returns:
        The dict that ``metronome validate --json`` prints. An error is simulated / measured - 1.
    """
    options = {"run": run_number, "after": after, "allow_differences": allow_differences,
               "iterations": iterations, "same_decisions": same_decisions, "json": True}
    with tempfile.TemporaryDirectory(prefix="metronome-") as one, \
            tempfile.TemporaryDirectory(prefix="metronome-") as other:
        if simulated is None:
            if scenario is None:
                raise ArgumentError("simulated: is missing; allowed: a run, or scenario=")
            words = [os.fspath(scenario)]
            options["measured"] = _saved(measured, one)
        else:
            words = [_saved(measured, one, True), _saved(simulated, other, True)]
            options["scenario"] = scenario
        code, output, errors = _call("validate", words + arguments_of(options))
    _warn(errors)
    if code != 0:
        raise RunError("decisions differ; without same_decisions the answer says where")
    return json.loads(output)


class Calibration:
    """A cost model that was fitted to measured times.

    Attributes:
        model: the content of the file that ``cost_model.file`` of a scenario names
        text: what the command prints: sources, errors of held-out steps, warnings
    """

    def __init__(self, path: str, text: str):
        with open(path, encoding="utf-8") as file:
            self._content = file.read()
        self.model: dict[str, Any] = json.loads(self._content)
        self.text = text

    def save(self, path: PathLike) -> None:
        """Writes the file of the cost model."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._content)

    def __str__(self) -> str:
        return self.text


def calibrate(source: Union[RunLike, Sequence[RunLike], None] = None, *,
              folder: Optional[PathLike] = None, kind: Optional[str] = None,
              model: Optional[str] = None, hardware: Optional[str] = None,
              scenario: Optional[PathLike] = None, sets: Optional[Mapping[str, Any]] = None,
              tp: Optional[int] = None, until: Optional[float] = None,
              iterations: Optional[str] = None, allow_differences: bool = False,
              run_number: Optional[int] = None, backend: Optional[str] = None,
              seconds: Optional[float] = None, seed: Optional[int] = None,
              out: Optional[PathLike] = None, **imported: Any) -> Calibration:
    """Makes a cost model from measured times.

    Args:
        source: results, folders of measured runs, a CSV of steps, a request log, the result of a
            benchmark's client, or a log with vLLM's iterations; several as a list
        folder: kernel times in the format of a published profiler, or a wheel of operator tables
        kind: ``fitted``, ``replay`` or ``corrected``
        model: the measured model, or its config.json
        hardware: the measured hardware
        scenario: of a log
        sets: values of keys of that scenario, or of the steps of ``backend``
        tp: GPUs that shared each layer
        until: fit to the first seconds of a request log
        iterations: of a log, ``"FIRST:LAST"``
        allow_differences: take steps of another model than the named one
        run_number: of a client's result with several runs
        backend: measure steps of ``model`` here: ``cpu``
        seconds: time limit of ``backend``
        seed: of the order of ``backend``'s steps
        out: the file to write; None: none, see ``Calibration.save``
        **imported: options for operator tables: ``system``, ``engine``, ``quantization``,
            ``kv_dtype``, ``experts_kernel``, ``router_dtype``, ``expert_parallel``, ``source_text``
    """
    many = isinstance(source, Sequence) and not isinstance(source, (str, Results))
    sources = [] if source is None else list(source) if many else [source]
    known = ("system", "engine", "quantization", "kv_dtype", "experts_kernel", "router_dtype",
             "expert_parallel", "source_text")
    for name in imported:
        if name not in known:
            raise ArgumentError(f"{name}: no such argument; allowed: {', '.join(known)}")
    if "source_text" in imported:
        imported["source"] = imported.pop("source_text")
    with tempfile.TemporaryDirectory(prefix="metronome-") as temporary:
        path = os.fspath(out) if out is not None else os.path.join(temporary, "model.json")
        paths = [_saved(one, os.path.join(temporary, str(i))) for i, one in enumerate(sources)]
        _, output, errors = _call("calibrate", arguments_of({
            "from": paths, "import": folder, "kind": kind, "model": model, "hardware": hardware,
            "scenario": scenario, "set": assignments_of(sets), "tp": tp, "until": until,
            "iterations": iterations, "allow_differences": allow_differences, "run": run_number,
            "backend": backend, "seconds": seconds, "seed": seed, "out": path, **imported}))
        _warn(errors)
        if out is None:  # a folder that goes
            output = re.sub(r"\ncost model: .*\n", "\n", output)
        return Calibration(path, output)


def catalogue(topic: str, name: Optional[str] = None) -> str:
    """The names that scenarios, arguments and results have, as ``metronome list`` prints them.

    Args:
        topic: ``models``, ``hardware``, ``links``, ``costs``, ``policies``, ``routers``,
            ``scenarios``, ``keys``, ``workloads``, ``figures`` or ``flags``
        name: one of them: a model, a policy, a section of keys, an engine

    >>> print(metronome.catalogue("keys", "scheduler"))
    """
    return _call("list", [topic] if name is None else [topic, name])[1]


def report(results: Union[RunLike, Sequence[RunLike]], out: Optional[PathLike] = None, *,
           run_number: Optional[int] = None) -> Page:
    """The report of one or several runs: figures, table, formulas and configurations.

    Args:
        results: results, result folders, folders of ``tune``, or results of benchmarks' clients
        out: the file to write; replaces only a report; None: none, the page is the answer
        run_number: of a client's result with several runs; None: all of them
    """
    many = isinstance(results, Sequence) and not isinstance(results, (str, Results))
    with tempfile.TemporaryDirectory(prefix="metronome-") as temporary:
        path = os.fspath(out) if out is not None else os.path.join(temporary, "report.html")
        paths = [_saved(one, os.path.join(temporary, str(i)))
                 for i, one in enumerate(list(results) if many else [results])]
        _, _, errors = _call("report", paths + arguments_of({"out": path, "run": run_number}))
        _warn(errors)
        with open(path, encoding="utf-8") as file:
            return Page(file.read())

# SPDX-License-Identifier: Apache-2.0
"""Commands under time limits, the verdicts of stages, and the state for a later call."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GRACE_SECONDS = 5  # between asking a command to end and ending it
# A command that printed something this shortly before its limit is slow; another one hangs.
QUIET_SECONDS = 15


class Failure(Exception):
    """Why a stage did not pass, in one line."""


class TooLong(Failure):
    """A command reached its limit."""

    def __init__(self, text, hangs):
        super().__init__(text)
        self.hangs = hangs


class NoTime(Failure):
    """The part of a stage that was not started for lack of time."""


class Skipped(Exception):
    """The stage cannot run; says what it is missing."""


class Stop(Exception):
    """Why no other stage can run, in one line."""


class Clock:
    """A clock `speed` times as fast as real time, so that tests of long limits are short."""

    def __init__(self, speed=1.0):
        self.speed = speed

    def now(self):
        return time.monotonic() * self.speed

    def real(self, seconds):
        return max(0.0, seconds / self.speed)


def start_group(command, **options):
    """Starts a process that end_group() ends together with its children. It stays attached to our
    terminal, so that it also ends with the command that started us."""
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, process_group=0, **options)


def end_group(process):
    """Ends a process and its children. First it may write its results, as an interrupted bench
    does. A process that the kernel does not end is left alone."""
    def send(number):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass  # none is left
    send(signal.SIGTERM)
    try:
        process.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    send(signal.SIGKILL)
    try:
        process.wait(timeout=2 * GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass


def digest_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Run:
    """One call of gpu_check on one GPU: `out` is that GPU's folder."""

    def __init__(self, options, build, clock, gpu, started):
        self.options = options
        self.out = options.out / gpu.label
        self.gpu = gpu
        self.clock = clock
        self.deadline = started + options.budget
        self.stage_deadline = self.deadline
        self.metronome = str(build / "metronome")
        self.tests = str(build / "metronome_gpu_tests")
        self.build = digest_of([build / "metronome", build / "metronome_gpu_tests"])
        self.invariance = "chunk"
        self.verdicts = {}  # stage: [verdict, seconds]
        self.done = []  # commands that passed: "stage: name"
        self.test_files = {}  # how each ended: "passed", "failed ...", "crashed ...", "hung ..."
        self.chosen = []  # options enabled since stage options
        self.stop = None  # why no other stage begins
        self.has_failed = False
        self.out.mkdir(parents=True, exist_ok=True)
        self.read_state()
        self.environment = dict(
            os.environ, METRONOME_SOURCE_DIR=str(ROOT), METRONOME_BINARY=self.metronome,
            LD_LIBRARY_PATH=":".join(gpu.folders_of_libraries()),
            XDG_CACHE_HOME=str(options.out / "cache"))

    # ---- state ----

    def read_state(self):
        """Reads the state of an earlier call with the same build; another build measures again."""
        try:
            state = json.loads((self.out / "state.json").read_text())
            if state["build"] != self.build:
                self.say(f"the results are of build {state['build']}: all stages start again")
                return
            known = (str(state["invariance"]), list(state["done"]), list(state["chosen"]),
                     dict(state["test_files"]),
                     {name: [str(verdict), float(seconds)]
                      for name, (verdict, seconds) in state["verdicts"].items()})
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.say(f"state.json cannot be read ({error!r}): all stages start again")
            return
        self.invariance, self.done, self.chosen, self.test_files, self.verdicts = known

    def write_state(self):
        self.write("state.json", json.dumps(
            {"gpu": self.gpu.name, "build": self.build, "invariance": self.invariance,
             "chosen": self.chosen, "done": self.done, "test_files": self.test_files,
             "verdicts": self.verdicts}, indent=1) + "\n")

    def keep(self, place):
        """Records a command as passed; it is not run again."""
        self.done.append(place)
        self.write_state()

    def write(self, name, text):
        """Writes atomically; a full disk loses the file, not the call."""
        partial = self.out / f"{name}.partial"
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(self.out / name)
        except OSError as error:
            print(f"gpu_check: {name} cannot be written: {error}", flush=True)

    def say(self, text):
        """Prints to the terminal and into progress.log, as terminal output may be truncated."""
        line = f"gpu_check: {text}"
        print(line, flush=True)
        self.note(self.out / "progress.log", line)

    @staticmethod
    def note(log, *lines):
        try:
            with open(log, "a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        except OSError as error:
            print(f"gpu_check: {log.name} cannot be written: {error}", *lines, sep="\n", flush=True)

    def settings(self):
        """Settings of measured runs: the choice of stage options, then the user's settings."""
        return [*(f"cuda.{name}=true" for name in self.chosen), *self.options.set]

    # ---- commands ----

    def left(self):
        return min(self.deadline, self.stage_deadline) - self.clock.now()

    def need(self, seconds, what):
        """Raises NoTime if less time is left, as `what` could not end."""
        if self.left() < seconds:
            raise NoTime(f"no time was left for {what} ({self.left():.0f} of {seconds:.0f} s)")

    def call(self, command, log, limit, environment=None):
        """Runs a command with its output appended to `log`; returns its exit status. By default it
        finds CUDA's libraries. Raises TooLong at its own limit, and NoTime if the time of the stage
        or call ends earlier."""
        asked, limit = limit, min(limit, self.left())
        if limit < 1:
            raise NoTime("no time was left")
        try:
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"$ {' '.join(map(str, command))}\n")
                file.flush()
                process = start_group(command, env=environment or self.environment, stdout=file,
                                      stderr=subprocess.STDOUT)
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}") from error
        try:
            return process.wait(timeout=self.clock.real(limit))
        except subprocess.TimeoutExpired:
            quiet = (time.time() - log.stat().st_mtime) * self.clock.speed
            end_group(process)
        except BaseException:  # Ctrl-C: ends all started processes
            end_group(process)
            raise
        if limit < asked:
            raise NoTime(f"the time ended after {limit:.0f} s of {' '.join(map(str, command[:3]))}")
        raise TooLong(f"longer than {limit:.0f} s: {' '.join(map(str, command[:4]))}",
                      quiet >= min(QUIET_SECONDS, limit / 2))

    def call_python(self, script, log, limit):
        """Like call(), for a Python script in the user's environment: PyTorch has its own CUDA
        libraries."""
        return self.call([sys.executable, *map(str, script)], log, limit, dict(os.environ))

    def output_of(self, command, log, limit, environment=None):
        """The standard output of a command. Raises Failure if its exit status is not 0."""
        out = self.out / "output.partial"
        out.unlink(missing_ok=True)
        status = self.call(["bash", "-c", 'exec "$@" >"$0"', str(out), *map(str, command)], log,
                           limit, environment)
        if status != 0:
            raise Failure(f"{' '.join(map(str, command[1:3]))} (exit status {status})")
        return out.read_text(errors="replace")

    def call_all(self, commands, log, limit, least=1):
        """Runs every command in turn, regardless of failures, except those that passed in an
        earlier call. None starts with less than `least` seconds left. Raises Failure with the names
        of the failed ones, or NoTime if all others passed."""
        failed, waiting = [], []
        for name, command in commands:
            place = f"{log.stem}: {name}"
            if place in self.done:
                continue
            try:
                self.need(least, name)
                status = self.call(command, log, limit)
                if status == 0:
                    self.keep(place)
                else:
                    failed.append(f"{name} (exit status {status})")
            except NoTime:
                waiting.append(name)
            except Failure as failure:
                failed.append(f"{name} ({failure})")
        unbegun = f"no time was left for {', '.join(waiting)}" if waiting else ""
        if failed:
            raise Failure("; ".join([*failed, *([unbegun] if unbegun else [])]))
        if unbegun:
            raise NoTime(unbegun)

    # ---- stages ----

    def stage(self, name, stage):
        """Runs a stage and keeps its verdict. The stage knows which parts passed in an earlier
        call. No exception of a stage ends the call."""
        started = self.clock.now()
        self.stage_deadline = started + stage.most
        log = self.out / f"{name}.log"
        try:
            if self.stop is not None:
                raise NoTime(f"not started: {self.stop}")
            stage.run(self, log)
            verdict = "passed"
        except Skipped as skipped:
            verdict = f"skipped: {skipped}"
        except NoTime as waiting:
            verdict = f"waiting: {waiting}"
        except Failure as failure:
            verdict = f"failed: {failure}"
        except Stop as stop:
            self.stop = str(stop)
            verdict = f"failed: {stop}"
        except Exception as error:  # a garbage file, a full disk: other stages may succeed
            self.note(log, traceback.format_exc())
            verdict = f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        self.has_failed = self.has_failed or verdict.startswith(("failed", "waiting"))
        self.stage_deadline = self.deadline
        seconds = self.clock.now() - started
        self.verdicts[name] = [verdict, seconds]
        self.say(f"{name}: {verdict} ({seconds:.0f} s)")
        self.write_readme()
        self.write_state()

    def write_readme(self):
        lines = ["# GPU check", "",
                 "Weights are drawn at random: times depend on shapes, texts have no meaning.", ""]
        lines += quoted(self.out / "machine.log")
        lines += ["", "| stage | verdict | time |", "|---|---|---|"]
        lines += [f"| {name} | {verdict} | {seconds:.0f} s |"
                  for name, (verdict, seconds) in self.verdicts.items()]
        for name in self.verdicts:
            if name not in ("machine", "tests", "slow", "sanitizer"):
                lines += ["", f"## {name}", ""] + quoted(self.out / f"{name}.log")
        self.write("README.md", "\n".join(lines) + "\n")


def quoted(path):
    if not path.exists():
        return []
    return ["    " + line for line in path.read_text(errors="replace").splitlines()
            if not line.startswith("$ ")]

# SPDX-License-Identifier: Apache-2.0
"""The servers whose flags can be read, by the name of their package on PyPI."""

import dataclasses
import pathlib
import shutil
import subprocess
import tarfile

import packages
from engine_flag_readers import llama_cpp_flags, sglang_flags, tensorrt_llm_flags, vllm_flags
from engine_flag_readers.rows import FlagError
from parity_checks import venv

FetchError = packages.FetchError
CACHE = pathlib.Path(__file__).resolve().parents[2] / "build/conformance"


@dataclasses.dataclass(frozen=True)
class Server:
    package: str
    file: str              # below the repository's root
    read: object           # the flags of a folder of sources
    can_fetch: bool = True
    fetch: object = None   # where the package has no wheel: unpacks the sources of a version


def fetch_llama_cpp(package, version, folder):
    """Unpacks arg.cpp of the source package. pip asks its build backend for its name, so that is
    installed by hash first."""
    backend = CACHE / "llama_cpp_backend"
    requirement = packages.requirement(package, version, folder)
    download = [str(backend / "bin/python"), "-m", "pip", "download", "-q", "--require-hashes",
                "-r", str(requirement), "--no-deps", "--no-build-isolation", "--no-binary", ":all:",
                "--dest", str(folder)]
    for command in (*venv.install_commands(backend, "llama_cpp_build"), download):
        done = subprocess.run(command, check=False, text=True, capture_output=True)
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            reason = lines[-1] if lines else "?"
            raise FetchError(f"pip cannot fetch {package}=={version}: {reason}")
    archive = next(folder.glob("*.tar.gz"))
    with tarfile.open(archive) as sources:
        member = next(one for one in sources if one.name.endswith("llama.cpp/common/arg.cpp"))
        path = folder / "vendor/llama.cpp/common/arg.cpp"
        path.parent.mkdir(parents=True)
        path.write_bytes(sources.extractfile(member).read())
    archive.unlink()


PACKAGES = {one.package: one for one in (
    Server("vllm", "engines/vllm/flags.yaml", vllm_flags.read),
    Server("sglang", "engines/sglang/flags.yaml", sglang_flags.read),
    Server("llama-cpp-python", "engines/llama_cpp/flags.yaml", llama_cpp_flags.read,
           fetch=fetch_llama_cpp),
    Server("tensorrt-llm", "engines/tensorrt_llm/flags.yaml", tensorrt_llm_flags.read,
           can_fetch=False),
)}


def find(name):
    if name not in PACKAGES:
        raise FlagError(f"'{name}' is no engine's package; allowed: {', '.join(PACKAGES)}")
    return PACKAGES[name]


def fetch(server, version):
    """The folder with the sources of a version."""
    if not server.can_fetch:
        raise FlagError(f"{server.package} on PyPI has no sources: give --source FOLDER")
    if server.fetch is None:
        return packages.fetch(server.package, version, CACHE)
    folder, part = (CACHE / f"{server.package}-{version}{end}" for end in ("", ".part"))
    if not folder.is_dir():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        server.fetch(server.package, version, part)
        part.rename(folder)
    return folder

# SPDX-License-Identifier: Apache-2.0
"""Fetches the Python sources of an engine's package, without its dependencies."""

import pathlib
import shutil
import subprocess
import sys
import zipfile

# A line "PACKAGE==VERSION --hash=sha256:..." of each version that can be fetched.
HASHES = pathlib.Path(__file__).resolve().parent.parent / "requirements/engines.txt"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_34_x86_64",
             "manylinux_2_35_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "any")
ABIS = ("abi3", "cp38", "cp312", "none")


class FetchError(Exception):
    pass


def requirement(package, version, folder):
    """The file that asks pip for this version, by its hash."""
    lines = HASHES.read_text().splitlines()
    versions = [line for line in lines if line.startswith(f"{package}=={version} ")]
    if not versions:
        known = ", ".join(line.partition(" ")[0] for line in lines if line.startswith(package))
        raise FetchError(f"{package}=={version}: tools/requirements/engines.txt has no hash of it; "
                         f"allowed: {known}")
    path = folder / "requirements.txt"
    path.write_text(versions[0] + "\n")
    return path


def download(package, version, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder,
               "--only-binary=:all:", "--python-version", "3.12", "--require-hashes", "-r",
               requirement(package, version, folder)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    for abi in ABIS:
        command += ["--abi", abi]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise FetchError(f"pip cannot fetch {package}=={version}: {lines[-1] if lines else '?'}")
    return wheels[0]


def fetch(package, version, cache):
    """The folder that has the package's sources; fetched once."""
    folder = cache / f"{package}-{version}"
    if folder.is_dir():
        return folder
    part = cache / f"{package}-{version}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        wheel = download(package, version, part)
    except FetchError:
        shutil.rmtree(part)
        raise
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(part, [name for name in archive.namelist()
                                  if name.startswith(package + "/") and name.endswith(".py")])
    wheel.unlink()
    (part / "requirements.txt").unlink()
    part.rename(folder)
    return folder

"""Fetches the Python sources of an engine's package, without its dependencies."""

import shutil
import subprocess
import sys
import zipfile

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_34_x86_64",
             "manylinux_2_35_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "any")
ABIS = ("abi3", "cp38", "cp312", "none")


class FetchError(Exception):
    pass


def download(package, version, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder,
               "--only-binary=:all:", "--python-version", "3.12", f"{package}=={version}"]
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
    wheel = download(package, version, part)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(part, [name for name in archive.namelist()
                                  if name.startswith(package + "/") and name.endswith(".py")])
    wheel.unlink()
    part.rename(folder)
    return folder

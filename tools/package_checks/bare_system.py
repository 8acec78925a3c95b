# SPDX-License-Identifier: Apache-2.0
"""A bare Debian 12 in a folder, by debootstrap. Needs root."""

import os
import pathlib
import shutil
import subprocess

# Settings of this machine that apt and pip need to reach their registries.
SETTINGS = ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/apt.conf.d",
            "/etc/resolv.conf", "/etc/ssl/certs", "/usr/local/share/ca-certificates")
INSTALL = "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y " \
          "--no-install-recommends "


def missing():
    """The reason why no system can be made here; None: there is none."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        return "needs root and debootstrap; tools/setup --debootstrap installs it"
    return None


def copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def make(system, *commands):
    """Makes the system in the folder `system` and runs the commands in it, if that was not done."""
    if (system / "made").exists():
        return
    shutil.rmtree(system, ignore_errors=True)
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(system)], check=True,
                   stdout=subprocess.DEVNULL)
    for setting in SETTINGS:
        copy(pathlib.Path(setting), system / setting.lstrip("/"))
    for command in commands:
        run(system, command)
    (system / "made").touch()


def run(system, command):
    """Runs a command in the system, without the settings of this shell. Returns what it printed;
    RuntimeError, with the end of that, if it fails."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   "HOME": "/root", "LC_ALL": "C.UTF-8"}
    # The mounts end with the command.
    script = (f"mount -t proc proc {system}/proc && mount --rbind /dev {system}/dev && "
              f"exec chroot {system} /bin/bash -ec \"$1\"")
    result = subprocess.run(["unshare", "--mount", "bash", "-ec", script, "-", command],
                            env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{command}\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def copy_committed(root, folder):
    """The committed files of the repository `root` in the new folder `folder`."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)

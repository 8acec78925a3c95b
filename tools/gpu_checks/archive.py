# SPDX-License-Identifier: Apache-2.0
"""Packs results as one archive in a few parts and replaces it regularly while the stages run. Also
packs the two programs of a build.

A machine may limit the number and size of returned files, and may stop at any moment. So a new
archive gets new names, and the manifest names it only when it is complete.
"""

import hashlib
import io
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import tarfile
import threading
import zlib

MANIFEST = "results.json"
PART_BYTES = 10 << 20
MAX_PARTS = 3  # per archive; two exist during a replacement
INTERVAL_SECONDS = 90
# The largest files; they are packed last and left out first.
LAST = ("steps.jsonl", "requests.jsonl", "report.html")
PROGRAMS = ("metronome", "metronome_gpu_tests")


class ArchiveError(Exception):
    """An error in an archive, in one line."""


def gzip_member(data):
    """One gzip member. Every gzip reader treats consecutive members as one file."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def tar_entry(name, data, mtime):
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), int(mtime), 0o644
    padding = -len(data) % tarfile.BLOCKSIZE
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(padding)


class Archive:
    """Archives all files below `folder`, in parts below `target`."""

    def __init__(self, folder, target):
        self.folder = folder
        self.target = target
        self.members = {}  # path: (size, mtime, compressed entry)
        self.generation = 0

    def member(self, path, name):
        """The file's entry; recompressed only if the file has changed. None if the file is gone."""
        try:
            stat = path.stat()
            known = self.members.get(name)
            if known is None or known[:2] != (stat.st_size, stat.st_mtime_ns):
                packed = gzip_member(tar_entry(name, path.read_bytes(), stat.st_mtime))
                known = self.members[name] = (stat.st_size, stat.st_mtime_ns, packed)
            return known[2]
        except OSError:
            return None

    def files(self):
        """(path, name), the most important files first."""
        found = [(path, path.relative_to(self.folder).as_posix())
                 for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        places = {name: place for place, name in enumerate(LAST, 1)}
        return sorted(found, key=lambda file: (places.get(file[0].name, 0), file[1]))

    def write(self):
        """Writes a new archive that replaces the previous one; returns its manifest."""
        room, packed, names, left_out = MAX_PARTS * PART_BYTES - 1024, [], [], []
        for path, name in self.files():
            member = self.member(path, name)
            if member is None:
                continue
            if len(member) > room:
                left_out.append(name)
                continue
            room -= len(member)
            packed.append(member)
            names.append(name)
        packed.append(gzip_member(bytes(2 * tarfile.BLOCKSIZE)))
        return self.put(b"".join(packed), len(names), left_out)

    def put(self, data, num_files, left_out):
        """Keeps the old archive until the new manifest is written."""
        generation = 1 - self.generation
        self.target.mkdir(parents=True, exist_ok=True)
        parts = [f"results.{generation}.tar.gz.{i}"
                 for i in range(-(-len(data) // PART_BYTES))]
        manifest = {"parts": parts, "bytes": len(data), "files": num_files,
                    "sha256": hashlib.sha256(data).hexdigest(), "left_out": left_out}
        partial = self.target / f"{MANIFEST}.partial"
        try:
            for i, name in enumerate(parts):
                (self.target / name).write_bytes(data[i * PART_BYTES:(i + 1) * PART_BYTES])
            partial.write_text(json.dumps(manifest, indent=1) + "\n")
            partial.replace(self.target / MANIFEST)
        except OSError:
            for path in (partial, *(self.target / name for name in parts)):
                path.unlink(missing_ok=True)
            raise
        self.generation = generation
        for old in self.target.glob("results.*.tar.gz.*"):
            if old.name not in parts:
                old.unlink()
        return manifest


class Snapshots:
    """Writes the archive every INTERVAL_SECONDS until it is closed, and once at the end."""

    def __init__(self, archive, clock, say):
        self.archive = archive
        self.interval = clock.real(INTERVAL_SECONDS)
        self.say = say
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.repeat, daemon=True)
        self.thread.start()

    def repeat(self):
        while not self.ended.wait(self.interval):
            self.write()

    def write(self):
        try:
            return self.archive.write()
        except Exception as error:  # the previous archive is complete, and the next may succeed
            self.say(f"the archive cannot be written: {error!r}")
            return None

    def close(self):
        self.ended.set()
        self.thread.join()
        manifest = self.write()
        if manifest is not None:
            left = f"; left out, as they exceed the limits: {manifest['left_out']}" \
                if manifest["left_out"] else ""
            self.say(f"{manifest['files']} files in {manifest['bytes']:,} bytes, "
                     f"{len(manifest['parts'])} parts{left}")


BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError, tarfile.TarError, lzma.LZMAError,
          zlib.error)


def safe_files(archive):
    """(name, content) of every entry. Raises ValueError for an entry that is not a plain file
    inside the archive's folder."""
    for entry in archive:
        name = pathlib.PurePosixPath(entry.name)
        if not entry.isreg() or name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{entry.name!r} is not a plain file inside of it")
        yield name, archive.extractfile(entry).read()


def unpack_results(source, out):
    """Copies the results that Archive.write() left in `source` into the folder `out`. Raises
    ArchiveError before anything is written. Returns the number of files."""
    try:
        manifest = json.loads((source / MANIFEST).read_text())
        data = b"".join((source / name).read_bytes() for name in manifest["parts"])
        if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
            raise ArchiveError(f"{source}: its parts do not match {MANIFEST}")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            files = list(safe_files(archive))
    except BROKEN as error:
        raise ArchiveError(f"{source}: is not an archive of results ({error})") from error
    for name, content in files:
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(files)


def pack_build(build, target):
    """Packs the programs of a build without their symbols; returns the archive's bytes. Raises
    ArchiveError."""
    missing = [name for name in PROGRAMS if not os.access(build / name, os.X_OK)]
    if missing:
        raise ArchiveError(f"{build} has no {missing[0]}; allowed: a build with CUDA, from "
                           "`tools/build cuda-portable`")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    folder = target.with_name(target.name + ".programs")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        for name in PROGRAMS:
            shutil.copy(build / name, folder / name)
            if (folder / name).read_bytes()[:4] == b"\x7fELF":
                subprocess.run(["strip", folder / name], check=True)
        with tarfile.open(partial, "w:xz", preset=6) as archive:
            for name in PROGRAMS:
                archive.add(folder / name, name)
        partial.replace(target)
    except (OSError, subprocess.CalledProcessError, lzma.LZMAError) as error:
        raise ArchiveError(f"{target}: cannot be written ({error})") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def unpack_build(source, folder):
    """Unpacks the programs of pack_build()'s archive. Raises ArchiveError."""
    try:
        with tarfile.open(source, "r:xz") as archive:
            files = dict((str(name), data) for name, data in safe_files(archive))
    except BROKEN as error:
        raise ArchiveError(f"{source}: is not an archive of programs ({error})") from error
    for name in PROGRAMS:
        if name not in files:
            raise ArchiveError(f"{source}: contains no {name}; allowed: an archive of "
                               "`tools/gpu_check pack`")
        (folder / name).write_bytes(files[name])
        (folder / name).chmod(0o755)

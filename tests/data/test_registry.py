"""Test the registry: order of sources, no incomplete files, and data that agree with the catalog."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import logging
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rgcn.data import catalog, registry
from rgcn.data.catalog import (
    CATALOG,
    DataFile,
    Dataset,
    DatasetCounts,
    IndexArchive,
    PublicArchive,
    PublicFiles,
)
from rgcn.data.downloads import Client
from rgcn.data.registry import MANIFEST, NoSourceError, Sources, datasets, get, load
from rgcn.data.split_files import cut, cut_folder
from rgcn.errors import DataError, UnknownNameError
from rgcn.graph import KnowledgeGraph
from rgcn.system.atomic_files import disk_error_message

SPLITS = {"train": "a\tr\tb\nb\tr\tc\nc\ts\ta\n", "valid": "a\tr\tc\n", "test": "b\ts\ta\n"}
COUNTS = DatasetCounts(3, 2, 5, {"train": 3, "valid": 1, "test": 1})


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def tiny(**changes: object) -> Dataset:
    """A data set like the real ones: compressed in the mirror, CRLF in the package index's archive."""
    files = tuple(DataFile(s, f"{s}.txt", f"{s}.txt.gz", sha256(packed(t))) for s, t in SPLITS.items())
    described: dict[str, object] = {
        "name": "tiny",
        "title": "Tiny",
        "tasks": ("link prediction",),
        "counts": COUNTS,
        "license": "none",
        "homepage": "",
        "citation": "",
        "files": files,
        **changes,
    }
    return Dataset(**described)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RGCN_MIRROR", raising=False)
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror" / "tiny"
    folder.mkdir(parents=True)
    for split, text in SPLITS.items():
        (folder / f"{split}.txt.gz").write_bytes(packed(text))
    return folder.parent


@pytest.fixture
def index(tmp_path: Path) -> tuple[IndexArchive, Client]:
    """An archive with CRLF text and a setup.py that must never run, on an index that is a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        contents = {f"pack-1/data/{s}.txt": t.replace("\n", "\r\n") for s, t in SPLITS.items()}
        for name, text in {**contents, "pack-1/setup.py": f"open({str(tmp_path / 'ran')!r}, 'w')"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    project = tmp_path / "simple" / "pack"
    project.mkdir(parents=True)
    (project / "pack-1.tar.gz").write_bytes(buffer.getvalue())
    (project / "index.html").write_text('<a href="pack-1.tar.gz">pack-1.tar.gz</a>')
    members = {f"{s}.txt": f"pack-1/data/{s}.txt" for s in SPLITS}
    archive = IndexArchive("pack", "pack-1.tar.gz", sha256(buffer.getvalue()), 10_000, members)
    return archive, Client({"index-url": project.parent.as_uri()})


def places(tmp_path: Path, mirror: Path | None = None, client: Client | None = None, offline: bool = False) -> Sources:
    chosen = client or Client({})
    return Sources(mirror, tmp_path / "cache", offline, lambda: chosen)


def assert_clean(cache: Path, *names: str) -> None:
    """Check that the cache has only these folders: no work folder and no incomplete files."""
    assert sorted(p.name for p in cache.iterdir()) == sorted(names) if cache.exists() else not names


# -- sources in order ------------------------------------------------------------------------------------


def test_from_the_mirror_into_the_cache_as_plain_text(tmp_path: Path, mirror: Path) -> None:
    located = places(tmp_path, mirror).obtain(tiny())
    assert located.fetched
    assert located.source.startswith("mirror")
    assert located.graph is not None
    assert located.graph.name == "tiny"
    for split, text in SPLITS.items():
        assert (tmp_path / "cache" / "tiny" / f"{split}.txt").read_bytes() == text.encode()
    manifest = json.loads((located.folder / MANIFEST).read_text())
    assert manifest["files"]["train.txt"]["sha256"] == sha256(SPLITS["train"].encode())
    assert manifest["date"]
    assert_clean(tmp_path / "cache", "tiny")


def test_a_mirror_may_keep_it_in_another_folder(tmp_path: Path, mirror: Path) -> None:
    (mirror / "kind").mkdir()
    (mirror / "tiny").rename(mirror / "kind" / "Tiny_1")
    assert places(tmp_path, mirror).obtain(tiny(mirror_folder="kind/Tiny_1")).source.startswith("mirror")


def test_the_cache_is_searched_first(tmp_path: Path, mirror: Path) -> None:
    places(tmp_path, mirror).obtain(tiny())
    again = places(tmp_path, offline=True).obtain(tiny())
    assert not again.fetched
    assert again.source.startswith("mirror")


def test_from_the_package_index_without_running_anything(tmp_path: Path, index: tuple[IndexArchive, Client]) -> None:
    archive, client = index
    located = places(tmp_path, client=client).obtain(tiny(index_archive=archive))
    assert "pack-1.tar.gz on the package index" in located.source
    assert located.files["train"].read_bytes() == SPLITS["train"].encode()  # CRLF is gone
    assert not (tmp_path / "ran").exists()
    assert str(tmp_path / "simple") not in (located.folder / MANIFEST).read_text()  # the index's address is private
    assert_clean(tmp_path / "cache", "tiny", "archives")


def test_an_archive_of_several_data_sets_is_fetched_once(tmp_path: Path, index: tuple[IndexArchive, Client]) -> None:
    archive, client = index
    places(tmp_path, client=client).obtain(tiny(index_archive=archive))
    places(tmp_path).obtain(tiny(name="other", index_archive=archive))
    assert_clean(tmp_path / "cache", "tiny", "other", "archives")


def test_a_wrong_checksum_on_the_index_goes_on_to_the_public_address(
    tmp_path: Path, index: tuple[IndexArchive, Client]
) -> None:
    archive, client = index
    bad = IndexArchive(archive.project, archive.filename, "0" * 64, archive.size, archive.members)
    for split, text in SPLITS.items():
        (tmp_path / f"{split}.gz").write_bytes(packed(text))
    public = PublicFiles({f"{s}.txt": (tmp_path / f"{s}.gz").as_uri() for s in SPLITS}, 100)
    located = places(tmp_path, client=client).obtain(tiny(index_archive=bad, public=(public,)))
    assert located.source == tmp_path.as_uri() + "/"
    assert located.files["test"].read_text() == SPLITS["test"]


def test_no_source_answers(tmp_path: Path, index: tuple[IndexArchive, Client]) -> None:
    archive, _ = index
    public = PublicFiles({f"{s}.txt": (tmp_path / "nowhere" / s).as_uri() for s in SPLITS}, 100)
    (tmp_path / "empty").mkdir()
    sources = places(tmp_path, tmp_path / "empty")
    with pytest.raises(NoSourceError) as failure:
        sources.obtain(tiny(index_archive=archive, public=(public,)))
    message = str(failure.value)
    for part in ("cache folder", "mirror folder", "package index", "nowhere", "RGCN_MIRROR", "train.txt.gz"):
        assert part in message
    assert str(tmp_path / "cache" / "tiny") in message
    assert_clean(tmp_path / "cache")


def test_offline_mode_uses_no_network(tmp_path: Path, index: tuple[IndexArchive, Client]) -> None:
    archive, client = index
    with pytest.raises(NoSourceError, match="not used: offline"):
        places(tmp_path, client=client, offline=True).obtain(tiny(index_archive=archive))


# -- nothing half-done -----------------------------------------------------------------------------------


def test_wrong_checksum_in_the_mirror(tmp_path: Path, mirror: Path) -> None:
    (mirror / "tiny" / "valid.txt.gz").write_bytes(packed("a\tr\ta\n"))
    with pytest.raises(NoSourceError, match=r"wrong checksum of .*valid\.txt\.gz"):
        places(tmp_path, mirror).obtain(tiny())
    assert_clean(tmp_path / "cache")


def test_wrong_counts_are_refused(tmp_path: Path, mirror: Path) -> None:
    with pytest.raises(NoSourceError, match="entities 3 instead of 4"):
        places(tmp_path, mirror).obtain(tiny(counts=DatasetCounts(4, 2, 5)))
    assert_clean(tmp_path / "cache")


def test_a_damaged_cache_is_reported_and_fetched_again(
    tmp_path: Path, mirror: Path, caplog: pytest.LogCaptureFixture
) -> None:
    located = places(tmp_path, mirror).obtain(tiny())
    located.files["train"].write_text("a\tr\tb\n")
    with caplog.at_level(logging.WARNING, "rgcn.data"):
        again = places(tmp_path, mirror).obtain(tiny())
    assert "train.txt is damaged" in caplog.text
    assert again.fetched
    assert again.files["train"].read_text() == SPLITS["train"]
    assert_clean(tmp_path / "cache", "tiny")


@pytest.mark.parametrize("contents", ["", "{", "[]", '{"files": 3}'])
def test_a_damaged_manifest_is_fetched_again(tmp_path: Path, mirror: Path, contents: str) -> None:
    located = places(tmp_path, mirror).obtain(tiny())
    (located.folder / MANIFEST).write_text(contents)
    assert places(tmp_path, mirror).obtain(tiny()).fetched


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("moment", ["write_plain", "_write_manifest", "_move_in"])
def test_stopping_in_the_middle_leaves_nothing(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException], moment: str
) -> None:
    def stopping(*arguments: object, **named: object) -> None:
        raise stop

    monkeypatch.setattr(registry, moment, stopping)
    with pytest.raises(stop):
        places(tmp_path, mirror).obtain(tiny())
    assert_clean(tmp_path / "cache")


def test_leftovers_of_killed_processes_are_swept_when_old(tmp_path: Path, mirror: Path) -> None:
    old, young = (tmp_path / "cache" / f".partial-tiny-{age}" for age in ("old", "young"))
    old.mkdir(parents=True)
    young.mkdir()
    os.utime(old, (0, 0))
    places(tmp_path, mirror).obtain(tiny())
    assert_clean(tmp_path / "cache", "tiny", young.name)


def test_leftovers_of_a_process_that_was_killed_just_now_are_swept(tmp_path: Path, mirror: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from rgcn.data.registry import Sources
with Sources(None, Path(sys.argv[1]))._work_folder("tiny") as work:
    (work / "half").write_text("x")
    print(work.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    cache = tmp_path / "cache"
    killed = subprocess.run([sys.executable, "-c", code, str(cache)], capture_output=True, text=True)
    assert (cache / killed.stdout.strip() / "half").exists()
    sources = places(tmp_path, mirror)
    with sources._work_folder("other") as under_way:  # of a running process
        sources.obtain(tiny())
        assert not (cache / killed.stdout.strip()).exists()
        assert under_way.is_dir()
    assert_clean(cache, "tiny")


def test_a_full_disk_is_reported_with_advice(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(registry, "write_plain", full)
    with pytest.raises(
        DataError, match=r"tiny: the disk that holds .*cache is full .*free some disk space.*set RGCN_CACHE"
    ):
        places(tmp_path, mirror).obtain(tiny())
    assert_clean(tmp_path / "cache")
    assert disk_error_message(OSError(errno.EACCES, "no"), "here") is None


def test_concurrent_downloads_do_not_interfere(tmp_path: Path, mirror: Path) -> None:
    problems: list[BaseException] = []

    def one() -> None:
        try:
            sources = places(tmp_path, mirror)
            sources._store(tiny(), "mirror", dict(sources._sources_of(tiny()))[f"mirror folder {mirror}"])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert not places(tmp_path, offline=True).obtain(tiny()).fetched
    assert_clean(tmp_path / "cache", "tiny")


def test_a_compressed_bomb_is_refused(tmp_path: Path, mirror: Path) -> None:
    with pytest.raises(NoSourceError, match="larger than the limit"):
        places(tmp_path, mirror).obtain(tiny(max_bytes=8))
    assert_clean(tmp_path / "cache")


def test_a_cache_that_cannot_be_written(tmp_path: Path, mirror: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    located = places(tmp_path, mirror).obtain(tiny())
    assert located.folder == mirror / "tiny"  # read in place
    with pytest.raises(DataError, match="set RGCN_CACHE"):
        places(tmp_path).obtain(tiny(public=(PublicFiles({"train.txt": "https://example.invalid/x/train"}, 1),)))


def test_files_put_into_the_cache_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "tiny"
    folder.mkdir(parents=True)
    for split, text in SPLITS.items():
        (folder / f"{split}.txt").write_text(text)
    located = places(tmp_path, offline=True).obtain(tiny())
    assert located.source == "files put into the cache folder"
    (folder / "train.txt").unlink()
    (folder / "train.txt.gz").write_bytes(packed("a\tr\ta\n"))
    with pytest.raises(DataError, match="Move them away"):
        places(tmp_path, offline=True).obtain(tiny())


@pytest.mark.parametrize("cut_at", range(1, 9))
def test_line_ends_are_normalized_at_any_block_boundary(tmp_path: Path, monkeypatch, cut_at: int) -> None:
    from rgcn.data import archives

    monkeypatch.setattr(archives, "BLOCK_BYTES", cut_at)
    registry.write_plain(io.BytesIO(b"a\r\nb\rc\r\n\r\nd\r"), tmp_path / "x", max_bytes=100)
    assert (tmp_path / "x").read_bytes() == b"a\nb\rc\n\nd\r"


# -- RDF and its target relations ------------------------------------------------------------------------

RDF_XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x/#">
  <rdf:Description rdf:about="http://x/#a"><x:knows rdf:resource="http://x/#b"/><x:tells>yes</x:tells></rdf:Description>
</rdf:RDF>"""


def rdf_dataset(public: PublicArchive) -> Dataset:
    files = (
        DataFile("graph", "tiny_stripped.nt", "tiny_stripped.nt.gz"),
        DataFile("labels:train", "trainingSet.tsv", "trainingSet.tsv"),
        DataFile("labels:test", "testSet.tsv", "testSet.tsv"),
    )
    counts = DatasetCounts(2, 1, 1, {}, {"train": 1, "test": 1}, 2)
    return tiny(files=files, counts=counts, public=(public,), target_relations=("http://x/#tells",))


@pytest.mark.parametrize(("member", "text"), [("d/g.owl", RDF_XML), ("d/g.nt", None), ("d/g.n3", None)])
def test_target_relations_of_an_unstripped_archive_are_removed(tmp_path: Path, member: str, text: str | None) -> None:
    triples = '<http://x/#a> <http://x/#knows> <http://x/#b> .\n<http://x/#a> <http://x/#tells> "yes" .\n'
    contents = {
        member: text or triples,
        "d/trainingSet.tsv": "node\tlabel\nhttp://x/#a\tone\n",
        "d/testSet.tsv": "node\tlabel\nhttp://x/#b\ttwo\n",
    }
    with tarfile.open(tmp_path / "tiny.tgz", "w:gz") as tar:
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data.encode())
            tar.addfile(info, io.BytesIO(data.encode()))
    members = {
        "tiny_stripped.nt": ("*.nt", "*.n3", "*.owl"),
        "trainingSet.tsv": ("trainingSet.tsv",),
        "testSet.tsv": ("testSet.tsv",),
    }
    public = PublicArchive((tmp_path / "tiny.tgz").as_uri(), 1, members, stripped=False)
    located = places(tmp_path).obtain(rdf_dataset(public))
    assert located.files["graph"].read_text() == "<http://x/#a> <http://x/#knows> <http://x/#b> .\n"
    assert located.graph is not None
    assert located.graph.labels is not None


# -- FB-Toy ----------------------------------------------------------------------------------------------


def test_the_cut_keeps_busy_entities_and_what_training_still_knows() -> None:
    hub = [("h", "r", f"x{i}") for i in range(4)] + [("h", "r", "k"), ("k", "s", "h"), ("k", "t", "x0")]
    questions = [("h", "s", "k"), ("h", "t", "k"), ("x0", "r", "h")]
    splits = np.repeat([0, 1], [len(hub), len(questions)])
    small = cut(KnowledgeGraph.from_triples([*hub, *questions], triple_splits=splits), min_degree=3)
    assert small.named(small.split_triples("train")) == [("h", "r", "k"), ("k", "s", "h")]
    # t is gone from training, x0 is not busy
    assert small.named(small.split_triples("valid")) == [("h", "s", "k")]


def test_a_data_set_cut_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Path) -> None:
    monkeypatch.setitem(CATALOG, "tiny", tiny())  # type: ignore[arg-type]
    files = tuple(DataFile(s, f"{s}.txt", f"{s}.txt", "0" * 64) for s in SPLITS)
    small = tiny(name="small", cut_from="tiny", files=files, counts=DatasetCounts())

    def cut_low(splits: Mapping[str, Path], target: Path) -> None:
        cut_folder(splits, target, min_degree=2)

    monkeypatch.setattr("rgcn.data.split_files.cut_folder", cut_low)
    located = places(tmp_path, mirror, offline=True).obtain(small)
    assert located.source == "cut from tiny"
    assert located.files["train"].read_text() == SPLITS["train"]
    assert_clean(tmp_path / "cache", "tiny", "small")


@pytest.mark.needs_data("fb15k-237", "fb-toy")
def test_fb_toy_cut_from_the_real_data_equals_the_published_files(tmp_path: Path, real_mirror: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (only / "fb15k-237").symlink_to(real_mirror / "fb15k-237")
    located = get("fb-toy", mirror=only, offline=True)
    assert located.source == "cut from fb15k-237"
    for split in SPLITS:
        published = (real_mirror / "fb-toy" / f"{split}.txt").read_text().splitlines()
        assert sorted(located.files[split].read_text().splitlines()) == sorted(published)


# -- names and the catalog -------------------------------------------------------------------------------


def test_unknown_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'mutag'"):
        load("mutga")
    (tmp_path / "g.nt").write_text("")
    with pytest.raises(UnknownNameError, match=r"rgcn\.read"):
        load(str(tmp_path / "g.nt"))


def test_load_by_name_checks_counts(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "tiny", tiny())  # type: ignore[arg-type]
    assert repr(load("Tiny", mirror=mirror)) == "KnowledgeGraph('tiny', 3 nodes, 2 relations, 5 triples)"
    assert load("tiny", offline=True).name == "tiny"
    monkeypatch.setitem(CATALOG, "tiny", tiny(counts=DatasetCounts(9)))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="entities 3 instead of 9"):
        load("tiny", offline=True)


def test_the_embedded_graph_needs_nothing() -> None:
    assert load("world", offline=True).name == "world"
    assert get("world").source == "embedded in the package"


def test_every_description_is_complete() -> None:
    names = [d.name for d in datasets()]
    assert len(set(names)) == len(names) == 18
    for dataset in datasets():
        assert dataset.title
        assert dataset.license
        assert dataset.citation
        if dataset.embedded:
            continue
        files = {f.name for f in dataset.files}
        if dataset.index_archive is not None:
            assert set(dataset.index_archive.members) == files
        for public in dataset.public:
            assert set(public.members if isinstance(public, PublicArchive) else public.urls) == files
            urls = [public.url] if isinstance(public, PublicArchive) else public.urls.values()
            assert all(url.startswith("https://") for url in urls)
    assert catalog.find_dataset("AM").published_after_pruning is not None


@pytest.mark.needs_data("fb15k-237")
@pytest.mark.parametrize("name", [d.name for d in datasets() if not d.embedded and d.name not in ("bgs", "am")])
def test_every_mirrored_data_set_holds_what_the_catalog_says(name: str, real_mirror: Path) -> None:
    graph = load(name, mirror=real_mirror, offline=True)
    expected = catalog.find_dataset(name).counts
    statistics = graph.statistics()
    found = (statistics.entities, statistics.relations, statistics.triples)
    assert found == (expected.entities, expected.relations, expected.triples)
    assert statistics.labels_per_split == dict(expected.labels_per_split)
    assert load(name, offline=True).fingerprint == graph.fingerprint  # from the cache, the same graph


@pytest.mark.needs_data("inductive")
@pytest.mark.parametrize("name", ["fb237-v1", "wn18rr-v1"])
def test_inductive_sets_share_relations_and_no_nodes(name: str, real_mirror: Path) -> None:
    known, new = (load(which, mirror=real_mirror, offline=True) for which in (name, f"{name}-ind"))
    trained = set(known.split_triples("train")[:, 1])
    assert {known.relations.id(relation) for relation in new.relations} <= trained
    assert not set(known.nodes) & set(new.nodes)

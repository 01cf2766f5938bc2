"""Test whether the first row of a table is a header or a triple."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path

import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import rgcn
from rgcn.data.headers import ROLES, names_triple
from rgcn.data.node_tables import LabelFiles
from rgcn.data.reading import read
from rgcn.errors import DataError, ParseError
from rgcn.graph import KnowledgeGraph

Row = tuple[str, str, str]
TRIPLES: list[Row] = [("Berlin", "type", "City"), ("Berlin", "in", "Germany"), ("Paris", "in", "France")]
HEADERS: list[Row] = [  # in the order subject, relation, object
    ("subject", "relation", "object"),
    ("subject", "predicate", "object"),
    ("head", "relation", "tail"),
    ("h", "r", "t"),
    ("s", "p", "o"),
    ("source", "type", "target"),
    ("from", "label", "to"),
    ("Subject ID", "Predicate ID", "Object ID"),
    (":START_ID", ":TYPE", ":END_ID"),
    ("?s", "?p", "?o"),
    ("entity", "attribute", "value"),
    ("SOURCE_NODE", "EDGE_TYPE", "TARGET_NODE"),
    ("subj", "rel", "obj"),
]


def table(rows: list[tuple[str, ...]], separator: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    written = io.StringIO()
    csv.writer(written, delimiter=separator, lineterminator="\n", quoting=quoting).writerows(rows)
    return written.getvalue()


def of(folder: Path, text: str, name: str = "g.csv", **options: object) -> KnowledgeGraph:
    (folder / name).write_bytes(text.encode())
    return read(folder / name, **options)


# -- what is a header ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
@pytest.mark.parametrize("header", HEADERS, ids=",".join)
def test_column_names_determine_the_columns(tmp_path: Path, header: Row, order: tuple[int, int, int]) -> None:
    rows = [tuple(row[place] for place in order) for row in [header, *TRIPLES]]
    assert of(tmp_path, table(rows)).named() == TRIPLES
    assert of(tmp_path, table(rows), columns=[order.index(n) for n in range(3)]).named() == TRIPLES
    assert of(tmp_path, table(rows), header=True).named() == TRIPLES
    frame = pl.DataFrame(rows[1:], schema=list(rows[0]), orient="row")
    frame.write_parquet(tmp_path / "g.parquet")
    assert read(tmp_path / "g.parquet").named() == TRIPLES


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize(
    ("name", "separator"), [("g.csv", ","), ("g.csv", ";"), ("g.csv", "\t"), ("g.tsv", "\t"), ("g.txt", ";")]
)
def test_header_names_match_in_any_spelling(
    tmp_path: Path, name: str, separator: str, quoting: int, end: str, bom: str
) -> None:
    if quoting == csv.QUOTE_ALL and name != "g.csv":
        quoting = csv.QUOTE_MINIMAL  # in other formats quotes are part of the name
    for header in (("Source", "Target", "Type"), ("SOURCE", "TARGET", "TYPE")):
        rows = [header, *((s, o, r) for s, r, o in TRIPLES)]
        text = bom + table(rows, separator, quoting).replace("\n", end)
        assert of(tmp_path, text, name).named() == TRIPLES
    assert of(tmp_path, bom + table([*TRIPLES], separator, quoting).replace("\n", end), name).named() == TRIPLES


def test_semicolons_go_with_commas_and_quotes_in_names(tmp_path: Path) -> None:
    rows: list[Row] = [("a, b", "r", 'c "d"; e'), ("x", "r", "1,5")]
    assert of(tmp_path, table(rows, ";")).named() == rows
    assert of(tmp_path, "# a, b, c\n" + table(rows[1:], "\t"), "g.tsv", skip_bad_lines=True).named() == rows[1:]


def test_weights_and_splits_are_found_by_name(tmp_path: Path) -> None:
    text = "id,Weight,source,target,type,split\n1,0.5,a,b,r,train\n2,2,a,c,r,TEST\n3,1,b,c,r,dev\n"
    graph = of(tmp_path, text)
    assert graph.named() == [("a", "r", "b"), ("a", "r", "c"), ("b", "r", "c")]
    assert graph.edge_weights.tolist() == [0.5, 2.0, 1.0]
    assert [len(graph.split_triples(split)) for split in ("train", "valid", "test")] == [1, 1, 1]
    assert of(tmp_path, text, columns=("source", "type", "target")).edge_weights is None
    assert of(tmp_path, text, weight="id").edge_weights.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ParseError, match="line 2: the split is none of train"):
        of(tmp_path, "s,p,o,split\na,r,b,mine\n")
    skipped = of(tmp_path, "s,p,o,weight,split\na,r,b,1,mine\na,r,c,-1,test\na,r,d,3,test\n", skip_bad_lines=True)
    assert skipped.named() == [("a", "r", "d")]
    assert skipped.edge_weights.tolist() == [3.0]


def test_files_of_splits_may_differ_in_header_and_weights(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("s,p,o,weight,split\na,r,b,2,test\nb,r,c,3,test\n")
    (tmp_path / "test.csv").write_text("a,r,c\n")
    graph = read(tmp_path)
    assert graph.triple_splits.tolist() == [0, 0, 2]  # the split follows from the file name
    assert graph.edge_weights.tolist() == [2.0, 3.0, 1.0]


@pytest.mark.parametrize("name", ["g.csv", "g.parquet"])
def test_a_graph_written_as_a_table_is_read_again(tmp_path: Path, name: str) -> None:
    frame = of(tmp_path, "s,p,o,weight,split\na,r,b,0.5,train\nb,q,c,2,test\nc,q,a,1,valid\n").to_polars()
    frame.write_csv(tmp_path / name) if name == "g.csv" else frame.write_parquet(tmp_path / name)
    assert read(tmp_path / name).to_polars().equals(frame)


def test_ambiguous_columns_are_reported_with_the_option_to_set(tmp_path: Path) -> None:
    gephi = "Source,Target,Type,Label\na,b,Directed,knows\n"
    with pytest.raises(DataError, match=r"has 4 columns, not 3, and several may be the relation \(2, 3\); name them"):
        of(tmp_path, gephi)
    assert of(tmp_path, gephi, columns=("Source", "Label", "Target")).named() == [("a", "knows", "b")]
    assert of(tmp_path, gephi, columns=(0, 3, 1)).named() == [("a", "knows", "b")]
    with pytest.raises(ParseError, match="more than 3"):
        of(tmp_path, "a,b,c,d\na,b,c,d\n")
    with pytest.raises(ParseError, match="fewer than 3"):
        of(tmp_path, "source,target\na,b\n")


def test_rows_of_another_width_are_reported_with_advice(tmp_path: Path) -> None:
    wide = "title,year,studio,genre\nAvatar,2009,Fox,Action\n"
    columns = r"more than 3 columns; say which .* --data 'columns=\[0, 1, 2\]'.* a row for each of its cells"
    with pytest.raises(ParseError, match=columns):
        of(tmp_path, wide)
    pl.DataFrame({"title": ["Avatar"], "year": [2009], "studio": ["Fox"], "genre": ["Action"]}).write_parquet(
        tmp_path / "g.parquet"
    )
    with pytest.raises(DataError, match=r"has 4 columns, not 3; name them, .* a row for each of its cells"):
        read(tmp_path / "g.parquet")
    for text in ("a,r,b\nb,r,c,d\n", "s,p,o,weight\na,r,b,1\nb,r,c,1,2\n", "a,r,b\nb,r\n"):
        with pytest.raises(ParseError, match=r"(more|fewer) than . columns; .*--data skip_bad_lines=true"):
            of(tmp_path, text)
        assert len(of(tmp_path, text, skip_bad_lines=True)) == 1
    with pytest.raises(ParseError, match=r"fewer than 3 columns; .* of one relation, add a column"):
        of(tmp_path, "source,target\na,b\n")
    graph = of(tmp_path, "a,r,b\nb,r,c,d\n", skip_bad_lines=True)
    with pytest.raises(DataError, match=r"no triples in .*2 bad lines were skipped"):
        of(tmp_path, wide, skip_bad_lines=True)
    assert graph.metadata["skipped_examples"] == [f"{tmp_path / 'g.csv'}:2: more than 3 columns"]


# -- no triple gets lost -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        TRIPLES,
        [("head", "part_of", "body"), ("tail", "part_of", "body")],
        [("type", "type", "type"), ("a", "type", "b")],
        [("start", "to", "end"), ("a", "to", "b")],
        [("s", "r", "x"), ("x", "r", "t")],
        [("source", "type", "City"), ("Rhine", "flows", "sea")],
        [("s", "p", "o")],
    ],
)
def test_triples_of_header_words_are_kept(tmp_path: Path, rows: list[Row]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert of(tmp_path, table([*rows])).named() == rows


@pytest.mark.parametrize(
    "rows",
    [
        [("s", "r", "t"), ("a", "r", "b")],  # a small graph: the relation occurs again
        [("subject", "relation", "object"), ("thing", "is", "object")],
    ],
)
def test_in_doubt_a_warning_names_the_setting(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.warns(UserWarning, match=rf"first row \({', '.join(rows[0])}\).*header=True.*data\.header"):
        kept = of(tmp_path, table([*rows]))
    assert kept.named() == list(dict.fromkeys(rows))
    assert of(tmp_path, table([*rows]), header=False).fingerprint == kept.fingerprint
    assert of(tmp_path, table([*rows]), header=True).named() == list(dict.fromkeys(rows[1:]))


# -- one thing a row -----------------------------------------------------------------------------------

WIDE: list[Row] = [
    ("Title", "Distributor", "Major Genre"),
    ("Avatar", "Fox", "Action"),
    ("Jaws", "Universal", "Thriller"),
    ("Alien", "Fox", "Horror"),
]


@pytest.mark.parametrize(
    "rows",
    [
        WIDE,
        WIDE[:3],
        [("gene", "interaction", "disease"), ("BRCA1", "causes", "cancer"), *[("TP53", "causes", "cancer")] * 2],
        [("person", "relation", "target"), ("a", "x", "b"), ("b", "y", "c"), ("c", "z", "d")],
        [("user", "does", "item"), *((f"http://x.org/{i}", f"r{i}", str(i)) for i in range(3))],
    ],
)
def test_a_first_row_that_may_name_the_columns_of_a_table_stops(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.raises(DataError, match="is each row a triple, or one thing with its properties") as stopped:
        of(tmp_path, table([*rows]))
    header, first, *_ = rows
    shown = str(stopped.value)
    assert f"as triples: {header[0]} —{header[1]}→ {header[2]}; {first[0]} —{first[1]}→ {first[2]};" in shown
    assert f"as a table: {first[0]}: {header[1]} {first[1]}, {header[2]} {first[2]};" in shown
    assert "--data 'columns=[0, 1, 2]'" in shown
    assert "--set 'data.columns=[0, 1, 2]'" in shown
    unique = list(dict.fromkeys(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert of(tmp_path, table([*rows]), columns=(0, 1, 2)).named() == unique
    assert of(tmp_path, table([*rows]), columns=(0, 1, 2), header=True).named() == unique[1:]
    assert of(tmp_path, table([*rows]), columns=header).named() == unique[1:]
    assert of(tmp_path, table([("s", "p", "o"), *rows[1:]])).named() == unique[1:]
    assert of(tmp_path, table([*rows]), header=False).named() == unique


@pytest.mark.parametrize("header", [[], [("Title", "Distributor", "Title")], [("id", "m3", "2")]])
def test_a_middle_column_of_ever_new_values_holds_no_relations(tmp_path: Path, header: list[Row]) -> None:
    rows = [(f"m{i}", f"studio {i}", f"genre {i % 5}") for i in range(30)]
    with pytest.raises(DataError, match="30 different values in 30 rows" if header else "29 different values in 29"):
        of(tmp_path, table([*header, *rows]))
    assert of(tmp_path, table(rows), columns=(0, 1, 2)).num_relations == 30
    assert of(tmp_path, table([("s", "p", "o"), *rows])).num_relations == 30
    recurring = [(f"m{i}", f"r{i % 20}", f"m{i + 1}") for i in range(30)]
    assert of(tmp_path, table(recurring)).num_triples == 30


def test_columns_of_parquet_that_name_no_triple_stop(tmp_path: Path) -> None:
    frame = pl.DataFrame(WIDE[1:], schema=list(WIDE[0]), orient="row")
    frame.write_parquet(tmp_path / "g.parquet")
    with pytest.raises(DataError, match=r"The columns are Title.*\n.*as triples: Avatar —Fox→ Action"):
        read(tmp_path / "g.parquet")
    assert read(tmp_path / "g.parquet", columns=WIDE[0]).named() == WIDE[1:]


def test_the_train_file_determines_whether_a_folder_holds_triples(tmp_path: Path) -> None:
    for split, rows in (("train", TRIPLES), ("valid", [("x", "q", "y"), *TRIPLES]), ("test", WIDE)):
        (tmp_path / f"{split}.csv").write_text(table([*rows]))
    assert read(tmp_path).num_triples == len(TRIPLES) + len(TRIPLES) + 1 + len(WIDE)
    (tmp_path / "train.csv").write_text(table([*WIDE]))
    with pytest.raises(DataError, match=r"train\.csv: is each row a triple"):
        read(tmp_path)


@pytest.mark.needs_data("codex-s", "fb-toy", "fb15k", "fb15k-237", "inductive", "kinship", "nations", "umls", "wn18")
def test_no_data_set_is_taken_for_a_table_of_things(real_mirror: Path, tmp_path: Path) -> None:
    splits = [path for path in real_mirror.rglob("*.txt*") if path.name.split(".")[0] in ("train", "valid", "test")]
    assert len(splits) > 30
    for split in splits:  # each alone; those of a folder are read as its train split is
        assert read(split).num_triples
    world = rgcn.data.load("world").named()
    assert of(tmp_path, table([*world])).named() == world


cells = st.one_of(st.sampled_from([*ROLES, "Berlin", "City", "x"]), st.text("abSo_: ", min_size=1, max_size=5))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=6))
def test_a_header_is_skipped_only_if_it_names_all_three_columns(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assume(len(rows) > 1 or not names_triple(rows[0]))
        try:
            graph = of(folder, table([*rows]))
        except DataError:
            assert not names_triple(rows[0])
            graph = of(folder, table([*rows]), columns=(0, 1, 2), header=False)
    if graph.named() != list(dict.fromkeys(rows)):
        first, below = rows[0], {cell for row in rows[1:] for cell in row}
        assert names_triple(first)
        place = {ROLES[cell.strip("_: ").lower()]: cell for cell in first if cell.strip("_: ").lower() in ROLES}
        assert graph.num_triples == len(set(rows[1:]))
        assert not {place["subject"], place["object"]} & {end for s, _, o in graph.named() for end in (s, o)}
        assert not (len(place["relation"]) == 1 and place["relation"] in {r for _, r, _ in graph.named()} & below)


values = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@example([("a", "r", "b")], HEADERS[0], [2, 0, 1], ";")
@given(
    st.lists(st.tuples(values, values, values), min_size=1, max_size=6),
    st.sampled_from(HEADERS),
    st.permutations(range(3)),
    st.sampled_from(",;\t"),
)
def test_with_or_without_a_header_it_is_the_same_graph(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], header: Row, order: list[int], separator: str
) -> None:
    assume(not set(header) & {cell for row in rows for cell in row})
    folder = tmp_path_factory.mktemp("header")
    turned = [tuple(row[place] for place in order) for row in [header, *rows]]
    plain = of(folder, table([*rows]), "plain.csv", header=False)
    assert of(folder, table(turned, separator, csv.QUOTE_ALL)).fingerprint == plain.fingerprint


# -- odd files -----------------------------------------------------------------------------------------


def test_unusual_table_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no triples"):
        of(tmp_path, "subject,relation,object\n")
    with pytest.raises(DataError, match="no triples"):
        of(tmp_path, "")
    with pytest.raises(ParseError, match="line 1"):
        of(tmp_path, "subject,relation\na,r,b\n")
    with pytest.raises(ParseError, match="line 2: fewer than 3"):
        of(tmp_path, "subject,relation,object\na,r\nb,r,c\n")
    with pytest.raises(ParseError, match="line 3: column 'object' is empty"):
        of(tmp_path, "subject,relation,object\na,r,b\nb,r,\n")
    with pytest.raises(ParseError, match="line 1"):
        of(tmp_path, '"subject"x,relation,object\na,r,b\n')
    text = '"subject"x,relation,object\na,r,b\n'
    assert of(tmp_path, text, skip_bad_lines=True).named() == [("a", "r", "b")]
    assert of(tmp_path, '"sub\nject",relation,object\na,r,b\n').num_triples == 1  # decoration, as a space is
    assert of(tmp_path, '\n\n"from","to","label"\n\na,b,r\n').named() == [("a", "r", "b")]
    assert of(tmp_path, "subject, relation, object\na,r,b\n").named() == [("a", "r", "b")]
    assert of(tmp_path, '"subject"\t"relation"\t"object"\na\tr\tb\n', "g.tsv").named() == [("a", "r", "b")]
    assert of(tmp_path, "subject\trelation\tobject\n" + "a\tr\tb\n" * 3, "g.tsv").num_triples == 1
    with pytest.raises(DataError, match="two columns named 'o'"):
        of(tmp_path, "s,o,o\na,b,c\n", columns=("s", "o", "o"))


def test_a_header_is_recognized_in_the_first_block_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgcn.data.files.BLOCK_BYTES", 30)
    assert of(tmp_path, table([("from", "to", "label"), *((s, o, r) for s, r, o in TRIPLES)])).named() == TRIPLES


# -- tables of labels and features ---------------------------------------------------------------------

KG = KnowledgeGraph.from_triples(TRIPLES)


def test_a_split_is_not_a_class(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("Node,Class,Split\nBerlin,big,train\nParis,big,test\n")
    labels = LabelFiles(tmp_path / "l.csv").add_to(KG).labels
    assert list(labels.names) == ["big"]
    assert labels.counts() == {"train": 1, "test": 1}
    (tmp_path / "l.csv").write_text("node;size;split\nBerlin;big;train\nParis;small;test\n")
    assert list(LabelFiles(tmp_path / "l.csv").add_to(KG).labels.names) == ["big", "small"]


def test_a_header_of_labels_in_doubt_is_named(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("Belrin,huge\nParis,big\n")
    with pytest.warns(UserWarning, match=r"first row \(Belrin, huge\) names no node.*header=False"):
        LabelFiles(tmp_path / "l.csv").add_to(KG)
    with pytest.raises(DataError, match="did you mean Berlin"):
        LabelFiles(tmp_path / "l.csv", header=False).add_to(KG)


def test_a_feature_row_is_not_a_header(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(table([*TRIPLES]))
    (tmp_path / "f.csv").write_text("Berlin,n/a,n/a\nParis,1,2\n")
    with pytest.raises(ParseError, match="feature 1 of Berlin is not a finite number"):
        read(tmp_path / "g.csv", features=tmp_path / "f.csv")
    (tmp_path / "f.csv").write_text("city,x,y\nParis,1,2\n")
    assert read(tmp_path / "g.csv", features=tmp_path / "f.csv").features.sum() == 3

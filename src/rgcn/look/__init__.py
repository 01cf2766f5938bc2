"""Looking into a trained model: its vectors as files, its nodes on a map, its relations side by side.

opened = open_model("runs/aifb")
vectors = NodeVectors.of(opened)
table = NodeTable(vectors, every_node)
write_table(Path("nodes.parquet"), len(table), table.parts())
page = map_page(make_map(vectors, every_node))
"""

from rgcn.look.map_page import map_page
from rgcn.look.mapping import check_method, two_dimensional
from rgcn.look.neighborhoods import same_class_share, trustworthiness
from rgcn.look.node_map import NodeMap, make_map
from rgcn.look.vector_files import write_table
from rgcn.look.vectors import NodeTable, NodeVectors, relation_table, relation_vectors

__all__ = [
    "NodeMap",
    "NodeTable",
    "NodeVectors",
    "check_method",
    "make_map",
    "map_page",
    "relation_table",
    "relation_vectors",
    "same_class_share",
    "trustworthiness",
    "two_dimensional",
    "write_table",
]

"""Looking into a trained model: its vectors as files, its nodes on a map, its relations side by side.

opened = open_model("runs/aifb")
vectors = NodeVectors.of(opened)
write_table(Path("nodes.parquet"), len(every_node), node_table(vectors, every_node))
page = map_page(make_map(vectors, every_node))
"""

from rgcn.look.map_page import map_page
from rgcn.look.mapping import check_method, two_dimensional
from rgcn.look.neighborhoods import same_class_share, trustworthiness
from rgcn.look.node_map import NodeMap, make_map
from rgcn.look.vectors import NodeVectors, node_table, relation_table, relation_vectors, write_table

__all__ = [
    "NodeMap",
    "NodeVectors",
    "check_method",
    "make_map",
    "map_page",
    "node_table",
    "relation_table",
    "relation_vectors",
    "same_class_share",
    "trustworthiness",
    "two_dimensional",
    "write_table",
]

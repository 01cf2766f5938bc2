"""Visualize a trained model: vectors as files, a map of the nodes, the similarity of relations.

vectors = NodeVectors.of(open_model("runs/aifb"))
write_table(Path("nodes.parquet"), len(every_node), node_table(vectors, every_node))
page = map_page(NodeMap(vectors, every_node))
"""

"""Looking into a trained model: its vectors as files, its nodes on a map, its relations side by side.

vectors = NodeVectors.of(open_model("runs/aifb"))
write_table(Path("nodes.parquet"), len(every_node), node_table(vectors, every_node))
page = map_page(NodeMap(vectors, every_node))
"""

"""PyKEEN: a graph's triples as its `TriplesFactory`, one a split, with our numbers for nodes and relations."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgcn.extras import import_extra
from rgcn.graph.knowledge_graph import KnowledgeGraph
from rgcn.graph.labels import SPLITS


def to_pykeen(graph: KnowledgeGraph) -> dict[str, Any]:
    """{"train": TriplesFactory, "valid": ..., "test": ...}: the splits that have triples; only "train" without splits.

    Entity and relation ids are ours in every split, so that scores and ranks can be compared one to one:

        splits = kg.to_pykeen()
        pipeline(training=splits["train"], validation=splits["valid"], testing=splits["test"], model="RGCN")
    """
    import torch

    factory = import_extra("pykeen", "pykeen", "pykeen.triples").TriplesFactory
    entities = {name: number for number, name in enumerate(graph.nodes)}
    relations = {name: number for number, name in enumerate(graph.relations)}
    splits = SPLITS if graph.triple_splits is not None else ("train",)
    return {
        split: factory(
            mapped_triples=torch.from_numpy(np.array(triples)),
            entity_to_id=entities,
            relation_to_id=relations,
            metadata={"name": graph.name, "split": split},
        )
        for split in splits
        if len(triples := graph.split_triples(split))
    }

"""Use the layer in your own model: classify small graphs by whether they contain a cycle of three "binds" edges.

    python examples/layer_in_your_model.py

A batch of graphs becomes one graph with shifted node numbers, so no edge connects two graphs.
`rgcn.nn.RelationalGraphConv` is a `torch.nn.Module`; optimizer, pooling and loss are PyTorch's.
"""

import torch
from torch import Tensor, nn

import rgcn

RELATIONS = ["binds", "repels", "near"]
NODES = 8  # per graph


def draw_graph(generator: torch.Generator) -> tuple[Tensor, int]:
    """Return triples [n, 3] and the label: with label 1, three of the "binds" edges form a cycle."""
    triples = torch.stack([torch.randint(0, n, (7,), generator=generator) for n in (NODES, 3, NODES)], 1)
    answer = int(torch.randint(0, 2, (), generator=generator))
    a, b, c = torch.randperm(NODES, generator=generator)[:3].tolist()
    planted = [(a, 0, b), (b, 0, c), (c, 0, a) if answer else (a, 0, c)]
    return torch.cat([triples, torch.tensor(planted)]), answer


def batch(graphs: list[tuple[Tensor, int]]) -> tuple[rgcn.RelationalAdjacency, Tensor, Tensor]:
    """Return one operator for all graphs, the graph of each node [num_nodes], and the labels [num_graphs]."""
    shifted = [triples + torch.tensor([i * NODES, 0, i * NODES]) for i, (triples, _) in enumerate(graphs)]
    size = len(graphs) * NODES
    adjacency = rgcn.RelationalAdjacency.from_triples(torch.cat(shifted), size, len(RELATIONS))
    return adjacency, torch.arange(size) // NODES, torch.tensor([answer for _, answer in graphs])


class GraphClassifier(nn.Module):
    """Three convolutions, the mean over the nodes of a graph, and two logits per graph."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(width))
        self.layers = nn.ModuleList(
            rgcn.nn.RelationalGraphConv(width, width, len(RELATIONS), decomposition=rgcn.nn.Basis(4)) for _ in range(3)
        )
        self.head = nn.Linear(width, 2)

    def forward(self, adjacency: rgcn.RelationalAdjacency, graph: Tensor) -> Tensor:
        x = self.start.expand(len(graph), -1)
        for layer in self.layers:
            x = x + torch.relu(layer(x, adjacency))
        graphs = int(graph[-1]) + 1
        return self.head(x.new_zeros(graphs, x.shape[1]).index_add(0, graph, x) / NODES)


def main(batches: int = 150) -> float:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = GraphClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number in range(1, batches + 1):
        adjacency, graph, answer = batch([draw_graph(generator) for _ in range(64)])
        loss = nn.functional.cross_entropy(model(adjacency, graph), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 50 == 0:
            print(f"batch {number:4}   {graph[-1] + 1} graphs, {adjacency.num_edges:,} edges   loss {loss:.3f}")
    model.eval()
    adjacency, graph, answer = batch([draw_graph(generator) for _ in range(500)])
    with torch.no_grad():
        accuracy = float((model(adjacency, graph).argmax(1) == answer).float().mean())
    print(f"\naccuracy on 500 new graphs: {accuracy:.0%} (by chance: 50%)")
    return accuracy


if __name__ == "__main__":
    main()

"""Write a training loop with the parts of the library: graph, operator, receptive field and layers, in plain PyTorch.

    python examples/training_loop_of_your_own.py

It does what `rgcn.NodeClassifier` does. Change the loss, the schedule, the layers or the dropout as you like.
"""

import torch
from torch import Tensor, nn

import rgcn
from rgcn.adjacency import ReceptiveField


class TwoLayers(nn.Module):
    """The paper's node classifier: one-hot nodes, a hidden layer, a logit per class."""

    def __init__(self, adjacency: rgcn.RelationalAdjacency, num_relations: int, classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.first = rgcn.nn.RelationalGraphConv.one_hot(adjacency, hidden, decomposition=rgcn.nn.Basis(20))
        self.second = rgcn.nn.RelationalGraphConv(hidden, classes, num_relations, decomposition=rgcn.nn.Basis(20))

    def forward(self, field: ReceptiveField) -> Tensor:
        """Return logits [num_labels, num_classes]."""
        first, second = field.layers
        hidden = torch.relu(self.first(None, first))
        return self.second(nn.functional.dropout(hidden, 0.3, self.training), second)


def main(epochs: int = 60) -> float:
    torch.manual_seed(0)
    kg = rgcn.load("world")
    adjacency = rgcn.RelationalAdjacency.from_graph(kg)
    # The operator restricted to what two layers must compute for the labeled nodes, made once for all epochs.
    splits = {name: [torch.from_numpy(part.copy()) for part in kg.labels.of(name)] for name in ("train", "valid")}
    fields = {
        name: ReceptiveField.of(adjacency, nodes, 2).with_all_inputs(kg.num_nodes)
        for name, (nodes, _) in splits.items()
    }
    field = fields["train"]
    print(
        f"{adjacency.num_edges:,} edges; the training labels need {field.layers[0].num_edges:,} of them in the first "
        f"layer and {field.layers[1].num_edges:,} in the second"
    )

    model = TwoLayers(adjacency, kg.num_relations, kg.labels.num_classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best = 0.0
    for epoch in range(1, epochs + 1):
        model.train()
        loss = nn.functional.cross_entropy(model(fields["train"]), splits["train"][1], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if epoch % 10 == 0:
            model.eval()
            with torch.no_grad():
                right = float((model(fields["valid"]).argmax(1) == splits["valid"][1]).float().mean())
            best = max(best, right)
            print(f"epoch {epoch:3}   loss {loss:.3f}   validation accuracy {right:.0%}")
    return best


if __name__ == "__main__":
    main()

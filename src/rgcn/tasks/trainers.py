"""Training steps: of node classification, on all training labels or a batch of them and what these can hear; of link
prediction, on a batch of edges, with the edges that carry messages and a loss it knows nothing about."""

import itertools
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.shared_field import SharedField
from rgcn.axis_tables import ENCODERS, OBJECTIVES, OPTIMIZERS, SAMPLERS
from rgcn.config import LinkModelConfig, LinkTrainingConfig, NodeModelConfig, NodeTrainingConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.kernels.dispatch import own_threads
from rgcn.memory import available_bytes
from rgcn.nn.decompositions import BasisRows
from rgcn.nn.encoders import EmbeddingEncoder, RgcnEncoder, VectorEncoder
from rgcn.nn.heads import NodeNetwork
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.link_network import BYTES_A_NUMBER, LinkNetwork, VectorNetwork
from rgcn.objectives import AmongAllNodes, Objective, ObjectivePlan, SelfAdversarial
from rgcn.optim import Adam, RowOptimizer
from rgcn.processes import processes
from rgcn.sampling import EdgeSampler, FieldSampler, HiddenTriples, ScatteredEdges, prefetched
from rgcn.sampling.edges import seed_word
from rgcn.sharding import Shards
from rgcn.tasks.estimator import choose_device, edge_rule
from rgcn.tasks.fitting import StepRecording, Trainer
from rgcn.words import memory

# Triples a step where a network hides what it is asked about, and no number is set.
ASKED_AT_ONCE = 64
# Where nodes have vectors and no number is set: a graph of so many triples is learned from as a whole, of a larger one
# as many a step as the original takes.
WHOLE, A_PART = 500_000, 30_000
# For classes a graph of so many triples is always heard as a whole; a larger one where the field of all training labels
# fits into memory, an edge of which takes so much, and there are not more of these.
WHOLE_TRIPLES, BYTES_AN_EDGE, WHOLE_LABELS = 2_000_000, 200, 50_000
LABELS_AT_ONCE, FAN_OUT = 10_000, 10  # where it is not
FEW = 10  # times the edges of a batch
# Numbers of a node table from which on only rows that a step touches move: Adam reads and writes gigabytes for each.
LARGE_TABLE = 100_000_000
SHARDS_SINCE = 2, 9  # the PyTorch whose distributed checkpoints are safetensors


class NodeTrainer(Trainer):
    """Takes steps on the training labels: on all of them, or on batches of them in their receptive fields.

    All randomness but that of dropout follows from its own generator; or, of batches, from the seed and the number of
    the step alone: the order of an epoch, which is cut into equal parts, the edges drawn, and those dropped.

    both  takes one step and returns (loss, logits) from before it
    """

    network: NodeNetwork
    optimizer: Adam

    def __init__(
        self,
        network: NodeNetwork,
        adjacency: RelationalAdjacency,
        labels: NodeLabels,
        model: NodeModelConfig,
        training: NodeTrainingConfig,
        seed: int,
        shards: Shards | None = None,
    ) -> None:
        self.network, self.adjacency, self.training, self.seed = network, adjacency, training, seed
        self.group, self.shards, device = processes(), shards, adjacency.device
        self.draws_alike = shards is not None
        (nodes, self.target), (valid, self.valid_target) = (
            [torch.from_numpy(part.copy()).to(device) for part in labels.of(split)] for split in ("train", "valid")
        )
        balanced = training.class_weights != "none"
        self.class_weight = _class_weights(self.target, labels.num_classes) if balanced else None
        self.num_valid = len(valid)
        if self.group.together:
            mine, watched = self._mine(nodes), self._mine(valid)
            valid, self.valid_target = valid[watched], self.valid_target[watched]
        self.valid: ReceptiveField | Tensor | None = valid if self.num_valid else None
        self.optimizer = _optimizer(network, training)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.both: Callable[[], tuple[Tensor, Tensor]] = self._step
        self.field: ReceptiveField | None = None  # of all training labels
        self._logits: Tensor | None = None
        self.nodes, self.steps_taken, self._asked, self._whole = nodes.cpu(), 0, self.target, self.target
        if training.in_batches(len(nodes)):
            self.steps_an_epoch = -(-len(nodes) // (training.batch_labels or len(nodes)))
            rates = training.edge_dropout, training.self_loop_dropout
            self.sampler = FieldSampler(adjacency, model.layers, training.fan_out, rates, shards)
            self._batches, self._order = self.batches(), (-1, nodes)
            return
        if self.group.together:
            nodes, self._asked = nodes[mine], self.target[mine]
        self.field = self._field(nodes, model.layers)
        if shards is None and isinstance(network.source, EmbeddingInput) and network.source.rows.all_trained:
            # Every row is updated anyway: no copy of some of them.
            self.field = self.field.reading_all(adjacency.num_sources)
        self.valid = self._field(valid, model.layers) if self.num_valid else None
        if device.type == "cuda" and not self.group.together:
            # The graph never changes, so that from the fourth step on the GPU replays the step as a whole.
            self.both = StepRecording(self._step, self.generator, device)
        elif self.optimizer.tables and not self.group.together:
            self.both = self._on_own_threads

    def _mine(self, nodes: Tensor) -> Tensor:
        """int64: which of the labelled nodes this process computes; those that it holds, or its share of all."""
        if self.shards is not None:
            return torch.nonzero(self.shards.mine(nodes)).squeeze(1)
        return torch.arange(len(nodes), device=nodes.device)[self.group.share(len(nodes))]

    def _field(self, nodes: Tensor, num_layers: int) -> ReceptiveField:
        if self.shards is not None:
            return SharedField.of_own(self.adjacency, self.shards, nodes, num_layers)
        return ReceptiveField.of(self.adjacency, nodes, num_layers)

    def running(self) -> AbstractContextManager[object]:
        return nullcontext() if self.field is not None else closing(self._batches)

    def batches(self) -> Generator[tuple[ReceptiveField, Tensor, Tensor], None, None]:
        """The batches to come, without end, drawn ahead on the CPU; not where processes draw them together."""
        numbered = (self.batch(number) for number in itertools.count(self.steps_taken))
        yield from numbered if self.shards is not None else prefetched(numbered)

    def batch(self, number: int) -> tuple[ReceptiveField, Tensor, Tensor]:
        """The field of a step, the classes of its nodes, and those of all processes' nodes of this step."""
        epoch, part = divmod(number, self.steps_an_epoch)
        if self._order[0] != epoch:
            shuffling = torch.Generator().manual_seed(int(seed_word((self.seed, epoch, 1))[0]) >> 1)
            self._order = epoch, torch.randperm(len(self.nodes), generator=shuffling)
        labels = self._order[1].tensor_split(self.steps_an_epoch)[part]
        whole = self.target[labels.to(self.target.device)]
        if self.group.together:
            labels = labels[self._mine(self.nodes[labels])]
        nodes, order = torch.sort(self.nodes[labels])  # neighbors in a table are read together
        field, device = self.sampler.field(nodes, (self.seed, number, 2)), self.target.device
        field = field if device.type == "cpu" else field.to(device)
        return field, self.target[labels[order].to(device)], whole

    def step(self) -> Tensor:
        self.network.train()
        loss, self._logits = self.both()
        return loss

    def figures(self) -> dict[str, float]:
        """Accuracy on the labels of the last step, before it."""
        assert self._logits is not None
        return {"train_accuracy": self._accuracy(self._logits, self._asked, len(self._whole))}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        self.steps_taken = steps_taken  # which batches are to come follows from it

    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the validation labels, with all edges."""
        assert self.valid is not None
        self.network.eval()
        with torch.no_grad():
            if isinstance(self.valid, ReceptiveField):
                logits = self.network(self.valid)
            elif self.shards is not None:
                depth = len(self.network.layers)
                logits = self.network(SharedField.of_own(self.adjacency, self.shards, self.valid, depth))
            else:
                logits = self.network.head(self.network.states_of(self.adjacency, self.valid))
        if self.group.together:
            loss = F.cross_entropy(logits, self.valid_target, reduction="sum").double()
            self.group.add(loss)
            mean = float(loss) / self.num_valid
        else:
            mean = float(F.cross_entropy(logits, self.valid_target))
        return {"loss": mean, "accuracy": self._accuracy(logits, self.valid_target, self.num_valid)}

    def _on_own_threads(self) -> tuple[Tensor, Tensor]:
        with own_threads():
            return self._step()

    def _step(self) -> tuple[Tensor, Tensor]:
        rates = self.training.edge_dropout, self.training.self_loop_dropout
        kept = self.field
        if kept is None:
            kept, self._asked, self._whole = next(self._batches)
        elif any(rates):
            kept = kept.masked(self.adjacency.draw_mask(*rates, generator=self.generator))
        self.optimizer.zero_grad(set_to_none=True)
        with self.optimizer.factoring() if not self.group.together else nullcontext():
            logits = self.network(kept)
        if self.group.together:  # each its part of the mean over all
            weights = None if self.class_weight is None else self.class_weight[self._whole].sum()
            total = len(self._whole) if weights is None else weights
            loss = F.cross_entropy(logits, self._asked, weight=self.class_weight, reduction="sum") / total
        else:
            loss = F.cross_entropy(logits, self._asked, weight=self.class_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        loss = self.added_up(loss)
        self.optimizer.update()
        return loss, logits.detach()

    def _accuracy(self, logits: Tensor, target: Tensor, count: int) -> float:
        """The share of right answers, of so many in all processes."""
        right = logits.argmax(1) == target
        if not self.group.together:
            return float(right.float().mean())
        found = right.sum()
        self.group.add(found)
        return int(found) / count


def _optimizer(network: NodeNetwork, settings: NodeTrainingConfig) -> Adam:
    """Adam. λ Σ w² has the gradient 2 λ w, which is what Adam's own decay adds: no pass over the weights for it."""
    decay, penalty = settings.weight_decay, settings.l2_penalty
    first = {id(p) for name, p in network.layers[0].named_parameters() if penalty and not name.endswith("bias")}
    penalized = [p for p in network.parameters() if id(p) in first]
    others = [p for p in network.parameters() if id(p) not in first]
    groups = [{"params": penalized, "weight_decay": decay + 2 * penalty}, {"params": others, "weight_decay": decay}]
    tables = [module.rows for module in network.modules() if isinstance(module, BasisRows)]
    return Adam([group for group in groups if group["params"]], lr=settings.learning_rate, tables=tables)


def _class_weights(classes: Tensor, num_classes: int) -> Tensor:
    """[classes]: n / (classes · count); a class without training labels weighs nothing."""
    counts = np.bincount(classes.cpu().numpy(), minlength=num_classes)
    weights = np.where(counts > 0, len(classes) / (num_classes * np.maximum(counts, 1)), 0.0)
    return torch.tensor(weights, dtype=torch.get_default_dtype(), device=classes.device)


class Stepping:
    """How weights are moved: the optimizer, its rates, and where everything random of a step comes from."""

    def __init__(self, network: LinkNetwork, training: LinkTrainingConfig, device: torch.device, seed: int) -> None:
        self.generator = torch.Generator(device=device).manual_seed(seed)
        kind: type[Any] = OPTIMIZERS.find(training.optimizer or "adam")
        how: dict[str, Any] = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
        if issubclass(kind, RowOptimizer):
            how["node_tables"] = network.node_tables()
        self.optimizer = kind(network.parameters(), **how)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]  # before any schedule
        if device.type == "cuda":  # a recorded step reads each rate from a tensor, whatever it holds at the time
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = torch.tensor(rate, device=device)

    def scale_rates(self, factor: float) -> None:
        """Set the learning rate of each parameter group to its initial rate times a factor."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor


class StoredTriples:
    """The triples of a stored graph where they lie: a batch reads its own, and nobody holds them all."""

    is_cuda = False

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph, self.device = graph, torch.device("cpu")

    def __len__(self) -> int:
        return len(self.graph)

    def __getitem__(self, numbers: Tensor) -> Tensor:
        return torch.from_numpy(self.graph.triples_at(numbers.numpy()))

    @classmethod
    def suit(cls, graph: KnowledgeGraph, network: LinkNetwork, training: LinkTrainingConfig) -> bool:
        """Whether steps look at nothing but their batches: no list is kept of all triples, none is asked for others."""
        asks = training.filtered_negatives or issubclass(OBJECTIVES.find(training.objective), AmongAllNodes)
        scattered = training.batch_edges is not None and issubclass(SAMPLERS.find(training.sampler), ScatteredEdges)
        here = graph.stored and graph.triple_splits is None and choose_device(training.device).type == "cpu"
        known = issubclass(OBJECTIVES.find(training.objective), SelfAdversarial) and training.shared_by is None
        return here and scattered and not (asks or known or network.hides_asked)


class LinkTrainer(Trainer):
    """Draws batches and takes steps. All randomness follows from the seed; nothing waits for the device in a step."""

    def __init__(
        self,
        network: LinkNetwork,
        triples: Any,
        adjacency: RelationalAdjacency,
        model: LinkModelConfig,
        training: LinkTrainingConfig,
        seed: int,
        stepping: Stepping | None = None,
        asked: Tensor | None = None,
    ) -> None:
        """triples int64 [T, 3]: the training triples, on the device, or `StoredTriples`; adjacency: their operator.

        stepping  what several trainers of the same weights share
        asked     int64 [A, 3]: triples that steps ask about, one as often as it stands there; None: all of them
        """
        self.network: LinkNetwork = network
        self.group = processes()
        self.draws_alike = isinstance(network, VectorNetwork)
        self.asked: Any = triples if asked is None else asked
        self.triples: Any = triples  # read by what needs all of them, or not at all
        self.adjacency, self.model, self.training = adjacency, model, training
        self.num_nodes, self.num_relations = adjacency.num_sources, adjacency.structure.num_data_relations
        self.stepping = stepping or Stepping(network, training, triples.device, seed)
        self.generator, self.optimizer = self.stepping.generator, self.stepping.optimizer
        # To compute all nodes costs more than to find those of a batch, where these are few of a large graph.
        few = 0 < FEW * (training.batch_edges or 0) < self.num_nodes and triples.device.type == "cpu"
        network.only_asked = isinstance(self.optimizer, RowOptimizer) or few
        plan = ObjectivePlan(training, self.triples, self.num_nodes, self.num_relations)
        objective: type[Objective] = OBJECTIVES.find(training.objective)
        self.objective = objective.build(plan)
        self.hidden: HiddenTriples | None = None  # where a triple may be heard while it is asked about
        batch = training.batch_edges
        if network.hides_asked:
            self.hidden = HiddenTriples(self.triples, self.num_nodes, self.num_relations, training.hidden)
            # What is asked about is not heard: something must be left.
            batch = max(1, min(batch or ASKED_AT_ONCE, len(self.asked) // 2))
        most, size = self.objective.most_positives, min(batch or len(self.asked), len(self.asked))
        if most is not None and size > most:
            raise ConfigError(
                f"{training.objective} scores all {self.num_nodes:,} nodes for each of {size:,} triples a step, which "
                f"does not fit: set training.batch_edges to {most:,} or less, or training.objective to self-adversarial"
            )
        self.step_bytes = need = network.step_bytes(self.num_nodes, -(-size // self.group.size))
        available = available_bytes(adjacency.device)
        if available is not None and need > available:
            fits = int(size * available / need)
            raise ConfigError(
                f"a step of {size:,} questions about {self.num_nodes:,} nodes needs about {memory(need)}, and "
                f"{memory(available)} are free: set training.batch_edges to {fits:,} or less"
                if fits
                else f"learning from one question about {self.num_nodes:,} nodes needs about {memory(need // size)}, "
                f"and {memory(available)} are free: train on a machine with more, or with a smaller model.width"
            )
        self.sampler: EdgeSampler | None = None  # where every step sees the whole graph
        if batch is not None:
            sampler: type[EdgeSampler] = SAMPLERS.find(training.sampler)
            every = self.asked.cpu().numpy() if isinstance(self.asked, Tensor) else self.asked.graph._rows
            options = sampler.read_options(training.objective_options).model_dump()
            self.sampler = sampler(every, self.num_nodes, batch, seed, **options)
        # Batches are drawn ahead: where the sampler stood after the batch that was handed out last.
        self.sampler_state = {} if self.sampler is None else self.sampler.state()
        self.steps_taken = 0
        recordable = triples.is_cuda and network.recordable and not self.group.together
        self.recording = StepRecording(self._step, self.generator, triples.device) if recordable else None
        self._batches: Generator[Tensor, None, None] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self.network.train()
        self._batches = self.batches()
        try:
            yield
        finally:
            self._batches.close()
            if self.recording is not None:
                self.recording.forget()

    def losses(self) -> Iterator[Tensor]:
        """Take a step at a time, `epochs` of them, and yield each one's loss: for loops of one's own."""
        with self.running():
            for _ in range(self.training.epochs):
                yield self.step()

    def step(self) -> Tensor:
        if self._batches is None:
            self._batches = self.batches()
        return self.step_on(next(self._batches))

    def state(self) -> dict[str, Any]:
        return dict(self.sampler_state)

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        self.steps_taken, self.sampler_state = steps_taken, dict(state)
        if self.sampler is not None:
            self.sampler.set_state(state)

    def batches(self) -> Generator[Tensor, None, None]:
        """Positive triples int64 [n, 3] on the device, without end: all of them, or drawn ahead on the CPU."""
        if self.sampler is None:
            while True:
                yield self.asked
        sampler, device = self.sampler, self.asked.device
        # What a device draws by itself need not be made ahead. Else its numbers travel: the triples are there.
        at_hand = sampler if device.type != "cpu" and isinstance(sampler, ScatteredEdges) else None

        def draw() -> tuple[Tensor, dict[str, int]]:
            if at_hand is not None:
                return at_hand.on(device), sampler.state()
            numbers = torch.from_numpy(sampler.sample())
            return self.asked[numbers] if device.type == "cpu" else numbers.pin_memory(), sampler.state()

        for batch, self.sampler_state in prefetched(draw) if at_hand is None else iter(draw, None):
            yield batch if batch.ndim == 2 else self.asked[batch.to(device, non_blocking=True)]

    def step_on(self, positives: Tensor) -> Tensor:
        """One step on these positive triples int64 [n, 3]; returns the loss before it."""
        self.stepping.scale_rates(learning_rate_factor(self.training, self.steps_taken))
        self.steps_taken += 1
        if not self.network.training:  # measured in between; what was encoded then is no longer so
            self.network.train()
        return self._step(positives) if self.recording is None else self.recording(positives)

    def _step(self, positives: Tensor) -> Tensor:
        drawn = self.objective.draw(positives, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        by_rows = self.optimizer if isinstance(self.optimizer, RowOptimizer) else None
        heard, count = self.message_graph(positives), len(positives)
        if self.group.together:
            positives, drawn = self.objective.share(positives, drawn, self.group)
        with by_rows.factoring() if by_rows else nullcontext():
            loss = self.objective.loss(self.network, heard, positives, drawn)
        loss = loss if len(positives) == count else loss * (len(positives) / count)
        loss.backward()  # type: ignore[no-untyped-call]
        total = self.added_up(loss)
        if self.training.clip is not None:
            self.clip(self.training.clip)
        self.optimizer.step()
        return total

    def message_graph(self, positives: Tensor) -> RelationalAdjacency | None:
        """The operator of the edges that carry messages in this step.

        Edges are dropped before inverses are added and before normalizing: a dropped edge leaks through neither. They
        are those of the batch; or, where what is asked about must not be heard, all others.
        """
        if not self.network.num_layers:
            return None
        training, on_edges = self.training, self.training.self_loop_dropout_on == "edge"
        loop_rate = training.self_loop_dropout if on_edges else 0.0
        if self.hidden is not None:
            mask = self.adjacency.draw_mask(training.edge_dropout, loop_rate, self.generator)
            mask[: len(self.triples)] *= self.hidden.heard(positives)
            return self.adjacency.masked(mask)
        if self.sampler is None:
            if not (training.edge_dropout or loop_rate):
                return self.adjacency
            mask = self.adjacency.draw_mask(training.edge_dropout, loop_rate, self.generator)
            return self.adjacency.masked(mask)
        keep = max(1, round(len(positives) * (1.0 - training.edge_dropout)))
        order = torch.rand(len(positives), generator=self.generator, device=positives.device).argsort()
        sampled = RelationalAdjacency.from_triples(
            positives.index_select(0, order[:keep]),
            self.num_nodes,
            self.num_relations,
            **edge_rule(self.model),
            transient=True,
            checked=True,  # rows of the training triples; to ask again would wait for the device in every step
            shards=self.network.shards,
        )
        return sampled.masked(sampled.draw_mask(0.0, loop_rate, self.generator)) if loop_rate else sampled


def chosen_at_size(model: LinkModelConfig, training: LinkTrainingConfig, kg: KnowledgeGraph) -> dict[str, Any]:
    """Settings of `training` that nobody has set and a large graph wants: batch_edges, optimizer, tables.

    Edges a step: all, or as many as suit the graph and the memory there is. Sampled edges carry no weights, so that a
    graph with weights is heard as a whole; and a network that hides what it is asked about has a number of its own.
    Where a step sees a part of the edges, of a large table only the rows it touches move: by lazy Adam, or by row-wise
    Adagrad where the table, Adam's moments and the best weights so far would not fit; and where a table and its best
    weights do not, they are on disk.
    """
    if not issubclass(ENCODERS.find(model.encoder), VectorEncoder):
        return {}
    device, batch, chosen = choose_device(training.device), training.batch_edges, dict[str, Any]()
    triples, free = kg.num_of("train"), available_bytes(device)
    if batch is None and kg.edge_weights is None:
        fit = triples if free is None else max(1, free // 2 // (BYTES_A_NUMBER * model.embedding))
        if triples > min(fit, WHOLE):
            chosen["batch_edges"] = batch = min(fit, A_PART)
    numbers = kg.num_nodes * model.embedding if model.input == "embedding" else 0
    tables_that_fit = 4.0 if free is None else free / max(1, 4 * numbers)
    if training.tables == "disk" or (batch is not None and numbers >= LARGE_TABLE):
        if training.optimizer is None:
            chosen["optimizer"] = "lazy-adam" if tables_that_fit >= 4 else "adagrad"
        by_rows = chosen.get("optimizer", training.optimizer) in ("lazy-adam", "adagrad")
        if training.tables is None and by_rows and tables_that_fit < 2 and device.type == "cpu":
            chosen["tables"] = "disk"
    return chosen


def cannot_shard(model: Any, training: Any, kg: KnowledgeGraph) -> str | None:
    """Why processes cannot each hold a part of the nodes; None where they can."""
    if tuple(int(number) for number in torch.__version__.split(".")[:2]) < SHARDS_SINCE:
        return f"PyTorch {torch.__version__} cannot write what processes hold in parts: upgrade it to 2.9 or newer"
    encoder = ENCODERS.find(model.encoder)
    if isinstance(training, NodeTrainingConfig):
        features = model.input != "one-hot" and kg.features is not None
        if not issubclass(encoder, EmbeddingEncoder) and not (issubclass(encoder, RgcnEncoder) and features):
            return f"{model.title} holds rows for pairs of relation and node: train e-rgcn, or on a graph with features"
        return None
    if not issubclass(encoder, VectorEncoder):
        return f"{model.title} holds nothing of nodes, and computes each question over the whole graph"
    if model.input != "embedding":
        return f"{model.title} over one-hot nodes holds rows for pairs of relation and node: set model.input: embedding"
    if issubclass(OBJECTIVES.find(training.objective), AmongAllNodes):
        return f"{training.objective} compares each answer with all nodes: choose sampled-bce or sampled-softmax"
    return None


def held_in_shards(model: Any, training: Any, kg: KnowledgeGraph) -> dict[str, bool]:
    """`sharded` where nobody has set it and several processes begin."""
    if training.sharded is not None or not processes().together:
        return {}
    return {"sharded": cannot_shard(model, training, kg) is None}


def default_batches(model: NodeModelConfig, training: NodeTrainingConfig, graph: KnowledgeGraph) -> dict[str, int]:
    """`batch_labels` and `fan_out` where nobody has set them and the graph wants them; none: a step on all labels."""
    if training.batch_labels or training.fan_out or graph.labels is None or len(graph) <= WHOLE_TRIPLES:
        return {}
    nodes, free = graph.labels.of("train")[0], available_bytes(choose_device(training.device))
    if len(nodes) <= WHOLE_LABELS and (free is None or field_edges(model, graph, nodes) * BYTES_AN_EDGE <= free):
        return {}
    return {"batch_labels": LABELS_AT_ONCE, "fan_out": FAN_OUT}


def field_edges(model: NodeModelConfig, graph: KnowledgeGraph, nodes: NDArray[np.int64]) -> int:
    """How many edges the receptive field of the nodes has in all its layers: counted, nothing is built."""
    wanted, total, (subject, _, object_) = np.zeros(graph.num_nodes, dtype=np.bool_), 0, graph.triples.T
    wanted[nodes] = True
    ends = [(object_, subject), (subject, object_)][: 1 + model.inverse]
    for _ in range(model.layers):
        heard = wanted.copy() if model.self_loops else np.zeros_like(wanted)
        total += int(heard.sum())
        for target, source in ends:
            reaching = wanted[target]
            total += int(reaching.sum())
            heard[source[reaching]] = True
        wanted = heard
    return total


def learning_rate_factor(training: LinkTrainingConfig, step: int) -> float:
    """Factor on the learning rate at a step (from 0).

    >>> cosine = LinkTrainingConfig(epochs=100, schedule="cosine", warmup=10)
    >>> [round(learning_rate_factor(cosine, step), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    if step < training.warmup:
        return (step + 1) / training.warmup
    if training.schedule == "cosine":
        done = (step - training.warmup) / max(1, training.epochs - training.warmup)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    if training.schedule == "step":
        return float(training.step_factor ** ((step - training.warmup) // training.step_every))
    return 1.0

"""Answers of a model whose nodes are divided among processes: each scores its own, and all learn the whole."""

import torch
from torch import Tensor

from rgcn.nn.decoders import Decoder
from rgcn.nn.link_network import VectorScorer
from rgcn.nn.scorer import Questions, Scorer
from rgcn.placement import NodePartition, Placement


class LocalAnswers(VectorScorer):
    """Scores certain questions against the local nodes, by their rows; given [q, d']: vectors of the asked nodes."""

    def __init__(self, decoder: Decoder, nodes: Tensor, given: Tensor) -> None:
        super().__init__(decoder, nodes)
        self.given = given

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        _, relation, for_objects = questions.to(self.device)
        return self.decoder.score_questions(self.given, relation, for_objects, self._among(candidates), out)


class PartitionedScorer(Scorer):
    """Compares vectors [local nodes, d'] of this process; all processes ask the same questions at the same time.

    Callers that only need the scores of local nodes, and sum or merge what follows from them, use `local`.
    """

    in_blocks = True

    def __init__(self, decoder: Decoder, nodes: Tensor, placement: Placement) -> None:
        assert placement.partition is not None
        self.decoder, self.nodes, self.placement = decoder, nodes, placement
        self.partition: NodePartition = placement.partition
        self.num_nodes, self.device = self.partition.num_nodes, nodes.device

    def vectors(self, ids: Tensor) -> Tensor:
        """[n, d']: of nodes int64 [n], wherever they are held."""
        wanted, back = torch.unique(ids.to(self.device), return_inverse=True)
        exchange = self.placement.exchange(wanted)
        return exchange(self.nodes[self.partition.row(exchange.needed)])[back]

    def local(self, questions: Questions) -> LocalAnswers:
        return LocalAnswers(self.decoder, self.nodes, self.vectors(questions.node))

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        partition = self.partition
        asked = torch.arange(self.num_nodes, device=self.device) if candidates is None else candidates.to(self.device)
        mine = partition.is_local(asked)
        found = self.local(questions).scores(questions, partition.row(asked[mine]))
        # Columns in the order of processes, then in that of the candidates.
        columns = self.placement.all_gather(found.T.contiguous()).T
        order = torch.argsort(partition.owner(asked), stable=True)
        every = torch.empty_like(columns) if out is None else out
        return every.index_copy_(1, order, columns.contiguous())

    @torch.no_grad()
    def triple_scores(self, triples: Tensor) -> Tensor:
        mine = triples[self.placement.share(len(triples))].to(self.device)
        subject, relation, object_ = mine.unbind(1)
        ends = self.vectors(torch.cat([subject, object_]))
        return self.placement.all_gather(self.decoder.score(ends[: len(mine)], relation, ends[len(mine) :]))

    def problem(self) -> str | None:
        wrong = not all(bool(torch.isfinite(part).all()) for part in (self.nodes, *self.decoder.parameters()))
        if self.placement.any(wrong)[0]:
            return "the model's numbers are not finite; its training has diverged"
        return super().problem()

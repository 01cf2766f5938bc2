"""Answers of a model whose nodes several processes hold: each scores its own, and all hear the whole."""

import torch
from torch import Tensor

from rgcn.nn.decoders import Decoder
from rgcn.nn.link_network import VectorScorer
from rgcn.scoring import Questions, Scorer
from rgcn.sharding import RowExchange, Shards


class OwnScorer(VectorScorer):
    """Answers to certain questions among own nodes, by their places; given [q, d']: the vectors of what is given."""

    def __init__(self, decoder: Decoder, nodes: Tensor, given: Tensor) -> None:
        super().__init__(decoder, nodes)
        self.given = given

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        _, relation, for_objects = questions.to(self.device)
        return self.decoder.score_questions(self.given, relation, for_objects, self._among(candidates), out)


class SharedScorer(Scorer):
    """Compares vectors [own, d'] of this process's nodes; all processes ask the same at the same time.

    Whoever can do with the scores of own nodes alone, and add or merge what follows from them, asks `own`.
    """

    in_blocks = True
    shards: Shards

    def __init__(self, decoder: Decoder, nodes: Tensor, shards: Shards) -> None:
        self.decoder, self.nodes, self.shards = decoder, nodes, shards
        self.num_nodes, self.device = shards.count, nodes.device

    def vectors(self, ids: Tensor) -> Tensor:
        """[n, d']: of nodes int64 [n], whoever holds them."""
        wanted, back = torch.unique(ids.to(self.device), return_inverse=True)
        exchange = RowExchange.ask(self.shards, wanted)
        return exchange(self.nodes[self.shards.place(exchange.needed)])[back]

    def own(self, questions: Questions) -> OwnScorer:
        return OwnScorer(self.decoder, self.nodes, self.vectors(questions.node))

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        shards = self.shards
        asked = torch.arange(shards.count, device=self.device) if candidates is None else candidates.to(self.device)
        mine = shards.mine(asked)
        own = self.own(questions).scores(questions, shards.place(asked[mine]))
        # Columns in the order of processes, then in that of the candidates.
        columns = shards.group.gather(own.T.contiguous()).T
        order = torch.argsort(shards.owner(asked), stable=True)
        found = torch.empty_like(columns) if out is None else out
        return found.index_copy_(1, order, columns.contiguous())

    @torch.no_grad()
    def triple_scores(self, triples: Tensor) -> Tensor:
        group = self.shards.group
        mine = triples[group.share(len(triples))].to(self.device)
        subject, relation, object_ = mine.unbind(1)
        ends = self.vectors(torch.cat([subject, object_]))
        return group.gather(self.decoder.score(ends[: len(mine)], relation, ends[len(mine) :]))

    def problem(self) -> str | None:
        wrong = not all(bool(torch.isfinite(part).all()) for part in (self.nodes, *self.decoder.parameters()))
        if self.shards.group.any(wrong)[0]:
            return "the model's numbers are not finite; its training has diverged"
        return super().problem()

"""A decoder of your own: ComplEx in ten lines, beside the built-in DistMult, same graph, same training.

    python examples/decoder_of_your_own.py

DistMult cannot tell who exports to whom from who imports: ⟨s, r, o⟩ is the same read backwards. ComplEx can. A bilinear
decoder says what its two queries are; batches, ranking, biases, prediction, explaining and serving follow from them.
"""

import torch
from torch import Tensor

import rgcn
from rgcn.nn.decoders import BilinearDecoder


class ComplEx(BilinearDecoder):
    """f(s, r, o) = Re Σ_i s_i r_i conj(o_i), the first half of each vector real and the second imaginary."""

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        (a, b), (c, d) = subject.chunk(2, dim=1), relation.chunk(2, dim=1)
        return torch.cat([a * c - b * d, a * d + b * c], dim=1)

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        (c, d), (e, f) = relation.chunk(2, dim=1), object.chunk(2, dim=1)
        return torch.cat([c * e + d * f, c * f - d * e], dim=1)


def main(epochs: int = 60) -> dict[str, float]:
    world = rgcn.load("world")
    found = {}
    for name, decoder in (("DistMult", "distmult"), ("ComplEx", ComplEx)):
        predictor = rgcn.LinkPredictor(encoder="none", decoder=decoder, embedding=64, epochs=epochs, seed=0).fit(world)
        figures = predictor.evaluate(world, split="valid")
        found[name] = figures["mrr"]
        exports = predictor.score([("Norway", "exports_to", "Germany"), ("Germany", "exports_to", "Norway")])
        print(f"{name:9} validation MRR {figures['mrr']:.3f}, Hits@10 {figures['hits@10']:.3f}")
        for triple in exports:
            print(f"            {triple.subject} exports to {triple.object}: score {triple.score:.2f}")
    return found


if __name__ == "__main__":
    main()

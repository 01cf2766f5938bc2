"""Write a decoder: ComplEx in ten lines, compared with the built-in DistMult on the same graph.

    python examples/decoder_of_your_own.py

DistMult is symmetric: ⟨s, r, o⟩ is the same for (s, r, o) and (o, r, s). ComplEx is not. A bilinear decoder defines two
queries; batches, ranking, biases, prediction, explanation and serving work with them.
"""

import torch
from torch import Tensor

import rgcn
from rgcn.nn.decoders import BilinearDecoder


class ComplEx(BilinearDecoder):
    """f(s, r, o) = Re Σ_i s_i r_i conj(o_i), where the first half of each vector is the real part."""

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        (a, b), (c, d) = subject.chunk(2, dim=1), relation.chunk(2, dim=1)
        return torch.cat([a * c - b * d, a * d + b * c], dim=1)

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        (c, d), (e, f) = relation.chunk(2, dim=1), object.chunk(2, dim=1)
        return torch.cat([c * e + d * f, c * f - d * e], dim=1)


def main(steps: int = 60) -> dict[str, float]:
    world = rgcn.load("world")
    mrr = {}
    for name, decoder in (("DistMult", "distmult"), ("ComplEx", ComplEx)):
        predictor = rgcn.LinkPredictor(encoder="none", decoder=decoder, embedding=64, steps=steps, seed=0).fit(world)
        metrics = predictor.evaluate(world, split="valid")
        mrr[name] = metrics["mrr"]
        exports = [("Norway", "exports_to", "Germany"), ("Germany", "exports_to", "Norway")]
        print(f"{name:9} validation MRR {metrics['mrr']:.3f}, Hits@10 {metrics['hits@10']:.3f}")
        for (subject, _, country), score in zip(exports, predictor.score_triples(exports), strict=True):
            print(f"            {subject} exports to {country}: score {score:.2f}")
    return mrr


if __name__ == "__main__":
    main()

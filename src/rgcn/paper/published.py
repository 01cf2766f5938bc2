"""Every figure the paper states, and where in the paper it stands.

"Relational Graph Convolutional Networks: A Closer Look" (Thanapalasingam, van Berkel, Bloem, Groth). TF-RGCN are the
figures of the original paper (Schlichtkrull et al.) as quoted there, Torch-RGCN those of its own code.

The caption of Table 2 calls its ± standard deviations. They are standard errors: with 36 test nodes, ten runs of which
nine get 32 right and one 33 have the mean 89.17 %, the deviation 0.88 and the error 0.28, which is what e-RGCN's row on
AIFB says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ORIGINAL, PAPER = "TF-RGCN", "Torch-RGCN"
MINUTE = 60.0
# The tasks the paper trains for, and what its tables of them are.
NODE, LINK = "node-classification", "link-prediction"
TASKS: Mapping[str, str] = {
    NODE: "Accuracy on AIFB, MUTAG, BGS and AM (Table 2): RGCN and e-RGCN, trained now.",
    LINK: "MRR and hits on WN18 and FB-Toy (Tables 5 and 6): RGCN and c-RGCN, trained now. Hours without a GPU.",
}


@dataclass(frozen=True)
class Figure:
    """A published figure.

    value  None where the paper gives words only
    by     whose figure it is: TF-RGCN, Torch-RGCN, e-RGCN or c-RGCN; empty where it is of no model
    where  in the paper
    error  standard error, where one is given
    words  what the paper says instead of a number, or with another unit than we would
    """

    value: float | None
    by: str
    where: str
    error: float | None = None
    words: str | None = None


# -- data sets ---------------------------------------------------------------------------------------------

NODE_DATASETS: Mapping[str, Mapping[str, int]] = {
    "aifb": {"entities": 8_285, "relations": 45, "edges": 29_043, "labeled": 176, "classes": 4},
    "mutag": {"entities": 23_644, "relations": 23, "edges": 74_227, "labeled": 340, "classes": 2},
    "bgs": {"entities": 87_688, "relations": 70, "edges": 230_698, "labeled": 146, "classes": 2},
    "am": {"entities": 246_728, "relations": 122, "edges": 875_946, "labeled": 1_000, "classes": 11},
}
PRUNED = ("bgs", "am")  # counted after entities more than two hops from a labeled one were taken away
LINK_DATASETS: Mapping[str, Mapping[str, int]] = {
    "wn18": {
        "entities": 40_943,
        "relations": 18,
        "train edges": 141_442,
        "valid edges": 5_000,
        "test edges": 5_000,
    },
    "fb-toy": {"entities": 280, "relations": 112, "train edges": 4_565, "valid edges": 109, "test edges": 152},
}
NODE_DATASETS_TABLE, LINK_DATASETS_TABLE = "Table 1", "Table 3"
TITLES: Mapping[str, str] = {
    "aifb": "AIFB",
    "mutag": "MUTAG",
    "bgs": "BGS",
    "am": "AM",
    "wn18": "WN18",
    "fb-toy": "FB-Toy",
    "rgcn": "RGCN",
    "e-rgcn": "e-RGCN",
    "c-rgcn": "c-RGCN",
    "distmult": "DistMult",
}

# -- node classification: test accuracy, percent, mean and standard error of 10 runs -------------------------

_T2 = "Table 2"
ACCURACY: Mapping[str, tuple[Figure, ...]] = {
    "rgcn/nc-aifb": (Figure(95.56, PAPER, _T2, 0.61), Figure(95.83, ORIGINAL, _T2, 0.62)),
    "e-rgcn/nc-aifb": (Figure(89.17, "e-RGCN", _T2, 0.28),),
    "rgcn/nc-mutag": (Figure(73.38, PAPER, _T2, 0.60), Figure(73.23, ORIGINAL, _T2, 0.48)),
    "e-rgcn/nc-mutag": (Figure(71.03, "e-RGCN", _T2, 0.58),),
    "rgcn/nc-bgs": (Figure(82.76, PAPER, _T2, 0.89), Figure(83.10, ORIGINAL, _T2, 0.80)),
    "e-rgcn/nc-bgs": (Figure(81.72, "e-RGCN", _T2, 0.53),),
    "rgcn/nc-am": (Figure(89.19, PAPER, _T2, 0.35), Figure(89.29, ORIGINAL, _T2, 0.35)),
    "e-rgcn/nc-am": (Figure(89.04, "e-RGCN", _T2, 0.25),),
}

# -- link prediction: filtered, test split -------------------------------------------------------------------

METRICS = ("mrr", "hits@1", "hits@3", "hits@10")


def _ranking(
    by: str, where: str, values: tuple[float, ...], errors: tuple[float, ...] | None = None
) -> dict[str, Figure]:
    given = errors or (None,) * len(values)
    return {m: Figure(v, by, where, e) for m, v, e in zip(METRICS, values, given, strict=True)}


# {configuration: a dictionary {metric: figure} for each published row}
RANKING: Mapping[str, tuple[Mapping[str, Figure], ...]] = {
    "rgcn/lp-wn18": (
        _ranking(PAPER, "Table 5", (0.749, 0.590, 0.908, 0.939)),
        _ranking(ORIGINAL, "Table 5", (0.814, 0.686, 0.928, 0.955)),
    ),
    "c-rgcn/lp-wn18": (_ranking("c-RGCN", "Table 5", (0.717, 0.558, 0.867, 0.933)),),
    "rgcn/lp-fb-toy": (  # mean and standard error of 10 runs
        _ranking(PAPER, "Table 6", (0.486, 0.352, 0.540, 0.799), (0.009, 0.011, 0.009, 0.008)),
        _ranking(ORIGINAL, "Table 6", (0.432, 0.293, 0.482, 0.768), (0.008, 0.007, 0.011, 0.010)),
    ),
}

# What the paper and the configurations published with it say of these runs, where ours may differ. The text of Section
# 6.2 gives FB-Toy's encoder two layers, the published configuration one.
_LINK_COMMON: Mapping[str, Any] = {
    "model.layers": 1,
    "model.activated_input": True,
    "model.separate_inverse_bases": False,
    "model.coefficient_init": "same",
    "model.normalization": "relation",
    "training.learning_rate": 0.01,
    "training.schedule": "constant",
    "training.clip": None,
    "training.self_loop_dropout_on": "edge",
    "training.evaluate_every": None,
}
DESCRIBED: Mapping[str, Mapping[str, Any]] = {
    "rgcn/lp-wn18": {**_LINK_COMMON, "model.self_loop_apart": False, "training.epochs": 7_000},
    "c-rgcn/lp-wn18": {**_LINK_COMMON, "training.epochs": 2_000},
    "rgcn/lp-fb-toy": {**_LINK_COMMON, "training.epochs": 12_000},
}

# -- parameters and times ------------------------------------------------------------------------------------

# Percent of RGCN's parameters. The paper does not say of which data set.
E_RGCN_SHARE = Figure(8.0, "e-RGCN", "Section 5.2", words="8 %")
C_RGCN_SHARE = Figure(None, "c-RGCN", "Sections 6.3 and 7.1", words="fewer than RGCN")

LINK_EPOCHS_TIMED = 7_000
GPU, CPU = "one GTX 1080 Ti", "12 cores"
# {configuration: seconds of training and inference, 7,000 epochs}
LINK_TIMES: Mapping[str, Figure] = {
    "rgcn/lp-wn18": Figure(2_407 * MINUTE, PAPER, "Section 7.2", words="2,407 min"),
    "c-rgcn/lp-wn18": Figure(53 * MINUTE, "c-RGCN", "Section 7.2"),
}
# {configuration: seconds of training on a CPU}
NODE_TIMES: Mapping[str, Figure] = {
    "rgcn/nc-aifb": Figure(45.0, PAPER, "Section 5.3"),
    "rgcn/nc-am": Figure(20 * MINUTE, PAPER, "Section 5.3"),
}
NODE_TIME_ON_GPU = Figure(None, PAPER, "Sections 5.3 and 7.2", words="a few minutes")
FREEBASE_TIME = Figure(None, PAPER, "Section 6.2, footnotes", words="3 to 5 days")
DISTMULT_TIME = Figure(None, "DistMult", "Section 6.2", words="well under an hour")

# -- intermediate tensors of the link predictor on FB-Toy, first forward pass ---------------------------------

STATISTICS = ("min", "max", "mean", "std")


@dataclass(frozen=True)
class PublishedTensor:
    """A row of Table 4: (min, max, mean, std) of Torch-RGCN, and of TF-RGCN."""

    name: str
    shape: str
    torch_rgcn: tuple[float, float, float, float]
    tf_rgcn: tuple[float, float, float, float]
    is_output: bool = False
    tf_rgcn_inverse: tuple[float, float, float, float] | None = None  # the original holds inverses' blocks apart


TENSORS_TABLE = "Table 4"
TENSORS = (
    PublishedTensor(
        "node embeddings, initial",
        "280 × 500",
        (-0.48939, 0.48641, 0.00029, 0.10765),
        (-0.45209, 0.45702, -0.00004, 0.10697),
    ),
    PublishedTensor(
        "node embeddings, output",
        "280 × 500",
        (0.0, 0.51221, 0.04290, 0.06273),
        (0.0, 0.47124, 0.04318, 0.06301),
        is_output=True,
    ),
    PublishedTensor(
        "blocks, initial",
        "224 × 100 × 5 × 5",
        (-1.28504, 1.26404, 0.00001, 0.27715),
        (-1.38892, 1.47686, 0.00007, 0.27726),
        tf_rgcn_inverse=(-1.20551, 1.38728, -0.00008, 0.27692),
    ),
    PublishedTensor(
        "self-loop, initial",
        "500 × 500",
        (-1.20324, 1.16375, -0.00095, 0.27755),
        (-1.23380, 1.30949, -0.00049, 0.27716),
    ),
    PublishedTensor(
        "convolution, output",
        "280 × 500",
        (-2.75152, 2.63124, 0.00799, 0.53759),
        (-2.58617, 2.43774, 0.02317, 0.51760),
        is_output=True,
    ),
    PublishedTensor(
        "DistMult relations, initial",
        "112 × 500",
        (-3.97444, 3.95794, -0.00186, 0.99851),
        (-4.12359, 4.89700, -0.00947, 0.99675),
    ),
    PublishedTensor(
        "DistMult, output",
        "3300",
        (-30.75097, 25.89389, 0.78507, 7.27595),
        (-27.21030, 27.08858, 0.03524, 7.75823),
        is_output=True,
    ),
)

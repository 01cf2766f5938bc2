"""Reproduction of the paper: its published results, our results, and whether they agree."""

from collections.abc import Mapping

# The tasks of the paper, and its tables about them.
NODE, LINK = "node-classification", "link-prediction"
TASKS: Mapping[str, str] = {
    NODE: "Accuracy on AIFB, MUTAG, BGS and AM (Table 2): RGCN and e-RGCN, trained now.",
    LINK: "MRR and hits on WN18 and FB-Toy (Tables 5 and 6): RGCN and c-RGCN, trained now. Hours without a GPU.",
}

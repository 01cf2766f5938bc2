"""Every axis of the house with its table of names: to add a member is one file, and one line here.

Who adds from outside writes no line: a class, a dotted name, or an entry point of the axis' group does (`axes`). A
member is written as text and imported when it is chosen, so that `config` knows every name and no room behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.axes import Axis

if TYPE_CHECKING:
    from rgcn.data.readers import TripleReader
    from rgcn.runs.tracking.base import RunTracker

READERS: Axis[TripleReader] = Axis(
    "reader",
    "rgcn.data.readers:TripleReader",
    {
        "nt": "rgcn.data.rdf:NTriplesReader",
        "nq": "rgcn.data.rdf:NQuadsReader",
        "ttl": "rgcn.data.rdf:TurtleReader",
        "trig": "rgcn.data.rdf:TriGReader",
        "rdf": "rgcn.data.rdf:RdfXmlReader",
        "jsonld": "rgcn.data.rdf:JsonLdReader",
        "tsv": "rgcn.data.tables:TsvReader",
        "csv": "rgcn.data.tables:CsvReader",
        "parquet": "rgcn.data.tables:ParquetReader",
    },
)

TRACKERS: Axis[RunTracker] = Axis(
    "tracker",
    "rgcn.runs.tracking.base:RunTracker",
    {
        "tensorboard": "rgcn.runs.tracking.tensorboard:TensorBoardTracker",
        "mlflow": "rgcn.runs.tracking.mlflow:MlflowTracker",
        "wandb": "rgcn.runs.tracking.wandb:WandbTracker",
    },
)

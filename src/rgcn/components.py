"""Every axis of the house with its table of names: to add a member is one file, and one line here.

Who adds from outside writes no line: a class, a dotted name, or an entry point of the axis' group does (`axes`). A
member is written as text and imported when it is chosen, so that `config` knows every name and no room behind it.
"""

from rgcn.plugins import Axis

ENCODERS = Axis(
    "encoder",
    "rgcn.nn.encoders:Encoder",
    {
        "none": "rgcn.nn.encoders:PlainEncoder",
        "rgcn": "rgcn.nn.encoders:RgcnEncoder",
        "c-rgcn": "rgcn.nn.encoders:CompressionEncoder",
        "e-rgcn": "rgcn.nn.encoders:EmbeddingEncoder",
        "path": "rgcn.nn.path_network:PathEncoder",
        "universal": "rgcn.nn.universal_network:UniversalEncoder",
        "popularity": "rgcn.nn.popularity:PopularityEncoder",
    },
)
DECODERS = Axis("decoder", "rgcn.nn.decoders:Decoder", {"distmult": "rgcn.nn.decoders:DistMult"})
HEADS = Axis(
    "head", "rgcn.nn.heads:Head", {"convolution": "rgcn.nn.heads:ConvolutionHead", "linear": "rgcn.nn.heads:LinearHead"}
)
OBJECTIVES = Axis(
    "objective",
    "rgcn.training.objectives:Objective",
    {
        "sampled-bce": "rgcn.training.objectives:SampledCrossEntropy",
        "self-adversarial": "rgcn.training.objectives:SelfAdversarial",
        "sampled-softmax": "rgcn.training.objectives:SampledSoftmax",
        "softmax": "rgcn.training.objectives:SoftmaxCrossEntropy",
        "bce": "rgcn.training.objectives:BinaryCrossEntropy",
    },
)
SAMPLERS = Axis(
    "sampler",
    "rgcn.sampling:EdgeSampler",
    {
        "neighborhood": "rgcn.sampling.edges:NeighborhoodEdges",
        "uniform": "rgcn.sampling.edges:UniformEdges",
        "shuffled": "rgcn.sampling.edges:ShuffledEdges",
        "scattered": "rgcn.sampling.edges:ScatteredEdges",
    },
)
OPTIMIZERS = Axis(
    "optimizer",
    "torch.optim:Optimizer",
    {
        "adam": "rgcn.training.optimizers:Adam",
        "lazy-adam": "rgcn.training.optimizers:LazyAdam",
        "adagrad": "rgcn.training.optimizers:RowAdagrad",
    },
)
TASKS = Axis(
    "task",
    "rgcn.models.task:Task",
    {
        "node-classification": "rgcn.models.tasks:NodeClassification",
        "link-prediction": "rgcn.models.tasks:LinkPrediction",
        "classification-by-links": "rgcn.models.tasks:ClassificationByLinks",
        "pretraining": "rgcn.models.tasks:Pretraining",
    },
)
READERS = Axis(
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
ATTRIBUTE_SOURCES = Axis(
    "attribute source", "rgcn.data.attributes:AttributeSource", {"table": "rgcn.data.node_tables:TableAttributes"}
)
TRACKERS = Axis(
    "tracker",
    "rgcn.runs.tracking:RunTracker",
    {
        "tensorboard": "rgcn.runs.tracking_services:TensorBoardTracker",
        "mlflow": "rgcn.runs.tracking_services:MlflowTracker",
        "wandb": "rgcn.runs.tracking_services:WandbTracker",
    },
)

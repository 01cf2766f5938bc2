"""A trained model as a folder: JSON for its settings, safetensors for its weights, and the graph it was trained on."""

from __future__ import annotations

import json
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from rgcn.conversion import convert_weight_names, converted_training
from rgcn.data.graph_store import load_graph, read_json, report_damage, require_file, save_graph
from rgcn.errors import DataError
from rgcn.models.task import task_of
from rgcn.nn import row_tables
from rgcn.nn.decompositions.matrices import OneHotBlockWeights
from rgcn.plugins import TASKS
from rgcn.system.atomic_files import replace_atomically, write_atomically
from rgcn.system.formatting import format_bytes
from rgcn.training.plan import choose_device
from rgcn.version import __version__

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator

Model = TypeVar("Model", bound="Estimator")

FORMAT_VERSION, MIN_FORMAT_VERSION = 3, 2
REQUIRED_KEYS = {"graph": str, "settings": dict, "task": str}
MAKING_FUNCTIONS = {"empty", "full", "ones", "rand", "randn", "zeros"}
DRAWING_FUNCTIONS = {"uniform_", "normal_", "mul_"}
MIN_NUMBERS = 1 << 26  # that any model may make; beyond it, one number for each byte of its files
MAX_TENSORS = 10_000  # a network of many layers makes hundreds


def save_model(model: Estimator, folder: str | Path) -> None:
    """Write a fitted model into a folder. Classes are named, no code is saved.

    If the model is sharded, all processes must call it; rank 0 writes what a single process would.

    Args:
        model: The fitted model.
        folder: The folder; existing files are replaced.
    """
    weights = dict(row_tables.gather_weights(model.network_, model.placement))
    model.placement.on_main(lambda: _write(model, Path(folder), weights))


def _write(model: Estimator, target: Path, weights: dict[str, Tensor]) -> None:
    save_graph(model.graph_, target / "graph")
    replace_atomically(target / "weights.safetensors", partial(row_tables.write_tensors, weights))
    about = {"format": "rgcn-model", "version": FORMAT_VERSION, "task": model.task, "rgcn": __version__}
    about |= {"settings": model.settings_, "graph": model.graph_.fingerprint, "beside": model.extra_state()}
    write_atomically(target / "model.json", json.dumps(about, indent=2) + "\n")


def load_model(folder: str | Path, *, device: str = "auto") -> Estimator:
    """Read a model of any task.

    Args:
        folder: The folder that `save` wrote, or that of a finished run.
        device: Where to compute: "cpu", "cuda", "cuda:1", or "auto".

    Raises:
        DataError: The folder holds no model, or a damaged one.

    Example:
        >>> import rgcn, tempfile
        >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c")])
        >>> folder = tempfile.mkdtemp()
        >>> rgcn.LinkPredictor("distmult", embedding=4, steps=1).fit(kg).save(folder)
        >>> rgcn.load_model(folder)
        LinkPredictor('distmult', fitted on KnowledgeGraph(3 nodes, 1 relation, 2 triples))
    """
    source = Path(folder)
    if not (source / "model.json").exists() and (source / "model" / "model.json").exists():
        source = source / "model"
    task = _read_about(source)["task"]
    if (problem := TASKS.problem(task)) is not None:
        raise DataError(f"{source / 'model.json'}: a model of an unknown task, {task!r}: {problem}")
    return load_as(source, task_of(task).estimator_class, device)


def load_as(folder: str | Path, kind: type[Model], device: str = "auto") -> Model:
    """Read a model as an estimator of a class.

    Args:
        folder: The folder that `save_model` wrote.
        kind: The class of the estimator.
        device: Where to compute, whatever the model was trained on.

    Raises:
        DataError: The folder holds no model, a damaged one, or one of another task.
    """
    source = Path(folder)
    about, file = _read_about(source), source / "model.json"
    if about["task"] != kind.task:
        raise DataError(f"{source}: holds a model of {about['task']}, not of {kind.task}")
    graph = load_graph(source / "graph")
    if graph.fingerprint != about["graph"]:
        raise DataError(
            f"{source}: the graph in the folder is not the one the model was saved with (other fingerprint)"
        )
    weights = require_file(source / "weights.safetensors")
    with report_damage(f"{file}: damaged, its settings make no model"), AllocationLimit(source):
        settings = converted_training(about["settings"], kind.training_section.model_fields)
        model = kind.from_settings({**settings, "device": device})
        model._build_saved(graph)
    with report_damage(f"{weights}: damaged, or of another model"):
        place, tensors = choose_device(model.training.device), convert_weight_names(row_tables.read_tensors(weights))
        if model._stored_edges is not None and not row_tables.partitions_by_name(model.network_):
            resize_tables(model.network_, tensors)
        tensors = row_tables.arrange_weights(model.network_, tensors)
        tensors = {name: tensor.to(place) for name, tensor in tensors.items()}
        model.network_.load_state_dict(tensors, assign=True)
    model.network_.eval()
    try:
        model.restore_extra_state(about.get("beside", {}))  # missing in folders of older versions
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{file}: damaged, the values of `beside` are wrong ({error})") from error
    return model


def resize_tables(network: Any, tensors: dict[str, Any]) -> None:
    """Give the tables of a network the sizes they have in a file, instead of computing which rows were trained.

    Raises:
        ValueError: The parts of a table do not fit each other, or the module that looks rows up in it.
    """
    for path, module in list(network.named_modules()):
        if isinstance(module, OneHotBlockWeights):
            module.key = tensors[f"{path}.key"]
        if not isinstance(module, row_tables.RowTable):
            continue
        trained, still, position = (tensors[f"{path}.{part}"] for part in ("trained", "still", "position"))
        owner = network.get_submodule(path.rpartition(".")[0])
        rows = len(owner.key) if isinstance(owner, OneHotBlockWeights) else len(module)
        widths = {tuple(part.shape[1:]) for part in (trained, still, module.trained)}
        if not len(trained) + len(still) == len(position) == rows or len(widths) > 1:
            raise ValueError(f"the parts of {path} do not fit each other")
        module.trained, module.still, module.position = Parameter(trained), still, position


def _read_about(source: Path) -> dict[str, Any]:
    about = read_json(source / "model.json", "rgcn-model", FORMAT_VERSION, MIN_FORMAT_VERSION)
    wrong = [key for key, kind in REQUIRED_KEYS.items() if not isinstance(about.get(key), kind)]
    if wrong:
        raise DataError(f"{source / 'model.json'}: damaged, {', '.join(wrong)} is missing or of the wrong type")
    return about


class AllocationLimit(TorchFunctionMode):
    """Refuses to make tensors that a model in this folder cannot need, before their memory is allocated.

    Every number of a network is in its file of weights, and tensors made on the way are of a similar size. So settings
    that ask for far more were manipulated or damaged. Random initial values are not drawn, since weights follow.

    Args:
        folder: The model's folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self.folder, self.numbers_left, self.tensors_left = folder, MIN_NUMBERS + stored, MAX_TENSORS

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in DRAWING_FUNCTIONS:  # memory that is never written to takes none
            return args[0]
        if name.removeprefix("new_") in MAKING_FUNCTIONS:
            size = kwargs.get("size") or args[1 if name.startswith("new_") else 0 :]
            size = size[0] if size and isinstance(size[0], (tuple, list)) else size
            wanted = prod(number for number in size if isinstance(number, int))
            if wanted > self.numbers_left or not self.tensors_left:
                raise DataError(
                    f"{self.folder}: damaged or manipulated: its settings ask for a network far larger than its weights"
                    + (f", with a table of {format_bytes(4 * wanted)}" if self.tensors_left else "")
                )
            self.numbers_left, self.tensors_left = self.numbers_left - wanted, self.tensors_left - 1
        return func(*args, **kwargs)

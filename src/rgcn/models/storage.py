"""A trained model as a folder: JSON for what it is, safetensors for its numbers, the graph it knows."""

from __future__ import annotations

import json
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from rgcn.conversion import converted_names
from rgcn.data.graph_store import damage_told, load_graph, plain_file, read_json, save_graph
from rgcn.errors import DataError
from rgcn.models.task import task_of
from rgcn.nn.decompositions.matrices import PairRows
from rgcn.nn.row_tables import RowTable, arranged, mapped_tensors, partitions_by_name, whole_weights, write_tensors
from rgcn.plugins import TASKS
from rgcn.system.atomic_files import replace_atomically, write_atomically
from rgcn.system.formatting import memory
from rgcn.training.plan import choose_device
from rgcn.version import __version__

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator

Model = TypeVar("Model", bound="Estimator")

FORMAT_VERSION, OLDEST = 3, 2
KEYS = {"graph": str, "settings": dict, "task": str}
MAKING = {"empty", "full", "ones", "rand", "randn", "zeros"}
DRAWING = {"uniform_", "normal_", "mul_"}
LEAST_NUMBERS = 1 << 26  # what a small model may make; a large one makes a number for each byte of its files, too
MOST_TENSORS = 10_000  # a network of many layers makes hundreds


def save_model(model: Estimator, folder: str | Path) -> None:
    """Write a fitted model into a folder. Its settings name the classes it needs; no code is kept.

    Several processes call it together, and the main one writes what a single process would.
    """
    weights = dict(whole_weights(model.network_, model.placement))
    model.placement.on_main(lambda: _write(model, Path(folder), weights))


def _write(model: Estimator, target: Path, weights: dict[str, Tensor]) -> None:
    save_graph(model.graph_, target / "graph")
    replace_atomically(target / "weights.safetensors", partial(write_tensors, weights))
    about: dict[str, Any] = {
        "format": "rgcn-model",
        "version": FORMAT_VERSION,
        "task": model.task,
        "rgcn": __version__,
        "settings": model.get_params(),
        "graph": model.graph_.fingerprint,
        "beside": model.beside(),
    }
    write_atomically(target / "model.json", json.dumps(about, indent=2) + "\n")


def load_model(folder: str | Path, *, device: str = "auto") -> Estimator:
    """The model in a folder that `save` wrote, or in the folder of a finished run, whatever its task.

    >>> import rgcn, tempfile
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c")])
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.LinkPredictor("distmult", embedding=4, epochs=1).fit(kg).save(folder)
    >>> rgcn.load_model(folder)
    LinkPredictor('distmult', fitted on KnowledgeGraph(3 nodes, 1 relation, 2 triples))
    """
    source = Path(folder)
    if not (source / "model.json").exists() and (source / "model" / "model.json").exists():
        source = source / "model"
    task = _about(source)["task"]
    if TASKS.problem(task) is not None:
        raise DataError(f"{source / 'model.json'}: a model of an unknown task, {task!r}: {TASKS.problem(task)}")
    return load_as(source, task_of(task).estimator_class, device)


def load_as(folder: str | Path, kind: type[Model], device: str = "auto") -> Model:
    """Read what `save_model` wrote. The device is chosen anew: a model trained on a GPU loads anywhere."""
    source = Path(folder)
    about = _about(source)
    if about["task"] != kind.task:
        raise DataError(f"{source}: holds a model of {about['task']}, not of {kind.task}")
    graph = load_graph(source / "graph")
    if graph.fingerprint != about["graph"]:
        raise DataError(f"{source}: the graph beside the model is another than it was saved with (fingerprints differ)")
    weights = plain_file(source / "weights.safetensors")
    with damage_told(f"{source / 'model.json'}: damaged, its settings make no model"), WithinBounds(source):
        model = kind.from_settings({**about["settings"], "device": device})
        model.divide_nodes(graph)
        model.restore_saved(graph)
    with damage_told(f"{weights}: damaged, or of another model"):
        place, kept = choose_device(model.training.device), converted_names(mapped_tensors(weights))
        if model._in_place is not None and not partitions_by_name(model.network_):
            take_tables(model.network_, kept)
        kept = {name: tensor.to(place) for name, tensor in arranged(model.network_, kept).items()}
        model.network_.load_state_dict(kept, assign=True)
    model.network_.eval()
    try:
        model.restore_beside(about.get("beside", {}))  # folders of older versions have none
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{source / 'model.json'}: damaged, what belongs beside the weights ({error})") from error
    return model


def take_tables(network: Any, kept: dict[str, Any]) -> None:
    """Give tables the sizes that they have in a file: which rows were trained, nobody computed again.

    ValueError where a table's parts do not fit each other, or the module that looks rows up in it.
    """
    for path, module in list(network.named_modules()):
        if isinstance(module, PairRows):
            module.key = kept[f"{path}.key"]
        if not isinstance(module, RowTable):
            continue
        trained, still, position = (kept[f"{path}.{part}"] for part in ("trained", "still", "position"))
        owner = network.get_submodule(path.rpartition(".")[0])
        rows = len(owner.key) if isinstance(owner, PairRows) else len(module)
        widths = {tuple(part.shape[1:]) for part in (trained, still, module.trained)}
        if not len(trained) + len(still) == len(position) == rows or len(widths) > 1:
            raise ValueError(f"the parts of {path} do not fit each other")
        module.trained, module.still, module.position = Parameter(trained), still, position


def _about(source: Path) -> dict[str, Any]:
    about = read_json(source / "model.json", "rgcn-model", FORMAT_VERSION, OLDEST)
    wrong = [key for key, kind in KEYS.items() if not isinstance(about.get(key), kind)]
    if wrong:
        raise DataError(f"{source / 'model.json'}: damaged, it lacks {', '.join(wrong)}, or has something else there")
    return about


class WithinBounds(TorchFunctionMode):
    """Refuses to make tensors that a model in this folder cannot need, before their memory is taken.

    Every number of a network is in its file of weights, and what is made on the way is of a like size. So settings that
    ask for far more are not the model's own. Nor is anything drawn.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self.folder, self.numbers_left, self.tensors_left = folder, LEAST_NUMBERS + stored, MOST_TENSORS

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in DRAWING:  # the weights are about to be read: memory that is never written to takes none
            return args[0]
        if name.removeprefix("new_") in MAKING:
            size = kwargs.get("size") or args[1 if name.startswith("new_") else 0 :]
            size = size[0] if size and isinstance(size[0], (tuple, list)) else size
            wanted = prod(number for number in size if isinstance(number, int))
            if wanted > self.numbers_left or not self.tensors_left:
                raise DataError(
                    f"{self.folder}: damaged, or not ours: its settings ask for a network far larger than its weights"
                    + (f", with a table of {memory(4 * wanted)}" if self.tensors_left else "")
                )
            self.numbers_left, self.tensors_left = self.numbers_left - wanted, self.tensors_left - 1
        return func(*args, **kwargs)

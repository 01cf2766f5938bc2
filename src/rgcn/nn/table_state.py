"""Weights of tables with a row for each node: which rows a network holds, and how weights written elsewhere fit them.

The rows of a table may be stored in the two parts of a `RowTable`; in the order of nodes, without a `position` beside
them; or, by each of several processes, those of its local nodes alone. Weights written in one of these ways can be
loaded in any other.
"""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor, nn

from rgcn.nn.inputs import NodeTable, RowTable
from rgcn.nn.table_files import room_for
from rgcn.placement import NodePartition, Placement


def partitions_by_name(network: nn.Module) -> dict[str, NodePartition]:
    """The parameters of which this process holds the rows of its local nodes alone."""
    tables = ((path, module) for path, module in network.named_modules() if isinstance(module, NodeTable))
    return {f"{path}.trained": table.partition for path, table in tables if table.partition is not None}


def local_row_parameters(network: nn.Module) -> list[nn.Parameter]:
    """The same parameters themselves."""
    return [network.get_parameter(name) for name in partitions_by_name(network)]


def whole_weights(network: nn.Module, placement: Placement, in_order: bool = False) -> Iterator[tuple[str, Tensor]]:
    """A network's state by name, as a single process has it; where rows are divided only the main process gets them.

    in_order: with all rows of a table in their order, whether trained or not. All processes go through it together.
    """
    partitions, tables = partitions_by_name(network), _row_tables(network)
    for name, tensor in sorted(network.state_dict().items()):
        path, _, part = name.rpartition(".")
        table = tables.get(path)
        if name in partitions:
            shape = (partitions[name].num_nodes, *tensor.shape[1:])
            place = room_for(shape, tensor.dtype) if placement.is_main else None
            gathered = placement.gather_rows(tensor, place)
            yield name, tensor[:0] if gathered is None else gathered
        elif table is None or (table.partition is None and not in_order):
            yield name, tensor
        elif part == "position":
            yield name, torch.arange(len(table) if table.partition is None else table.partition.num_nodes)
        else:
            yield name, table.values() if part == "trained" else tensor[:0]


def arranged(network: nn.Module, kept: Mapping[str, Tensor], local: Collection[str] = ()) -> dict[str, Tensor]:
    """Stored weights by name, with the rows of tables as this network has them. ValueError where they are of another.

    local  parameters of which `kept` has the rows of this process's local nodes already
    """
    found, tables = dict(kept), _row_tables(network)
    for name, places in moved_rows(network, kept, local).items():
        path = name.rpartition(".")[0]
        table = tables.get(path)
        if table is None:
            found[name] = kept[name][places]
        else:
            rows, count = rows_at(places, kept[name], kept.get(f"{path}.still")), len(table.trained)
            found[name], found[f"{path}.still"] = rows[:count], rows[count:]
            found[f"{path}.position"] = table.position
    parts = {f"{path}.{part}": getattr(table, part) for path, table in tables.items() for part in ("still", "position")}
    return parts | found


def moved_rows(network: nn.Module, kept: Mapping[str, Tensor], local: Collection[str] = ()) -> dict[str, Tensor]:
    """By parameter, where each row that this network has lies in `kept`: int64, counted through both parts, trained
    rows first. Only of parameters whose rows lie elsewhere than here."""
    found, partitions, tables = {}, partitions_by_name(network), _row_tables(network)
    for name in sorted({*partitions, *(f"{path}.trained" for path in tables)} & set(kept) - set(local)):
        path = name.rpartition(".")[0]
        table, position, still = tables.get(path), kept.get(f"{path}.position"), kept.get(f"{path}.still")
        if name in partitions:
            rows, count = partitions[name].nodes, partitions[name].num_nodes
        elif table is None or (table.all_trained if position is None else torch.equal(position, table.position.cpu())):
            continue
        else:
            rows, count = torch.argsort(table.position).cpu(), len(table)
        places = rows if position is None else position[rows]
        held = len(kept[name]) + (0 if still is None else len(still))
        if held != count or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < held):
            raise ValueError(f"{name} has {held:,} rows there, and {count:,} here")
        found[name] = places
    return found


def rows_at(places: Tensor, trained: Tensor, still: Tensor | None = None) -> Tensor:
    """Rows of a table held in two parts; zeros for those of a second part that is not given."""
    places = places.to(trained.device)
    first = places < len(trained)
    if bool(first.all()):
        return trained[places]
    found = trained.new_zeros(len(places), *trained.shape[1:])
    found[first] = trained[places[first]]
    if still is not None:
        found[~first] = still[places[~first] - len(trained)]
    return found


def _row_tables(network: nn.Module) -> dict[str, RowTable]:
    return {path: module for path, module in network.named_modules() if isinstance(module, RowTable)}

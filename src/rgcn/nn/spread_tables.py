"""Tables whose rows several processes hold: which they are, all of their rows, and weights that lie otherwise.

A table's rows lie whole, in the parts of a `RowTable`; whole, in their order, without a `position` beside them; or as
one process's own. What one way of training wrote, another goes on with.
"""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor, nn

from rgcn.nn.inputs import RowTable
from rgcn.nn.table_files import room_for
from rgcn.sharding import Shards


def shards_by_name(network: nn.Module) -> dict[str, Shards]:
    """The parameters of which this process has its own rows alone."""
    found = {name: getattr(parameter, "shards", None) for name, parameter in network.named_parameters()}
    found |= {f"{path}.trained": table.shards for path, table in _tables(network).items()}
    return {name: shards for name, shards in found.items() if shards is not None}


def whole_weights(network: nn.Module, in_order: bool = False) -> Iterator[tuple[str, Tensor]]:
    """A network's state by name, as one process alone has it; only the first process gets rows that are spread.

    in_order: with all rows of a table in their order, whether trained or not. All processes go through it together.
    """
    shards, tables = shards_by_name(network), _tables(network)
    for name, tensor in sorted(network.state_dict().items()):
        path, _, part = name.rpartition(".")
        table = tables.get(path)
        if name in shards:
            spread = shards[name]
            place = room_for((spread.count, *tensor.shape[1:]), tensor.dtype) if spread.group.first else None
            gathered = spread.gathered(tensor, place)
            yield name, tensor[:0] if gathered is None else gathered
        elif table is None or (table.shards is None and not in_order):
            yield name, tensor
        elif part == "position":
            yield name, torch.arange(len(table) if table.shards is None else table.shards.count)
        else:
            yield name, table.values() if part == "trained" else tensor[:0]


def arranged(network: nn.Module, kept: Mapping[str, Tensor], own: Collection[str] = ()) -> dict[str, Tensor]:
    """Kept weights by name, with the rows of tables as this network has them. ValueError where they are of another.

    own  parameters of which `kept` has this process's rows already
    """
    found, tables = dict(kept), _tables(network)
    for name, places in moved_rows(network, kept, own).items():
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


def moved_rows(network: nn.Module, kept: Mapping[str, Tensor], own: Collection[str] = ()) -> dict[str, Tensor]:
    """By parameter, where each of the rows that this network has lies in `kept`: int64, trained ones first, counted
    through both parts. Only of those that lie otherwise."""
    found, shards, tables = {}, shards_by_name(network), _tables(network)
    for name in sorted({*shards, *(f"{path}.trained" for path in tables)} & set(kept) - set(own)):
        path = name.rpartition(".")[0]
        table, position, still = tables.get(path), kept.get(f"{path}.position"), kept.get(f"{path}.still")
        if name in shards:
            rows, count = shards[name].own, shards[name].count
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
    """Rows of a table held in two parts; zeros for those of a second part that nobody gives."""
    places = places.to(trained.device)
    first = places < len(trained)
    if bool(first.all()):
        return trained[places]
    found = trained.new_zeros(len(places), *trained.shape[1:])
    found[first] = trained[places[first]]
    if still is not None:
        found[~first] = still[places[~first] - len(trained)]
    return found


def _tables(network: nn.Module) -> dict[str, RowTable]:
    return {path: module for path, module in network.named_modules() if isinstance(module, RowTable)}

"""Compare the Triton kernels with definitions in float64, on a GPU if there is one, else in Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from rgcn.kernels import gpu, reference
from rgcn.kernels.layer_update import UpdateInputs, UpdateSettings, reference_update
from rgcn.kernels.sparse import Pairs, SparsePattern

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BOUND = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 1e-2, torch.float16: 2e-3}
WIDTHS_AND_TYPES = [
    (1, torch.float32),
    (3, torch.float64),
    (10, torch.bfloat16),
    (16, torch.float32),
    (200, torch.float32),
    (500, torch.float64),
]
each_width = pytest.mark.parametrize(("width", "kind"), WIDTHS_AND_TYPES)


class Draw:
    """Random inputs from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def ids(self, size: int, high: int, kind: torch.dtype = torch.int64) -> Tensor:
        return torch.randint(high, (size,), generator=self.generator).to(DEVICE, kind)

    def numbers(self, *shape: int, kind: torch.dtype) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64).to(DEVICE, kind)

    def pattern(self, rows: int, columns: int, entries: int, hub: int, kind: torch.dtype) -> SparsePattern:
        """Repeated entries, empty rows (every other one) and one row of `hub` entries more."""
        row = torch.cat([self.ids(entries, rows) // 2 * 2, torch.full((hub,), rows // 3, device=DEVICE)]).sort().values
        pattern = SparsePattern.from_sorted_rows(row, self.ids(len(row), columns), (rows, columns))
        return SparsePattern(pattern.pointer.to(kind), pattern.column.to(kind), columns)

    def pairs(self, nodes: int, relations: int, edges: int, hub: int, node_major: bool, kind: torch.dtype) -> Pairs:
        """Isolated nodes (every third), relations without pairs (odd ones), and `hub` edges of one relation."""
        node = torch.cat([self.ids(edges, nodes) // 3 * 3, self.ids(hub, nodes) // 3 * 3])
        relation = torch.cat([self.ids(edges, relations) // 2 * 2, torch.zeros(hub, dtype=torch.int64, device=DEVICE)])
        key = node * relations + relation if node_major else relation * nodes + node
        key, edge_pair = torch.unique(key, return_inverse=True)
        node, relation = (key // relations, key % relations) if node_major else (key % nodes, key // nodes)
        pairs = Pairs.of(relation, node, edge_pair, nodes, relations, node_major)
        ids = (tensor.to(kind) for tensor in (pairs.relation, pairs.node, pairs.pointer, pairs.edge_pair))
        return Pairs(*ids, nodes, relations)


def check(name: str, *arguments: object) -> None:
    """Check a kernel: equal to the definition in float64, with the type of the inputs, and deterministic."""
    floats = [a for a in arguments if isinstance(a, Tensor) and a.is_floating_point()]
    exact = getattr(reference, name)(
        *(a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in arguments)
    )
    out, again = (getattr(gpu, name)(*arguments) for _ in range(2))
    assert out.dtype == floats[0].dtype
    assert out.shape == exact.shape
    assert torch.equal(out, again)
    assert (out.double() - exact).norm() <= BOUND[out.dtype] * exact.norm()


@each_width
@pytest.mark.parametrize(("weighted", "index"), [(False, torch.int64), (True, torch.int32)])
def test_gather_sum(width: int, kind: torch.dtype, weighted: bool, index: torch.dtype) -> None:
    draw = Draw(width)
    # Rows, entries, hub: small, because the interpreter is slow.
    sizes = (30, 60, 3000) if width in (3, 16) else (8, 12, 66)
    pattern = draw.pattern(sizes[0], 17, *sizes[1:], kind=index)
    value = draw.numbers(pattern.num_entries, kind=kind) if weighted else None
    check("gather_sum", pattern, value, draw.numbers(17, width, kind=kind))


@each_width
def test_gather_product_sum(width: int, kind: torch.dtype) -> None:
    draw = Draw(width)
    pattern = draw.pattern(rows=8, columns=17, entries=12, hub=66, kind=torch.int32)
    value = None if width == 3 else draw.numbers(pattern.num_entries, kind=kind)
    index = draw.ids(pattern.num_entries, 5)
    left, x = draw.numbers(5, width, kind=kind), draw.numbers(17, width, kind=kind)
    check("gather_product_sum", pattern, value, index, left, x)


@each_width
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_entry_product(width: int, kind: torch.dtype, index: torch.dtype) -> None:
    draw = Draw(width)
    i, j, k = (draw.ids(41, 9, index) for _ in range(3))
    left, middle, right = (draw.numbers(9, width, kind=kind) for _ in range(3))
    check("entry_product", i, left, None, None, k, right)
    check("entry_product", i, left, j, middle, k, right)


@pytest.mark.parametrize(
    ("width", "kind", "bases", "index"),
    [
        (1, torch.float32, 40, torch.int32),
        (3, torch.float64, 5, torch.int64),
        (10, torch.bfloat16, 40, torch.int32),
        (16, torch.float32, 1, torch.int64),
        (16, torch.float32, 40, torch.int32),
        (200, torch.float32, 5, torch.int64),
        (500, torch.float64, 3, torch.int32),
    ],
)
def test_operations_on_bases(width: int, kind: torch.dtype, bases: int, index: torch.dtype) -> None:
    draw = Draw(width + bases)
    pairs = draw.pairs(nodes=14, relations=9, edges=20, hub=0, node_major=True, kind=index)
    coefficients, tensor = draw.numbers(9, bases, kind=kind), draw.numbers(14, bases, width, kind=kind)
    rows = draw.numbers(len(pairs), width, kind=kind)
    check("combine_bases", coefficients, tensor, pairs)
    check("spread_bases", coefficients, rows, pairs)
    check("coefficient_gradient", tensor, rows, pairs)


def test_coefficient_gradient_in_chunks_of_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(0)
    pairs = draw.pairs(nodes=400, relations=7, edges=200, hub=300, node_major=True, kind=torch.int32)
    tensor, rows = draw.numbers(400, 7, 3, kind=torch.float32), draw.numbers(len(pairs), 3, kind=torch.float32)
    monkeypatch.setattr(gpu, "MAX_PARTIAL_BYTES", 3 * 4 * len(pairs))  # three bases at a time
    check("coefficient_gradient", tensor, rows, pairs)


@pytest.mark.parametrize(
    ("blocks", "width_in", "width_out", "kind"),
    [
        (1, 1, 1, torch.float32),
        (130, 1, 1, torch.float32),
        (130, 1, 1, torch.bfloat16),
        (20, 5, 5, torch.float32),
        (20, 5, 5, torch.float64),
        (3, 16, 4, torch.bfloat16),
        (2, 1, 7, torch.float64),
        (1, 3, 100, torch.float32),
        (1, 16, 16, torch.float32),
        (1, 16, 16, torch.float64),
        (1, 16, 16, torch.bfloat16),
        (1, 16, 16, torch.float16),
        (2, 20, 33, torch.float32),
        (1, 200, 33, torch.float32),
    ],
)
def test_grouped_product_and_outer(blocks: int, width_in: int, width_out: int, kind: torch.dtype) -> None:
    draw = Draw(blocks)
    pairs = draw.pairs(nodes=300, relations=5, edges=12, hub=90, node_major=False, kind=torch.int32)
    x, gradient = (draw.numbers(len(pairs), blocks, width, kind=kind) for width in (width_in, width_out))
    weight = draw.numbers(5, blocks, width_in, width_out, kind=kind)
    check("grouped_product", x, weight, pairs)
    check("grouped_product", gradient, weight.transpose(2, 3), pairs)
    check("grouped_outer", x, gradient, pairs)


def test_grouped_outer_with_large_partial_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(0)
    pairs = draw.pairs(nodes=1500, relations=5, edges=30, hub=1500, node_major=False, kind=torch.int64)
    x, gradient = (draw.numbers(len(pairs), 1, 3, kind=torch.float32) for _ in range(2))
    monkeypatch.setattr(gpu, "MAX_PARTIAL_BYTES", 400)
    check("grouped_outer", x, gradient, pairs)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("known", [False, True])
def test_count_ranks(kind: torch.dtype, known: bool) -> None:
    draw = Draw(3)
    scores = (draw.numbers(4, 3000, kind=torch.float64) * 10).round().to(kind)  # many ties
    scores[1, 7] = torch.nan
    row, target = draw.ids(9, 4), draw.ids(9, 3000)
    target[0], row[0] = 7, 1
    begin, end = torch.zeros_like(row), torch.zeros_like(row)
    answers = draw.ids(1500, 3000)
    answers[3] = target[2]
    if known:
        begin, end = begin + 2, begin + draw.ids(9, 1400) + 2
        end[2] = 300
    true = scores[row, target]
    out = gpu.count_ranks(scores, true, 0, row, target, begin, end, answers if known else torch.zeros(0))
    for i in range(len(row)):
        values, own = scores[row[i]], scores[row[i], target[i]]
        others = answers[begin[i] : end[i]]
        others = values[others[others != target[i]]]
        expected = [(values > own).sum(), (values == own).sum(), (others > own).sum(), (others == own).sum()]
        expected[1] += bool(own.isnan())  # the true answer equals itself, even if it is NaN
        assert out[i].tolist() == [int(number) for number in (*expected, values.isnan().sum())]
    # for a part of the nodes, where its score was rounded differently: it still counts as equal to itself
    part, narrow = scores[:, 1000:2500].contiguous(), answers.clamp(1000, 2499)
    for first, among, known_ones in ((0, scores, answers), (1000, part, narrow)):
        given = (among, true + 1, first, row, target, begin, end, known_ones)
        assert torch.equal(gpu.count_ranks(*given), reference.count_ranks(*given))


def test_count_ranks_of_views() -> None:
    draw = Draw(5)
    scores = draw.numbers(3, 50, kind=torch.float32)
    row, target, none = torch.arange(3, device=DEVICE), draw.ids(6, 40)[::2], torch.zeros(3, device=DEVICE).long()
    view = scores[:, 5:45]
    out, same = (
        gpu.count_ranks(s, s[row, target], 0, row, target, none, none, none) for s in (view, view.contiguous())
    )
    assert torch.equal(out, same)


def test_empty_inputs() -> None:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape, device=DEVICE)

    def ids(size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, device=DEVICE)

    for rows in (0, 5):
        pattern = SparsePattern(ids(rows + 1), ids(0), 3)
        for width in (0, 4):
            check("gather_sum", pattern, None, zeros(3, width))
            check("gather_product_sum", pattern, zeros(0), ids(0), zeros(2, width), zeros(3, width))
    full = SparsePattern(ids(2).copy_(torch.tensor([0, 3])), ids(3), 1)
    check("gather_sum", full, None, zeros(1, 0))
    for width in (0, 4):
        check("entry_product", ids(0), zeros(2, width), None, None, ids(0), zeros(2, width))
        check("entry_product", ids(0), zeros(2, width), ids(0), zeros(2, width), ids(0), zeros(2, width))
        for groups in (0, 3):
            pairs = Pairs(ids(0), ids(0), ids(groups + 1), ids(0), groups, 3)
            check("combine_bases", zeros(3, 2), zeros(groups, 2, width), pairs)
            check("spread_bases", zeros(3, 2), zeros(0, width), pairs)
            check("coefficient_gradient", zeros(groups, 2, width), zeros(0, width), pairs)
            pairs = Pairs(ids(0), ids(0), ids(groups + 1), ids(0), 3, groups)
            check("grouped_product", zeros(0, 2, 4), zeros(groups, 2, 4, width), pairs)
            check("grouped_outer", zeros(0, 2, 4), zeros(0, 2, width), pairs)
    assert gpu.count_ranks(zeros(2, 3), zeros(0), 0, *(ids(0).long() for _ in range(4)), ids(0)).shape == (0, 5)


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize(
    ("width", "bases", "kind"), [(1, 3, torch.float32), (10, 5, torch.float32), (70, 2, torch.float64)]
)
def test_adam_bases(width: int, bases: int, kind: torch.dtype, decay: float) -> None:
    draw = Draw(width)
    pairs = draw.pairs(14, 6, 40, 9, node_major=True, kind=torch.int32)
    start = draw.numbers(14, bases, width, kind=torch.float64)
    exact = [start.clone(), torch.zeros_like(start), torch.zeros_like(start)]
    ours = [tensor.to(kind) for tensor in exact]
    settings = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": decay}
    for number in range(1, 4):
        coefficients, rows = draw.numbers(6, bases, kind=kind), draw.numbers(len(pairs), width, kind=kind)
        step = torch.tensor(float(number), device=DEVICE)
        gradient = reference.FactoredGradient(coefficients.double(), rows.double(), pairs)
        reference.adam_bases(*exact, step, gradient, reference.AdamSettings(lr=0.01, **settings))
        lr = 0.01 if number == 2 else torch.tensor(0.01, device=DEVICE)  # as on a GPU, where the rate is a tensor
        gradient = reference.FactoredGradient(coefficients, rows, pairs)
        gpu.adam_bases(*ours, step, gradient, reference.AdamSettings(lr=lr, **settings))
    for got, expected in zip(ours, exact, strict=True):
        assert (got.double() - expected).norm() <= BOUND[kind] * expected.norm()


@pytest.mark.parametrize("counts", [[3], [0, 0], [64, 65, 0, 1, 300], [1] * 40, [0, 128, 129]])
def test_row_pieces_computed_on_the_device_equal_the_reference(counts: list[int]) -> None:
    member = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).to(DEVICE)
    patterns = [
        SparsePattern.from_sorted_rows(member, member * 0, (len(counts), 1), transient=transient)
        for transient in (True, False)
    ]
    quick, plain = (gpu.row_pieces(pattern) for pattern in patterns)
    assert quick.num_slots >= plain.num_slots
    for one, other in ((quick.parts, plain.parts), (quick.long_rows, plain.long_rows)):
        rows = [sorted(row for row in part.T.tolist() if row[0] < len(counts)) for part in (one, other)]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("repeats", [1, 4])
def test_gather_product_sum_of_wide_rows_with_a_repeated_table(repeats):
    draw = Draw(repeats)
    pattern = draw.pattern(6, 9, 20, 70, torch.int32)
    width = 1024
    value, index = draw.numbers(pattern.num_entries, kind=torch.float32), draw.ids(pattern.num_entries, 5)
    left = draw.numbers(5, width // repeats, kind=torch.float32)
    x = draw.numbers(9, width, kind=torch.float32)
    given = (pattern, value.double(), index, reference.repeated(left, width).double(), x.double())
    expected = reference.gather_product_sum(*given)
    found = gpu.gather_product_sum(pattern, value, index, left, x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(found, gpu.gather_product_sum(pattern, value, index, left, x))
    exact = gpu.gather_product_sum(pattern, value, index, left, x.bfloat16(), exact=True)
    assert exact.dtype == torch.float32


@pytest.mark.parametrize("deviation", [False, True])
@pytest.mark.parametrize("settings", [UpdateSettings(), UpdateSettings(degree_scaling=False, norm=False, skip=False)])
def test_layer_update_and_its_gradients(deviation, settings):
    draw, shape, width = Draw(3), (9, 5), 16
    asleep = draw.ids(9 * 5, 3).view(*shape, 1) == 0
    own, messages = (draw.numbers(*shape, width, kind=torch.float64).masked_fill(asleep, 0) for _ in range(2))
    squares = messages.square() + 0.1 + draw.numbers(*shape, width, kind=torch.float64).square() if deviation else None
    degree = draw.numbers(9, kind=torch.float64).abs()
    inputs = width * (1 + (1 + deviation) * (1 + settings.degree_scaling))
    weights = tuple(draw.numbers(*size, kind=torch.float64) for size in ((width, inputs), (width,), (width,), (width,)))
    leaves = [tensor.requires_grad_() for tensor in (own, messages, squares, *weights) if tensor is not None]
    expected = reference_update(UpdateInputs(own, messages, squares, degree[:, None, None], weights, None, settings))
    slope = draw.numbers(*expected.shape, kind=torch.float64)
    wanted = torch.autograd.grad(expected, leaves, slope, allow_unused=True)
    single = [None if tensor is None else tensor.detach().float() for tensor in (own, messages, squares, degree)]
    given = UpdateInputs(*single, tuple(tensor.detach().float() for tensor in weights), None, settings)
    found = gpu.layer_update(given)
    torch.testing.assert_close(found.double(), expected.detach(), rtol=1e-3, atol=1e-3)
    slopes = gpu.layer_update_gradients(given, slope.float())
    for one, other in zip([found for found in slopes if found is not None], wanted, strict=True):
        of = torch.zeros_like(one) if other is None else other.float()
        torch.testing.assert_close(one, of, rtol=2e-3, atol=2e-3)


def test_dropout_of_a_layer_update_depends_on_its_seed_only():
    draw = Draw(5)
    own = draw.numbers(40, 4, 16, kind=torch.float32)
    weights = tuple(draw.numbers(*size, kind=torch.float32) for size in ((16, 48), (16,), (16,), (16,)))
    given = UpdateInputs(own, own, None, torch.ones(40, device=DEVICE), weights, None, UpdateSettings(dropout=0.4))

    def update(seed: int) -> Tensor:
        return gpu.layer_update(given._replace(dropout_mask=torch.tensor([seed], device=DEVICE)))

    full = gpu.layer_update(given._replace(settings=UpdateSettings())) - own
    kept = (update(1) - own).abs()[full > 1e-3] > 1e-6
    assert 0.5 < float(kept.float().mean()) < 0.7
    assert torch.equal(update(1), update(1))
    assert not torch.equal(update(1), update(2))

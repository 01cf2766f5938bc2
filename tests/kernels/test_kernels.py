"""Compare the compiled kernels with the reference; test gradients, and that results do not depend on threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rgcn.kernels import (
    combine_bases,
    cpu,
    dispatch,
    gather_sum,
    grouped_product,
    pair_dot,
    reference,
    scaled_sum,
    spread_bases,
    take_rows,
)
from rgcn.kernels.sparse import MAX_PIECE, Pairs, RowPieces, SparsePattern, TripleIndex, pointer_from_sorted

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}
PAIR_KERNELS = ("combine_bases", "spread_bases", "coefficient_gradient", "grouped_product", "grouped_outer")


def numbers(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype)


def groups(counts):
    """(pointer [groups + 1], group of each member) of groups of the given sizes."""
    member = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))
    return pointer_from_sorted(member, len(counts)), member


def pairs_by_node(counts, relations, seed=0):
    _, node = groups(counts)
    relation = torch.randint(relations, (len(node),), generator=torch.Generator().manual_seed(seed))
    return Pairs.of(relation, node, torch.arange(len(node)), len(counts), relations, node_major=True)


def pairs_by_relation(counts):
    _, relation = groups(counts)
    node = torch.zeros_like(relation)
    return Pairs.of(relation, node, torch.arange(len(node)), 1, len(counts), node_major=False)


def arguments(kernel, counts, *, relations=5, bases=3, width=4, width_out=6, blocks=2, dtype=torch.float64, seed=0):
    """Return the arguments of the kernel, for groups (nodes, or relations) of the given sizes."""
    pairs, size = pairs_by_node(counts, relations, seed), sum(counts)
    table, rows = numbers(len(counts), bases, width, dtype=dtype), numbers(size, width, dtype=dtype)
    coefficients = numbers(relations, bases, dtype=dtype)
    x, gradient = numbers(size, blocks, width, dtype=dtype), numbers(size, blocks, width_out, dtype=dtype)
    weight = numbers(len(counts), blocks, width, width_out, dtype=dtype)
    return {
        "combine_bases": (coefficients, table, pairs),
        "spread_bases": (coefficients, rows, pairs),
        "coefficient_gradient": (table, rows, pairs),
        "grouped_product": (x, weight, pairs_by_relation(counts)),
        "grouped_outer": (x, gradient, pairs_by_relation(counts)),
    }[kernel]


def mapped(change, values):
    floating = [isinstance(v, torch.Tensor) and v.dtype.is_floating_point for v in values]
    return [change(v) if f else v for v, f in zip(values, floating, strict=True)]


def assert_same_as_reference(kernel, values, dtype):
    """Check equality up to a few units in the last place of the sum of the absolute terms."""
    exact = getattr(reference, kernel)(*mapped(torch.Tensor.double, values))
    terms = getattr(reference, kernel)(*mapped(lambda v: v.double().abs(), values))
    for module in (cpu, reference):
        out = getattr(module, kernel)(*values)
        assert out.dtype == dtype
        assert out.shape == exact.shape
        assert ((out.double() - exact).abs() <= 10 * TOLERANCE[dtype] * terms).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", PAIR_KERNELS)
@given(
    counts=st.lists(st.sampled_from([0, 0, 1, 2, 7, 40]), min_size=1, max_size=30),
    width=st.sampled_from([1, 3, 8, 16]),
    width_out=st.sampled_from([1, 2, 5, 13]),
    bases=st.integers(1, 4),
    blocks=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=15)
def test_compiled_kernel_equals_the_reference_on_random_shapes(
    kernel, dtype, counts, width, width_out, bases, blocks, seed
):
    sizes = {"width": width, "width_out": width_out, "bases": bases, "blocks": blocks, "seed": seed}
    assert_same_as_reference(kernel, arguments(kernel, counts, dtype=dtype, **sizes), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 16, 200, 500])
@pytest.mark.parametrize("kernel", PAIR_KERNELS)
def test_compiled_kernel_equals_the_reference_with_a_hub_and_empty_groups(kernel, width, dtype):
    counts = [0, 3, 0, 3000, 0, 0, 1, 1, 0]
    values = arguments(kernel, counts, relations=7, width=width, width_out=5, blocks=1, dtype=dtype)
    assert_same_as_reference(kernel, values, dtype)


@pytest.mark.parametrize("kernel", PAIR_KERNELS)
@pytest.mark.parametrize("counts", [[0], [0, 0, 0], [1]])
def test_compiled_kernel_takes_empty_and_tiny_input(kernel, counts):
    assert_same_as_reference(kernel, arguments(kernel, counts), torch.float64)


@pytest.mark.parametrize("kernel", PAIR_KERNELS)
def test_compiled_kernel_takes_tensors_that_are_not_contiguous(kernel):
    values = arguments(kernel, [2, 0, 5, 1])
    strided = mapped(lambda v: v.transpose(0, -1).contiguous().transpose(0, -1), values)
    assert any(isinstance(v, torch.Tensor) and not v.is_contiguous() for v in strided)
    assert torch.equal(getattr(cpu, kernel)(*strided), getattr(cpu, kernel)(*values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", PAIR_KERNELS)
@pytest.mark.parametrize("counts", [[5] * 200, [0, 900, 0, 1, 2, 0, 50], [1, 0, 2]])
def test_one_thread_and_many_give_the_same_bits(kernel, dtype, counts, monkeypatch, restore_threads):
    monkeypatch.setattr(cpu, "MIN_THREADED_WORK", 0)
    values = arguments(kernel, counts, width=11, width_out=9, dtype=dtype)
    torch.set_num_threads(1)
    alone = getattr(cpu, kernel)(*values)
    for threads in (2, 3, 5, 16, 20):
        torch.set_num_threads(threads)
        assert torch.equal(getattr(cpu, kernel)(*values), alone)


# -- gather_sum ----------------------------------------------------------------------------------------


def dense(pattern, value):
    out = torch.zeros(pattern.num_rows, pattern.num_columns, dtype=torch.float64)
    value = torch.ones(pattern.num_entries, dtype=torch.float64) if value is None else value.double()
    return out.index_put((pattern.row, pattern.column), value, accumulate=True)


def random_pattern(counts, columns, seed=0):
    pointer, row = groups(counts)
    column = torch.randint(columns, (len(row),), generator=torch.Generator().manual_seed(seed))
    return SparsePattern(pointer, column, columns)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 16, 200])
@pytest.mark.parametrize("counts", [[2, 0, 3], [0, 0], [0, 4000, 1], [1] * 50])
@pytest.mark.parametrize("weighted", [True, False])
def test_gather_sum_is_the_product_with_the_sparse_matrix(counts, width, dtype, weighted):
    pattern = random_pattern(counts, 9)  # few columns: entries repeat
    value = numbers(pattern.num_entries, dtype=dtype) if weighted else None
    x = numbers(9, width, dtype=dtype)
    terms = dense(pattern, None if value is None else value.abs()) @ x.double().abs()
    error = gather_sum(pattern, value, x).double() - dense(pattern, value) @ x.double()
    # a hub's row is summed one entry after another: the bound grows with the root of its length
    assert (error.abs() <= 10 * TOLERANCE[dtype] * terms).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("counts", [[2, 0, 3], [0, 900, 1]])
def test_gather_sum_of_wide_rows(counts, dtype):
    pattern = random_pattern(counts, 97)
    value, x = numbers(pattern.num_entries, dtype=dtype), numbers(97, 500, dtype=dtype)
    terms = dense(pattern, value.abs()) @ x.double().abs()
    error = gather_sum(pattern, value, x).double() - dense(pattern, value) @ x.double()
    assert (error.abs() <= 10 * TOLERANCE[dtype] * terms).all()


def test_gather_sum_gives_the_same_bits_on_one_thread_and_many(restore_threads):
    pattern = random_pattern([0, 500, *[3] * 3000], 700)
    value, x = numbers(pattern.num_entries, dtype=torch.float32), numbers(700, 16, dtype=torch.float32)
    results = []
    for threads in (1, 2, 7):
        torch.set_num_threads(threads)
        leaf = x.clone().requires_grad_()
        out = gather_sum(pattern, value, leaf)
        out.square().sum().backward()
        results.append((out.detach(), leaf.grad))
    for out, gradient in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_transposed_pattern_is_the_transposed_matrix():
    pattern = random_pattern([2, 0, 5, 1], 4)
    value = numbers(pattern.num_entries)
    transposed = pattern.transpose
    assert torch.equal(dense(transposed, transposed.in_entry_order(value)), dense(pattern, value).T)
    assert torch.equal(dense(transposed.transpose, transposed.transpose.in_entry_order(value)), dense(pattern, value))
    assert torch.equal(transposed.in_value_order(transposed.in_entry_order(value), len(value)), value)


def test_cached_values_in_entry_order_follow_an_in_place_change():
    pattern = random_pattern([2, 3], 4).transpose
    value = numbers(5)
    before = pattern.in_entry_order(value)
    assert pattern.in_entry_order(value) is before  # kept
    value.mul_(2)
    assert torch.equal(pattern.in_entry_order(value), 2 * before)


# -- pieces of rows --------------------------------------------------------------------------------------


@given(counts=st.lists(st.sampled_from([0, 1, 3, 63, 64, 65, 128, 129, 700]), min_size=0, max_size=12))
@settings(max_examples=40)
def test_pieces_cover_every_entry_once_and_long_rows_find_their_partial_sums(counts):
    pointer, row = groups(counts)
    pieces = RowPieces.of(pointer)
    seen, slots = torch.zeros(len(row), dtype=torch.int64), {}
    for i, begin, end, slot in pieces.parts.T.tolist():
        if i == len(counts):
            assert begin == end
            continue
        assert end - begin <= MAX_PIECE
        assert pointer[i] <= begin <= end <= pointer[i + 1]
        seen[begin:end] += 1
        assert (slot == -1) == (counts[i] <= MAX_PIECE)
        if slot >= 0:
            assert 0 <= slot < pieces.num_slots
            assert slot not in slots
            slots[slot] = i
    assert (seen == 1).all()
    assert set(range(len(counts))) <= set(pieces.parts[0].tolist())  # rows without entries too: they must be written
    found = {}
    for i, slot, count in pieces.long_rows.T.tolist():
        if i < len(counts):
            found.update(dict.fromkeys(range(slot, slot + count), i))
    assert found == slots


# -- gather_product_sum ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 16, 29, 64, 200, 500])
@pytest.mark.parametrize("counts", [[2, 0, 3], [0, 0], [0, 4000, 1], [1] * 50, [0, 33, 0, 0, 40, 1, 0]])
@pytest.mark.parametrize("weighted", [True, False])
def test_gather_product_sum_equals_its_definition(counts, width, dtype, weighted):
    pattern = random_pattern(counts, 9)
    index = torch.randint(5, (pattern.num_entries,), generator=torch.Generator().manual_seed(1))
    value = numbers(pattern.num_entries, dtype=dtype) if weighted else None
    left, x = numbers(5, width, dtype=dtype), numbers(9, width, dtype=dtype, seed=3)
    scale = torch.ones(pattern.num_entries, 1).double() if value is None else value.double().unsqueeze(1)
    terms = scale * left.double()[index] * x.double()[pattern.column]
    expected = torch.zeros(len(counts), width, dtype=torch.float64).index_add(0, pattern.row, terms)
    size = torch.zeros(len(counts), width, dtype=torch.float64).index_add(0, pattern.row, terms.abs())
    for module in (cpu, reference):
        out = module.gather_product_sum(pattern, value, index, left, x)
        assert ((out.double() - expected).abs() <= 10 * TOLERANCE[dtype] * size).all()


def test_gather_product_sum_gives_the_same_bits_on_one_thread_and_many(monkeypatch, restore_threads):
    monkeypatch.setattr(cpu, "MIN_THREADED_WORK", 0)
    pattern = random_pattern([0, 500, *[3] * 300], 70)
    index = torch.arange(pattern.num_entries) % 4
    value, left, x = (numbers(*s, dtype=torch.float32) for s in ((pattern.num_entries,), (4, 16), (70, 16)))
    torch.set_num_threads(1)
    alone = cpu.gather_product_sum(pattern, value, index, left, x)
    for threads in (2, 3, 16):
        torch.set_num_threads(threads)
        assert torch.equal(cpu.gather_product_sum(pattern, value, index, left, x), alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 16, 200])
def test_entry_product_equals_its_definition(width, dtype):
    generator = torch.Generator().manual_seed(0)
    i, j, k = (torch.randint(n, (300,), generator=generator) for n in (4, 6, 5))
    a, b, c = numbers(4, width, dtype=dtype), numbers(6, width, dtype=dtype), numbers(5, width, dtype=dtype)
    assert_same_as_reference("entry_product", (i, a, j, b, k, c), dtype)
    expected = (a[i] * b[j] * c[k]).double().sum(1)
    torch.testing.assert_close(cpu.entry_product(i, a, j, b, k, c).double(), expected, rtol=1e-4, atol=1e-4)


# -- Adam with a gradient that is never written out --------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 10, 16, 37])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_adam_bases_equals_torch_adam_with_the_full_gradient(width, weight_decay, dtype):
    counts = [2, 0, 5, 1, 0, 40]
    pairs = pairs_by_node(counts, 3)
    start = numbers(len(counts), 4, width, dtype=dtype)
    dense = start.clone().requires_grad_()
    settings = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": weight_decay}
    optimizer = torch.optim.Adam([dense], **settings)
    tables = {module: (start.clone(), torch.zeros_like(start), torch.zeros_like(start)) for module in (cpu, reference)}
    for step in range(1, 6):
        coefficients = numbers(3, 4, dtype=dtype, seed=step)
        rows = numbers(sum(counts), width, dtype=dtype, seed=2 * step)
        dense.grad = reference.spread_bases(coefficients, rows, pairs)
        optimizer.step()
        for module, table in tables.items():
            gradient = reference.FactoredGradient(coefficients, rows, pairs)
            module.adam_bases(*table, torch.tensor(float(step)), gradient, reference.AdamSettings(**settings))
    rtol = 1e-4 if dtype == torch.float32 else 1e-10
    for table, *_ in tables.values():
        torch.testing.assert_close(table, dense.detach(), rtol=rtol, atol=rtol / 100)


# -- entry_product of two, and pair_dot on top of it ----------------------------------------------------


def dot_arguments(entries, left=4, right=6, width=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(entries)
    i, j = (torch.randint(n, (entries,), generator=generator) for n in (left, right))
    return i, numbers(left, width, dtype=dtype), None, None, j, numbers(right, width, dtype=dtype, seed=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 16, 200])
@pytest.mark.parametrize("entries", [0, 1, 7, 3000])
def test_entry_product_of_two_tables_equals_the_reference(entries, width, dtype):
    assert_same_as_reference("entry_product", dot_arguments(entries, width=width, dtype=dtype), dtype)


def test_entry_product_of_two_strided_tables_on_any_number_of_threads(monkeypatch, restore_threads):
    monkeypatch.setattr(cpu, "MIN_THREADED_WORK", 0)
    i, left, none, _, j, right = dot_arguments(500, dtype=torch.float32)
    torch.set_num_threads(1)
    alone = cpu.entry_product(i, left, none, none, j, right)
    strided = (tensor.T.contiguous().T for tensor in (left, right))
    assert torch.equal(cpu.entry_product(i, next(strided), none, none, j, next(strided)), alone)
    for threads in (2, 5):
        torch.set_num_threads(threads)
        assert torch.equal(cpu.entry_product(i, left, none, none, j, right), alone)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("entries", [0, 1, 40])
def test_pair_dot_and_its_gradients_equal_the_definition(entries, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(dispatch, "_load", lambda name: None)
    i, left, _, _, j, right = dot_arguments(entries)
    order = torch.argsort(i, stable=True)
    pattern = SparsePattern.from_sorted_rows(i[order], j[order], (4, 6), order)
    left.requires_grad_()
    right.requires_grad_()
    out = pair_dot(left, right, pattern)
    a_rows, b_rows = left.detach(), right.detach()
    expected = [sum(float(a_rows[a, k] * b_rows[b, k]) for k in range(5)) for a, b in zip(i, j, strict=True)]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda a, b: pair_dot(a, b, pattern), (left, right))
    assert torch.autograd.gradcheck(lambda a: pair_dot(a, right.detach(), pattern), (left,))
    assert torch.autograd.gradcheck(lambda b: pair_dot(left.detach(), b, pattern), (right,))


# -- gradients -----------------------------------------------------------------------------------------


def leaf(*shape):
    return numbers(*shape).requires_grad_()


@pytest.mark.parametrize("counts", [[2, 0, 3, 1], [0, 0], [6]])
def test_gradient_of_gather_sum(counts):
    pattern = random_pattern(counts, 4)
    value, x = leaf(pattern.num_entries), leaf(4, 3)
    assert torch.autograd.gradcheck(lambda v, x: gather_sum(pattern, v, x), (value, x))
    assert torch.autograd.gradcheck(lambda x: gather_sum(pattern, None, x), (x,))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("counts", [[2, 0, 3, 1], [0, 0], [6]])
def test_gradients_of_the_products(counts, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(dispatch, "_load", lambda name: None)
    pairs, of_relation = pairs_by_node(counts, 3), pairs_by_relation(counts)
    check = torch.autograd.gradcheck
    assert check(lambda c, b: combine_bases(c, b, pairs), (leaf(3, 2), leaf(len(counts), 2, 3)))
    assert check(lambda c, r: spread_bases(c, r, pairs), (leaf(3, 2), leaf(len(pairs), 3)))
    for width_in, width_out, blocks in ((3, 2, 2), (1, 1, 4), (1, 3, 1)):
        x, weight = leaf(len(pairs), blocks, width_in), leaf(len(counts), blocks, width_in, width_out)
        assert check(lambda x, w: grouped_product(x, w, of_relation), (x, weight))


def random_triple_index(edges, sizes=(4, 3, 5), seed=0):
    generator = torch.Generator().manual_seed(seed)
    target, relation, source = (torch.randint(n, (edges,), generator=generator) for n in sizes)
    return TripleIndex(target.sort().values, relation, source, sizes)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("edges", [0, 1, 30])
def test_scaled_sum_equals_its_definition_and_has_all_three_gradients(edges, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(dispatch, "_load", lambda name: None)
    index = random_triple_index(edges)
    value, scale, x = leaf(edges), leaf(3, 2), leaf(5, 2)
    expected = torch.zeros(4, 2, dtype=torch.float64)
    for e in range(edges):
        expected[index.target[e]] += (value[e] * scale[index.relation[e]] * x[index.source[e]]).detach()
    torch.testing.assert_close(scaled_sum(index, value, scale, x), expected)
    assert torch.autograd.gradcheck(lambda v, s, x: scaled_sum(index, v, s, x), (value, scale, x))
    assert torch.autograd.gradcheck(lambda s, x: scaled_sum(index, None, s, x), (scale, x))


def scaled_sum_by_relation(index, value, scale, x):
    """Compute the result with a dense matrix for each relation, and the columns of each question separately."""
    targets, relations, sources = index.sizes
    questions = [x] if x.shape[1] == scale.shape[1] else x.split(scale.shape[1], 1)
    columns = []
    for one in questions:
        out = torch.zeros(targets, scale.shape[1], dtype=x.dtype)
        for r in range(relations):
            of = index.relation == r
            matrix = torch.zeros(targets, sources, dtype=x.dtype)
            matrix = matrix.index_put((index.target[of], index.source[of]), value[of], accumulate=True)
            out = out + (matrix @ one) * scale[r]
        columns.append(out)
    return torch.cat(columns, 1)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("width", "questions"), [(32, 1), (32, 3), (32, 5), (64, 2), (96, 2), (16, 8), (5, 3), (1, 40)]
)
@given(edges=st.sampled_from([0, 1, 5, 17, 90, 400]), seed=st.integers(0, 1000))
@settings(max_examples=6)
def test_scaled_sum_of_several_questions_with_separate_and_shared_tables(width, questions, compiled, edges, seed):
    index = random_triple_index(edges, (9, 4, 7), seed)
    value, slope = leaf(edges), numbers(9, width * questions, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(dispatch, "_load", lambda name: None)
        for scale in (leaf(4, width * questions), leaf(4, width)):
            x = leaf(7, width * questions)
            leaves = (value, scale, x)
            expected = scaled_sum_by_relation(index, *leaves)
            wanted = torch.autograd.grad(expected, leaves, slope)
            out = scaled_sum(index, *leaves)
            torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
            assert torch.equal(out, scaled_sum(index, *leaves))
            for one, other in zip(torch.autograd.grad(out, leaves, slope), wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("table", [32, 96 * 2, 16])
def test_scaled_sum_of_several_questions_gives_the_same_bits_on_one_thread_and_many(
    table, dtype, monkeypatch, restore_threads
):
    monkeypatch.setattr(cpu, "MIN_THREADED_WORK", 0)
    index = random_triple_index(1000, (60, 7, 50))
    leaves = [t.requires_grad_() for t in (numbers(1000, dtype=dtype), numbers(7, table, dtype=dtype))]
    leaves.append(numbers(50, 192, dtype=dtype).requires_grad_())
    results = []
    for threads in (1, 1, 2, 3, 16):
        torch.set_num_threads(threads)
        out = scaled_sum(index, *leaves)
        results.append((out, *torch.autograd.grad(out, leaves, out.detach())))
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def test_scaled_sum_raises_for_a_table_of_wrong_width():
    with pytest.raises(ValueError, match="3 columns, x has 4"):
        scaled_sum(random_triple_index(9), None, numbers(3, 3), numbers(5, 4))


@pytest.mark.parametrize("index", [[], [2, 0, 2, 2, 1]])
def test_take_rows_equals_indexing(index):
    index, x = torch.tensor(index, dtype=torch.int64), leaf(4, 3)
    assert torch.equal(take_rows(x, index), x[index])
    assert torch.autograd.gradcheck(lambda x: take_rows(x, index), (x,))


def test_second_derivatives_raise_an_error():
    pattern, pairs = random_pattern([2, 1], 3), pairs_by_node([1, 1], 2)
    for out, x in (
        (lambda x: gather_sum(pattern, None, x), leaf(3, 2)),
        (lambda x: take_rows(x, torch.tensor([0, 1])), leaf(3, 2)),
        (lambda x: scaled_sum(random_triple_index(9), None, x, numbers(5, 2)), leaf(3, 2)),
        (lambda x: combine_bases(x, numbers(2, 2, 3), pairs), leaf(2, 2)),
        (lambda x: spread_bases(x, numbers(2, 3), pairs), leaf(2, 2)),
        (lambda x: grouped_product(x, numbers(2, 1, 2, 2), pairs_by_relation([1, 1])), leaf(2, 1, 2)),
        (lambda x: pair_dot(x, numbers(3, 3), pattern), leaf(2, 3)),
    ):
        (gradient,) = torch.autograd.grad(out(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=r"once_differentiable|differentiate twice"):
            gradient.sum().backward()


def test_small_products_are_compiled_and_large_ones_are_not():
    x = torch.zeros(1, 1, 1)
    assert dispatch.product_kernels(x, torch.zeros(1, 1, 16, 16)) is cpu
    assert dispatch.product_kernels(x, torch.zeros(1, 1, 1, 1)) is cpu
    assert dispatch.product_kernels(x, torch.zeros(1, 1, 200, 200)) is reference
    assert dispatch.product_kernels(x.half(), torch.zeros(1, 1, 16, 16)) is reference
    assert dispatch.kernels_for(x) is cpu


def test_reference_kernels_can_be_exported():
    pattern, pairs, edges = random_pattern([2, 0, 3, 1], 4), pairs_by_node([2, 0, 3, 1], 3), random_triple_index(9)
    grouped, value, shift = pairs_by_relation([4, 0, 2]), numbers(6), numbers(3, 2)

    class Model(torch.nn.Module):
        def forward(self, x, scale, bases, weight):
            rows = gather_sum(pattern, value, x) + spread_bases(scale, combine_bases(scale, bases, pairs), pairs).sum(1)
            products = grouped_product(take_rows(x, pattern.column)[:, None], weight, grouped)
            sums = scaled_sum(edges, None, scale[:, :1] + shift, bases[:, 0, :2].new_ones(5, 2))
            return rows.sum() + products.sum() + sums.sum() + pair_dot(rows, x, pattern)

    inputs = (numbers(4, 3), numbers(3, 2), numbers(4, 2, 3), numbers(3, 1, 3, 2))
    with dispatch.reference_kernels():
        assert dispatch.kernels_for(inputs[0]) is reference
        Model()(*inputs)
        program = torch.export.export(Model(), inputs, strict=False)  # as `rgcn.models.export` does
    assert dispatch.kernels_for(inputs[0]) is cpu
    assert "rgcn" not in str(program.graph)
    torch.testing.assert_close(program.module()(*inputs), Model()(*inputs))


def test_encoders_name_existing_kernels_to_compile_ahead():
    from rgcn.kernels.ahead import compile_ahead
    from rgcn.plugins import ENCODERS

    for encoder, decomposition in (("rgcn", "none"), ("rgcn", "basis"), ("e-rgcn", "none"), ("e-rgcn", "basis")):
        thread = compile_ahead(*ENCODERS.resolve(encoder).kernels(decomposition))
        assert thread is not None
        thread.join(60)
        assert not thread.is_alive()

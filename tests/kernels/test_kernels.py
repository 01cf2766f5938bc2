"""The compiled kernels against the plain ones, their gradients, and their independence of the number of threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rgcn.kernels import combine_bases, cpu, dispatch, gather_sum, grouped_product, pair_dot, reference, spread_bases
from rgcn.sparse import SparsePattern, pointer_from_sorted

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}
PAIR_KERNELS = ("combine_bases", "spread_bases", "coefficient_gradient", "grouped_product", "grouped_outer")


def numbers(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype)


def groups(counts):
    """(pointer [groups + 1], group of each member) of groups of the given sizes."""
    member = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))
    return pointer_from_sorted(member, len(counts)), member


def arguments(kernel, counts, *, relations=5, bases=3, width=4, width_out=6, blocks=2, dtype=torch.float64, seed=0):
    """What the kernel is called with, for groups (nodes, or relations) of the given sizes."""
    pointer, node = groups(counts)
    pairs = len(node)
    relation = torch.randint(relations, (pairs,), generator=torch.Generator().manual_seed(seed))
    table, rows = numbers(len(counts), bases, width, dtype=dtype), numbers(pairs, width, dtype=dtype)
    coefficients = numbers(relations, bases, dtype=dtype)
    x, gradient = numbers(pairs, blocks, width, dtype=dtype), numbers(pairs, blocks, width_out, dtype=dtype)
    weight = numbers(len(counts), blocks, width, width_out, dtype=dtype)
    return {
        "combine_bases": (coefficients, table, pointer, relation, node),
        "spread_bases": (coefficients, rows, pointer, relation, node),
        "coefficient_gradient": (table, rows, pointer, relation, node, relations),
        "grouped_product": (x, weight, pointer),
        "grouped_outer": (x, gradient, pointer),
    }[kernel]


def mapped(change, values):
    floating = [isinstance(v, torch.Tensor) and v.dtype.is_floating_point for v in values]
    return [change(v) if f else v for v, f in zip(values, floating, strict=True)]


def assert_same_as_reference(kernel, values, dtype):
    """Within rounding: a few units in the last place of the sum of the absolute terms."""
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
@pytest.mark.parametrize("width", [1, 3, 16, 200])
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
    monkeypatch.setattr(cpu, "WORTH_A_THREAD", 0)
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
    assert torch.equal(dense(transposed.pattern, value[transposed.order]), dense(pattern, value).T)


# -- entry_dot, and pair_dot on top of it --------------------------------------------------------------


def dot_arguments(entries, left=4, right=6, width=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(entries)
    i, j = (torch.randint(n, (entries,), generator=generator) for n in (left, right))
    return i, j, numbers(left, width, dtype=dtype), numbers(right, width, dtype=dtype, seed=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 16, 200])
@pytest.mark.parametrize("entries", [0, 1, 7, 3000])
def test_compiled_entry_dot_equals_the_reference(entries, width, dtype):
    assert_same_as_reference("entry_dot", dot_arguments(entries, width=width, dtype=dtype), dtype)


def test_entry_dot_takes_strided_tensors_and_any_number_of_threads(monkeypatch, restore_threads):
    monkeypatch.setattr(cpu, "WORTH_A_THREAD", 0)
    i, j, left, right = dot_arguments(500, dtype=torch.float32)
    torch.set_num_threads(1)
    alone = cpu.entry_dot(i, j, left, right)
    assert torch.equal(cpu.entry_dot(i, j, left.T.contiguous().T, right.T.contiguous().T), alone)
    for threads in (2, 5):
        torch.set_num_threads(threads)
        assert torch.equal(cpu.entry_dot(i, j, left, right), alone)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("entries", [0, 1, 40])
def test_pair_dot_is_a_dot_product_for_each_entry_and_so_are_its_gradients(entries, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(dispatch, "_compiled_for", lambda tensor: None)
    i, j, left, right = dot_arguments(entries)
    left.requires_grad_()
    right.requires_grad_()
    out = pair_dot(left, i, right, j)
    a_rows, b_rows = left.detach(), right.detach()
    expected = [sum(float(a_rows[a, k] * b_rows[b, k]) for k in range(5)) for a, b in zip(i, j, strict=True)]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda a, b: pair_dot(a, i, b, j), (left, right))
    assert torch.autograd.gradcheck(lambda a: pair_dot(a, i, right.detach(), j), (left,))
    assert torch.autograd.gradcheck(lambda b: pair_dot(left.detach(), i, b, j), (right,))


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
        monkeypatch.setattr(dispatch, "_compiled_for", lambda tensor: None)
    pointer, node = groups(counts)
    pairs, relation = len(node), torch.arange(len(node)) % 3
    where = (pointer, relation, node)
    check = torch.autograd.gradcheck
    assert check(lambda c, b: combine_bases(c, b, *where), (leaf(3, 2), leaf(len(counts), 2, 3)))
    assert check(lambda c, r: spread_bases(c, r, *where), (leaf(3, 2), leaf(pairs, 3)))
    for width_in, width_out, blocks in ((3, 2, 2), (1, 1, 4), (1, 3, 1)):
        x, weight = leaf(pairs, blocks, width_in), leaf(len(counts), blocks, width_in, width_out)
        assert check(lambda x, w: grouped_product(x, w, pointer), (x, weight))


def test_second_derivatives_are_refused_and_never_silently_zero():
    pattern, where = random_pattern([2, 1], 3), (*groups([1, 1])[:1], torch.tensor([0, 1]), torch.tensor([0, 1]))
    for out, x in (
        (lambda x: gather_sum(pattern, None, x), leaf(3, 2)),
        (lambda x: combine_bases(x, numbers(2, 2, 3), *where), leaf(2, 2)),
        (lambda x: spread_bases(x, numbers(2, 3), *where), leaf(2, 2)),
        (lambda x: grouped_product(x, numbers(2, 1, 2, 2), where[0]), leaf(2, 1, 2)),
        (lambda x: pair_dot(x, torch.tensor([0, 1, 1]), numbers(2, 3), torch.tensor([1, 0, 1])), leaf(2, 3)),
    ):
        (gradient,) = torch.autograd.grad(out(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=r"once_differentiable|differentiate twice"):
            gradient.sum().backward()


def test_small_products_are_compiled_and_diagonals_and_large_ones_are_not():
    x = torch.zeros(1, 1, 1)
    assert dispatch.product_kernels(x, torch.zeros(1, 1, 16, 16)) is cpu
    assert dispatch.product_kernels(x, torch.zeros(1, 1, 1, 1)) is reference
    assert dispatch.product_kernels(x, torch.zeros(1, 1, 200, 200)) is reference
    assert dispatch.product_kernels(x.half(), torch.zeros(1, 1, 16, 16)) is reference
    assert dispatch.bases_kernels(x) is cpu

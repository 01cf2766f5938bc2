"""What an order of evaluation costs: counted from shapes, so that the layer can choose before it computes anything.

How it is counted. A layer is a chain of stages, each a primitive of `rgcn.kernels` or a product of matrices. One
forward and one backward pass are counted together, since training does both. For each stage, in each direction:

  operations  multiplications with an addition, two floating-point operations each
  bytes       every operand read once and every result written once, 4 bytes a number and 4 bytes an index, with these
              two exceptions. Rows gathered through an index are read once for each entry that asks for them, for they
              are scattered over memory. Pairs sorted by node read their node's rows once, for they stay in the cache.

Not counted: the gradients of edge weights, which are given and not learned, and arrangements made once and kept. The
input's gradient is counted, although a first layer over fixed features does not need it.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMBER = INDEX = 4


@dataclass(frozen=True)
class Cost:
    """Multiply-adds, and bytes moved through memory, of one forward and one backward pass."""

    operations: int
    bytes: int

    # Multiply-adds done in the time it takes to move a byte. Two cores reach 95 billion a second (190 GFLOP/s) and
    # 36 GB/s: 2.6. An H200 reaches about 25 trillion a second (50 TFLOP/s in float32) and 4 TB/s: 6. The two are near
    # enough for one constant between them to serve both: only the order of two costs matters, and where they are so
    # close that 2.6 and 6 disagree, either choice is a good one.
    OPERATIONS_PER_BYTE = 4.0

    @property
    def total(self) -> float:
        """In the time of moving a byte, as if computing and moving never overlapped: at most twice the truth."""
        return self.operations / self.OPERATIONS_PER_BYTE + self.bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.bytes + other.bytes)

    def __rmul__(self, times: int) -> Cost:
        return Cost(times * self.operations, times * self.bytes)


def matrix_product(rows: int, width_in: int, width_out: int) -> Cost:
    """[rows, in] · [in, out]; backward a product for each of the two operands."""
    numbers = rows * width_in + width_in * width_out + rows * width_out
    return Cost(3 * rows * width_in * width_out, 3 * numbers * NUMBER)


def gather_sum(rows: int, columns: int, entries: int, width: int, valued: bool = True) -> Cost:
    """A sparse matrix [rows, columns] times [columns, width]; backward its transpose times the gradient.

    In each direction an entry reads a row, its column and its value; a row of the matrix reads its pointer and writes
    its sum.
    """
    of_entry = width * NUMBER + INDEX + valued * NUMBER
    of_row = INDEX + width * NUMBER
    return Cost(2 * entries * width, 2 * entries * of_entry + (rows + columns) * of_row)


def entry_dot(entries: int, width: int) -> Cost:
    """⟨left[i], right[j]⟩ of each entry: the gradient of the values of `gather_sum`, where these are learned."""
    return Cost(entries * width, entries * (2 * width * NUMBER + 2 * INDEX + NUMBER))


def take_rows(picks: int, rows: int, width: int) -> Cost:
    """Rows copied; backward they are summed where they came from."""
    forward = picks * (2 * width * NUMBER + INDEX)
    backward = picks * (width * NUMBER + INDEX) + rows * (INDEX + width * NUMBER)
    return Cost(picks * width, forward + backward)


def grouped_product(pairs: int, relations: int, num_blocks: int, rows: int, columns: int) -> Cost:
    """A product of each pair with its relation's blocks [K, in, out]; backward one for the rows, one for the blocks.

    Each of the three touches the pairs' inputs, the pairs' outputs and the blocks.
    """
    block = num_blocks * rows * columns
    numbers = pairs * num_blocks * (rows + columns) + relations * block
    return Cost(3 * pairs * block, 3 * (numbers * NUMBER + relations * INDEX))


def combined_bases(pairs: int, nodes: int, relations: int, num_bases: int, width: int) -> Cost:
    """Bases [nodes, B, width] combined into pairs, or pairs spread over them: each is the other's gradient.

    Forward, backward for the operand of that width, and backward for the coefficients each touch the bases, the pairs'
    rows, the coefficients, the pairs' relations and where each node's pairs begin.
    """
    numbers = nodes * num_bases * width + pairs * width + relations * num_bases
    return Cost(3 * pairs * num_bases * width, 3 * (numbers * NUMBER + (pairs + nodes) * INDEX))


def scaled_sum(targets: int, sources: int, relations: int, edges: int, width: int) -> Cost:
    """Σ value · scale[relation] ⊙ x[source] in one pass; backward one for x and one for the scales.

    An edge multiplies twice for each number. It reads one row where the sum runs over targets or sources (the few rows
    of scales stay in the cache and are read once), two where it runs over relations; two indices, and its value.
    """
    of_edge = width * NUMBER + 2 * INDEX + NUMBER
    forward = edges * of_edge + relations * width * NUMBER + targets * (INDEX + width * NUMBER)
    for_x = edges * of_edge + relations * width * NUMBER + sources * (INDEX + width * NUMBER)
    for_scale = edges * (of_edge + width * NUMBER) + relations * (INDEX + width * NUMBER)
    return Cost(3 * 2 * edges * width, forward + for_x + for_scale)

"""Triton kernels with a known stall on a known line, each in a range of its own: lines that end in `# NAME` are those of kernel NAME."""

import torch
import triton
import triton.language as tl

LAUNCHES = 40


@triton.jit
def gather(to, table, count, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = own
    for _ in range(ROUNDS):
        at = tl.load(table + at)  # gather
    tl.store(to + own, at)


@triton.jit
def chain(to, table, count, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(table + own).to(tl.float32)
    for _ in range(ROUNDS * 300):
        x = x * 1.0009765625 + 0.5  # chain
    tl.store(to + own, x.to(tl.int32))


@triton.jit
def atomics(to, table, count, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(table + own)
    for _ in range(ROUNDS):
        x += tl.atomic_add(to + own * 0, x & 1)  # atomics
    tl.store(to + 1 + own, x)


@triton.jit
def spill(to, table, count, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, 128)[:, None]
    columns = tl.arange(0, 128)[None, :]
    at = rows * 128 + columns
    x = tl.load(table + at).to(tl.float32)
    y = tl.load(table + at + 16384).to(tl.float32)
    for _ in range(ROUNDS * 8):
        x, y = x * y + 0.5, y * 1.0009765625 + x  # spill
    tl.store(to + at, (x + y).to(tl.int32))


def main():
    count = 1 << 25
    numbers = torch.arange(count, device="cuda", dtype=torch.int64)
    # An odd factor and an odd step visit every number in an irregular order.
    table = ((numbers * 1664525 + 1013904223) % count).to(torch.int32)
    to = torch.zeros(count + 1, device="cuda", dtype=torch.int32)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count * 8
    for kernel, shape, options in [
        (gather, 256, {}),
        (chain, 256, {}),
        (atomics, 256, {}),
        # 32,768 numbers in the registers of 128 threads.
        (spill, 128, {"num_warps": 4}),
    ]:
        torch.cuda.nvtx.range_push(kernel.fn.__name__)
        for _ in range(LAUNCHES):
            kernel[(blocks,)](to, table, count, ROUNDS=16, BLOCK=shape, **options)
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()


if __name__ == "__main__":
    main()

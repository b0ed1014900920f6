/* The rows of NVTX's C header. Each loop is the twin of one in rows.rs. */
#include <stdint.h>
#include <nvtx3/nvToolsExt.h>

/* Nothing read from memory before is known after. */
#define BARRIER() __asm__ volatile("" ::: "memory")

#define EIGHT_TIMES(x) x x x x x x x x

#define PAIR() \
    nvtxRangePushA("step"); \
    BARRIER(); \
    nvtxRangePop(); \
    BARRIER();

void peers_header_pairs(uint64_t turns)
{
    for (uint64_t turn = 0; turn < turns; ++turn) {
        EIGHT_TIMES(PAIR())
    }
}

#define AROUND_CALL() \
    nvtxRangePushA("step"); \
    body(); \
    nvtxRangePop(); \
    BARRIER();

void peers_header_around_calls(uint64_t turns, void (*body)(void))
{
    for (uint64_t turn = 0; turn < turns; ++turn) {
        EIGHT_TIMES(AROUND_CALL())
    }
}

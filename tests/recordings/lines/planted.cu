extern "C" __global__ void gather(const unsigned *next, float *to, int rounds) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, own = at;
    for (int round = 0; round < rounds; ++round)
        at = next[at]; // gather
    to[own] = at;
}
extern "C" __global__ void chain(const unsigned *next, float *to, int rounds) {
    float x = threadIdx.x, a = next[0], b = next[1];
    for (int round = 0; round < rounds; ++round)
        x = x * a + b; // chain
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
extern "C" __global__ void barrier(const unsigned *next, float *to, int rounds) {
    float x = threadIdx.x, a = next[0], b = next[1];
    for (int round = 0; round < rounds; ++round) { for (int at = threadIdx.x; at < 32 * 64; at += 1024 >> (threadIdx.x < 32) * 5) x = x * a + b; __syncthreads(); } // barrier
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
extern "C" __global__ void banks(const unsigned *next, float *to, int rounds) {
    __shared__ unsigned table[1024];
    for (unsigned at = threadIdx.x; at < 1024; at += blockDim.x) table[at] = at + next[0] * 32 & 1023;
    __syncthreads();
    unsigned at = threadIdx.x % 32 * 32;
    for (int round = 0; round < rounds; ++round)
        at = table[at]; // banks
    to[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
__device__ __noinline__ unsigned one(unsigned x) { return x + 3; } // diverge
__device__ __noinline__ unsigned two(unsigned x) { return x ^ 5; } // diverge
extern "C" __global__ void diverge(const unsigned *next, float *to, int rounds) {
    unsigned x = next[0];
    for (int round = 0; round < rounds; ++round)
        x = (threadIdx.x ^ x) & 1 ? one(x) : two(x); // diverge
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
extern "C" __global__ void spill(const unsigned *next, float *to, int rounds) {
    unsigned many[128];
    for (int at = 0; at < 128; ++at) many[at] = next[at] + threadIdx.x;
    unsigned at = threadIdx.x;
    for (int round = 0; round < rounds; ++round) { at = many[at & 127] + round; many[at * 7 & 127] = at; } // spill
    to[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
extern "C" __global__ void atomics(const unsigned *next, float *to, int rounds) {
    unsigned sum = next[0];
    for (int round = 0; round < rounds; ++round)
        sum += atomicAdd((unsigned *)to, sum & 1); // atomics
    to[1 + blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#define ONE(x) x = x * 1.0009765625f + 0.5f;
#define TEN(x) ONE(x) ONE(x##1) ONE(x##2) ONE(x##3) ONE(x) ONE(x##1) ONE(x##2) ONE(x##3)
#define HUNDRED(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x)
#define THOUSAND(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x)
extern "C" __global__ void code(const unsigned *next, float *to, int rounds) {
    float x = next[0], x1 = next[1], x2 = next[2], x3 = next[3];
    for (int round = 0; round < rounds; ++round) {
        THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) // code
        THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) // code
    }
    to[blockIdx.x * blockDim.x + threadIdx.x] = x + x1 + x2 + x3;
}

// Kernels of different lengths and limits. How much each does is an argument, so that one can be made slower by more work.

// One warp, bound by latency: a few microseconds.
extern "C" __global__ void latency(float *out, unsigned rounds) {
    float x = (float)threadIdx.x;
    for (unsigned i = 0; i < rounds; i++) x = fmaf(x, 0.999f, 0.5f);
    out[threadIdx.x] = x;
}

// Bound by arithmetic.
extern "C" __global__ void arithmetic(float *out, unsigned rounds) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    float a = (float)at, b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
    for (unsigned i = 0; i < rounds; i++) {
        a = fmaf(a, 0.999f, 0.5f);
        b = fmaf(b, 0.998f, 0.5f);
        c = fmaf(c, 0.997f, 0.5f);
        d = fmaf(d, 0.996f, 0.5f);
    }
    out[at] = a + b + c + d;
}

// Bound by the bandwidth of memory: reads two, writes one.
extern "C" __global__ void stream_add(float *y, const float *x, unsigned count) {
    unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) y[i] = x[i] + 0.5f * y[i];
}

// Bound by the latency of memory: reads at random places. `mask` is the buffer's length, a power of two, less one.
extern "C" __global__ void gather(float *out, const float *x, unsigned mask, unsigned rounds) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned place = at * 2654435761u;
    float sum = 0.0f;
    for (unsigned i = 0; i < rounds; i++) {
        sum += x[place & mask];
        place = place * 1664525u + 1013904223u;
    }
    out[at] = sum;
}

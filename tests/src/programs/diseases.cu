// The kernels of the sick programs and of their cured twins.

// Every block is busy for so many nanoseconds of the GPU's timer, however many blocks run beside it.
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

// m[i] = m[i] / 2 + 1
extern "C" __global__ void settle(float *m, unsigned len) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) m[i] = 0.5f * m[i] + 1.0f;
}

// m[i] = log(1 + m[i]^2), what `log_square` of diseases.rs does on the host
extern "C" __global__ void log_square(float *m, unsigned len) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) m[i] = logf(1.0f + m[i] * m[i]);
}

// Source of chain.cubin: NVRTC 13.0 in the folder /src, with --generate-line-info --gpu-architecture=sm_90.
extern "C" __global__ void chain(float *to, float a, float b, int rounds) {
    float x = threadIdx.x;
    for (int round = 0; round < rounds; ++round) x = x * a + b;
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

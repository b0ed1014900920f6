
// The kernels of the case studies.

// v[i] = v[i] * mu
extern "C" __global__ void decay(float *v, float mu, unsigned len) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) v[i] = v[i] * mu;
}

// y[i] = y[i] + a x[i]
extern "C" __global__ void add_scaled(float *y, const float *x, float a, unsigned len) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) y[i] = y[i] + a * x[i];
}

// v[i] = v[i] * mu + g[i], then w[i] = w[i] - lr v[i]
extern "C" __global__ void momentum_step(float *w, float *v, const float *g, float mu, float lr, unsigned len) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) {
        float next = v[i] * mu + g[i];
        v[i] = next;
        w[i] = w[i] - lr * next;
    }
}

// Everything that is not a matrix product. BLOCK, the number of threads in a block, comes from the
// host. All matrices are row-major.

// m[row][col] = max(m[row][col] + bias[col], 0)
extern "C" __global__ void bias_relu(float *m, const float *bias, unsigned cols, unsigned len) {
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < len) m[i] = fmaxf(m[i] + bias[i % cols], 0.0f);
}

// m[row][col] += bias[col]
extern "C" __global__ void bias_add(float *m, const float *bias, unsigned cols, unsigned len) {
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < len) m[i] += bias[i % cols];
}

// gradient = 2 * (out - target) / len;  *loss += the block's share of mean((out - target)^2)
extern "C" __global__ void mse_grad(float *gradient, float *loss, const float *out,
                                    const float *target, unsigned len) {
    __shared__ float squares[BLOCK];
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    float difference = i < len ? out[i] - target[i] : 0.0f;
    if (i < len) gradient[i] = 2.0f * difference / len;

    squares[threadIdx.x] = difference * difference;
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) squares[threadIdx.x] += squares[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(loss, squares[0] / len);
}

// gradient = 0 where the forward pass gave 0
extern "C" __global__ void relu_backward(float *gradient, const float *activation, unsigned len) {
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < len && activation[i] <= 0.0f) gradient[i] = 0.0f;
}

// sums[col] = sum over all rows of m[row][col]; a block takes 32 columns, BLOCK / 32 rows at a time
extern "C" __global__ void col_sum(float *sums, const float *m, unsigned rows, unsigned cols) {
    __shared__ float parts[BLOCK / 32][32];
    unsigned col = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (col < cols)
        for (unsigned row = threadIdx.y; row < rows; row += BLOCK / 32) sum += m[row * cols + col];

    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (unsigned y = 1; y < BLOCK / 32; y++) sum += parts[y][threadIdx.x];
        sums[col] = sum;
    }
}

// velocity = momentum * velocity + gradient;  value -= rate * velocity
extern "C" __global__ void sgd_update(float *value, float *velocity, const float *gradient,
                                      float rate, float momentum, unsigned len) {
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < len) {
        velocity[i] = momentum * velocity[i] + gradient[i];
        value[i] -= rate * velocity[i];
    }
}

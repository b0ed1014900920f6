// Kernels whose operations and bytes can be counted by hand. BLOCK, the number of threads in a block, comes from the host,
// and so do SIDE and DEPTH of the matrix product.

// x = value
extern "C" __global__ void fill(float *x, float value, unsigned quarter) {
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < quarter) reinterpret_cast<float4 *>(x)[i] = make_float4(value, value, value, value);
}

// y = a x + y, four numbers a thread: one multiply-add each
extern "C" __global__ void axpy(float *y, const float *x, float a, unsigned quarter) {
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= quarter) return;
    float4 add = reinterpret_cast<const float4 *>(x)[i];
    float4 *place = reinterpret_cast<float4 *>(y) + i;
    float4 to = *place;
    to.x = fmaf(a, add.x, to.x);
    to.y = fmaf(a, add.y, to.y);
    to.z = fmaf(a, add.z, to.z);
    to.w = fmaf(a, add.w, to.w);
    *place = to;
}

// sums[block] = the sum of every number that the block's threads pass: one addition each, and BLOCK - 1 for the block
extern "C" __global__ void sum(float *sums, const float *x, unsigned len) {
    __shared__ float parts[BLOCK];
    float part = 0.0f;
    for (unsigned i = blockIdx.x * BLOCK + threadIdx.x; i < len; i += gridDim.x * BLOCK)
        part = __fadd_rn(part, x[i]);
    parts[threadIdx.x] = part;
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            parts[threadIdx.x] = __fadd_rn(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}

// c[rows][SIDE] = a[rows][DEPTH] b[DEPTH][SIDE]; a block takes SIDE rows, a thread 4 x 4 numbers of the result, so that
// each number of a is read from memory once
extern "C" __global__ void gemm(float *c, const float *a, const float *b) {
    __shared__ float left[DEPTH][SIDE + 1]; // the odd length keeps writes off one bank
    __shared__ float right[DEPTH][SIDE];
    const float *rows = a + static_cast<size_t>(blockIdx.x) * SIDE * DEPTH;
    for (unsigned i = threadIdx.x; i < SIDE * DEPTH; i += BLOCK) {
        left[i % DEPTH][i / DEPTH] = rows[i];
        right[i / SIDE][i % SIDE] = b[i];
    }
    __syncthreads();
    unsigned row = threadIdx.x / (SIDE / 4) * 4, column = threadIdx.x % (SIDE / 4) * 4;
    float part[4][4] = {};
    for (unsigned k = 0; k < DEPTH; ++k)
        for (unsigned i = 0; i < 4; ++i)
            for (unsigned j = 0; j < 4; ++j)
                part[i][j] = fmaf(left[k][row + i], right[k][column + j], part[i][j]);
    float *to = c + (static_cast<size_t>(blockIdx.x) * SIDE + row) * SIDE + column;
    for (unsigned i = 0; i < 4; ++i)
        *reinterpret_cast<float4 *>(to + i * SIDE) =
            make_float4(part[i][0], part[i][1], part[i][2], part[i][3]);
}

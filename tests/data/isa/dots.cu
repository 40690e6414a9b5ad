// The same for NVIDIA, one file: a matrix loop, and a kernel that spills.
extern "C" __global__ void dots(const int4* a, const int2* b, const float* scale, float4* out, int k) {
    __shared__ int2 tile[64];
    float4 sum = {};
    for (int i = 0; i < k; ++i) {
        const int4 x = a[i * 32 + threadIdx.x];
        tile[threadIdx.x] = b[i * 32 + threadIdx.x];
        __syncthreads();
        const int2 y = tile[threadIdx.x ^ 1];
        int c[4] = {};
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y));
        sum.x += c[0] * scale[i];
        sum.y += c[1] * scale[i];
        sum.z += c[2] * scale[i];
        sum.w += c[3] * scale[i];
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* in, float* out, int k) {
    float kept[64];
    #pragma unroll
    for (int j = 0; j < 64; ++j) kept[j] = in[j * 1024 + threadIdx.x];
    for (int i = 0; i < k; ++i)
        #pragma unroll
        for (int j = 0; j < 64; ++j) kept[j] = kept[j] * kept[(j + 7) & 63] + in[i];
    #pragma unroll
    for (int j = 0; j < 64; ++j) out[j * 1024 + threadIdx.x] = kept[j];
}

// A matrix loop for the tests of `edge0verify isa`, built twice: as it is, and worse (-DWORSE). README.md has the commands.
#define GLOBAL extern "C" __attribute__((global))
typedef int v4i __attribute__((ext_vector_type(4)));
typedef int v8i __attribute__((ext_vector_type(8)));
typedef float v8f __attribute__((ext_vector_type(8)));

#ifdef WORSE
#define FEW __attribute__((amdgpu_num_vgpr(32)))
#else
#define FEW
#endif

GLOBAL FEW void dots(const v4i* a, const v4i* b, const float* scale, v8f* out, int k) {
    __attribute__((shared)) static v4i tile[256];
    const int lane = __builtin_amdgcn_workitem_id_x();
    v8f sum = {};
    for (int i = 0; i < k; ++i) {
        tile[lane] = b[i * 32 + lane];
        __builtin_amdgcn_s_barrier();
        const v8i product = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a[i * 32 + lane], true, tile[lane ^ 1], v8i{}, false);
        for (int j = 0; j < 8; ++j) {
            sum[j] = __builtin_fmaf((float)product[j], scale[i], sum[j]);
#ifdef WORSE
            sum[j] = sum[j] * scale[i + 1] + scale[j];
#endif
        }
    }
    out[lane] = sum;
}

#ifndef WORSE
GLOBAL void gone(float* out) { out[__builtin_amdgcn_workitem_id_x()] = 1.0f; }
#endif

// A libamdhip64.so over host memory, for the adapter's test: FAKE_HIP_FAIL names the call that fails, FAKE_HIP_AFTER how many of that
// call succeed first.  Kernels run through the CPU build of the same source (FAKE_HIP_KERNELS).
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char* name) {
    static int seen = 0;
    const char *which = getenv("FAKE_HIP_FAIL"), *after = getenv("FAKE_HIP_AFTER");
    if (!which || strcmp(which, name)) return 0;
    return seen++ >= (after ? atoi(after) : 0) ? 719 : 0;   // hipErrorLaunchFailure
}
#define CALL(name, args, ...) \
    int name args { const int error = fails(#name); if (error) return error; __VA_ARGS__; return 0; }

CALL(hipGetDeviceCount, (int* n), *n = getenv("FAKE_HIP_NONE") ? 0 : 1)
CALL(hipDriverGetVersion, (int* v), *v = 60300000)
CALL(hipSetDevice, (int d), (void)d)
int hipGetLastError(void) { return 0; }
static void properties(char* p) {
    memset(p, 0, 1472);
    strcpy(p, "Fake Radeon");
    const size_t memory = (size_t)24 << 30;
    memcpy(p + 288, &memory, 8);
    strcpy(p + 1160, "gfx1100:sramecc-:xnack-");
}
CALL(hipGetDevicePropertiesR0600, (char* p, int d), (void)d; properties(p))
CALL(hipGetDeviceProperties, (char* p, int d), (void)d; properties(p))
CALL(hipMalloc, (void** p, size_t n), *p = aligned_alloc(256, (n + 255) & ~(size_t)255))
CALL(hipFree, (void* p), free(p))
CALL(hipHostMalloc, (void** p, size_t n, unsigned f), (void)f; *p = aligned_alloc(256, (n + 255) & ~(size_t)255))
CALL(hipHostFree, (void* p), free(p))
CALL(hipMemcpy, (void* to, const void* from, size_t n, int kind), (void)kind; memcpy(to, from, n))
CALL(hipMemcpyAsync, (void* to, const void* from, size_t n, int kind, void* s), (void)kind; (void)s; memcpy(to, from, n))
CALL(hipMemsetD8Async, (void* p, unsigned char v, size_t n, void* s), (void)s; memset(p, v, n))
CALL(hipMemsetD16Async, (uint16_t* p, uint16_t v, size_t n, void* s), (void)s; for (size_t i = 0; i < n; ++i) p[i] = v)
CALL(hipMemsetD32Async, (uint32_t* p, int v, size_t n, void* s), (void)s; for (size_t i = 0; i < n; ++i) p[i] = (uint32_t)v)
CALL(hipDeviceSynchronize, (void), (void)0)
CALL(hipStreamSynchronize, (void* s), (void)s)
CALL(hipStreamCreateWithFlags, (void** s, unsigned f), (void)f; *s = (void*)0x51)
CALL(hipEventCreateWithFlags, (void** e, unsigned f), (void)f; *e = (void*)0xe1)
CALL(hipEventRecord, (void* e, void* s), (void)e; (void)s)
CALL(hipEventSynchronize, (void* e), (void)e)
CALL(hipEventElapsedTime, (float* ms, void* a, void* b), (void)a; (void)b; *ms = 1.5f)
CALL(hipStreamWaitEvent, (void* s, void* e, unsigned f), (void)s; (void)e; (void)f)
CALL(hipDeviceCanAccessPeer, (int* can, int d, int p), (void)d; (void)p; *can = 0)
CALL(hipModuleLoadData, (void** m, const void* image), (void)image; *m = (void*)0x3d)
CALL(hipModuleGetFunction, (void** f, void* m, const char* name), (void)m; *f = strdup(name))
typedef int (*launch_t)(const char*, int64_t, void**, int, int);
int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* s,
                          void** args, void** extra) {
    static launch_t launch = 0;
    const int error = fails("hipModuleLaunchKernel");
    if (error) return error;
    if (!launch) launch = (launch_t)dlsym(dlopen(getenv("FAKE_HIP_KERNELS"), RTLD_NOW), "e0_phase_launch");
    (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)s; (void)extra;
    return launch((const char*)f, gx, args, -1, 1) ? 500 : 0;
}
const char* hipGetErrorName(int e) { (void)e; return "fake"; }
const char* hipGetErrorString(int e) { (void)e; return "fake"; }

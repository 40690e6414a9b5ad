# GPU builds of the portable kernels, on a machine that needs no GPU.  `make -f kernels/gpu.mk kernels-hip kernels-cuda`
HIP_CLANG ?= clang-19
GPU_PYTHON ?= .venv/bin/python
GPU_OUT ?= build/gpu
HIP_ARCHS ?= gfx1100 gfx1151
# IEEE meaning of every operation; -mcumode: a work group stays in one compute unit, so LDS-only barriers suffice.
HIP_FLAGS = -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -O3 -std=c++17 -ffp-contract=off \
            -fhip-fp32-correctly-rounded-divide-sqrt -mcumode -Ikernels -Wall -Wextra -Wno-unused-function -Wno-unused-const-variable
KERNEL_HEADERS = $(wildcard kernels/port/*.h kernels/portable/*.h kernels/cuda/*.h)

.PHONY: kernels-hip kernels-cuda
kernels-hip: $(HIP_ARCHS:%=$(GPU_OUT)/kernels.%.co)

$(GPU_OUT)/kernels.%.co: kernels/hip/kernels.hip $(KERNEL_HEADERS)
	@command -v $(HIP_CLANG) >/dev/null || { echo "needs: apt-get install -y --no-install-recommends clang-19 lld-19 llvm-19"; exit 2; }
	@mkdir -p $(GPU_OUT)
	$(HIP_CLANG) $(HIP_FLAGS) --offload-arch=$* -o $@ $<

kernels-cuda:
	@mkdir -p $(GPU_OUT)
	$(GPU_PYTHON) -m edge0verify.runtime.compile --arch sm_90 --tuned --out $(GPU_OUT)/kernels.sm_90.cubin

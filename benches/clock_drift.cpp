// How far CUPTI's GPU times drift from the host's in the first seconds of a process, with CUPTI's own clock and with a
// timestamp callback. docs/decisions/002-clock.md stands on it.
//
//   nvcc -O2 -std=c++17 clock_drift.cpp -o clock_drift -I<cuda>/extras/CUPTI/include -L<cuda>/extras/CUPTI/lib64
//       -lcuda -lcupti
//   ./clock_drift own|monotonic [seconds]
//
// Every 200 ms it launches 200 empty kernels on an idle GPU. The least time from a call's start to its kernel's start is
// then some 5 us, always the same on a good clock. A line a burst: seconds, and that least time in nanoseconds.

#include <cuda.h>
#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <time.h>
#include <unordered_map>

namespace {

clockid_t clock_id = CLOCK_REALTIME;  // CUPTI's own on Linux
std::unordered_map<uint32_t, uint64_t> entered;
int64_t least = LLONG_MAX;

uint64_t CUPTIAPI now() {
    timespec time{};
    clock_gettime(clock_id, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

void CUPTIAPI callback(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *data) {
    const auto *call = static_cast<const CUpti_CallbackData *>(data);
    if (call->callbackSite == CUPTI_API_ENTER) {
        entered[call->correlationId] = now();
    }
}

void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *max_records) {
    *size = size_t{1} << 20;
    *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, *size));
    *max_records = 0;
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    CUpti_Activity *record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            continue;
        }
        const auto *kernel = reinterpret_cast<const CUpti_ActivityKernel9 *>(record);
        const auto call = entered.find(static_cast<uint32_t>(kernel->correlationId));
        if (call != entered.end()) {
            least = std::min(least, static_cast<int64_t>(kernel->start - call->second));
        }
    }
    std::free(buffer);
}

template <typename Code>
void check(Code code, const char *what) {
    if (code != Code{}) {
        std::fprintf(stderr, "%s failed: %d\n", what, static_cast<int>(code));
        std::exit(1);
    }
}
#define CHECK(call) check(call, #call)

constexpr char PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n";
constexpr CUpti_CallbackId LAUNCH_KERNEL = 307;  // cuLaunchKernel

}  // namespace

int main(int argc, char **argv) {
    const bool monotonic = argc > 1 && std::strcmp(argv[1], "monotonic") == 0;
    const double seconds = argc > 2 ? std::atof(argv[2]) : 6.0;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction empty;
    CUstream stream;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, PTX));
    CHECK(cuModuleGetFunction(&empty, module, "empty"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    if (monotonic) {
        clock_id = CLOCK_MONOTONIC;
        CHECK(cuptiActivityRegisterTimestampCallback(now));
    }
    CUpti_SubscriberHandle subscriber;
    CHECK(cuptiSubscribe(&subscriber, reinterpret_cast<CUpti_CallbackFunc>(callback), nullptr));
    CHECK(cuptiActivityRegisterCallbacks(requested, completed));
    CHECK(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, LAUNCH_KERNEL));
    CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));

    const auto begin = std::chrono::steady_clock::now();
    std::chrono::duration<double> passed{};
    while ((passed = std::chrono::steady_clock::now() - begin).count() < seconds) {
        for (int i = 0; i < 200; ++i) {
            CHECK(cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr));
        }
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuptiActivityFlushAll(0));
        std::printf("%.1f %lld\n", passed.count(), static_cast<long long>(least));
        least = LLONG_MAX;
        entered.clear();
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return 0;
}

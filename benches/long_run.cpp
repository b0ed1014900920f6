// Does CUPTI itself grow while it is flushed again and again? Nothing of ours is in here.
//
// Threads launch an empty kernel all the time and wait for it every 200 launches; meanwhile `cuptiActivityFlushAll(0)` is
// called every so many milliseconds, as whoever takes records out while a program runs has to. Each line gives the
// seconds since the start, the launches, the records that came, how many of kernels have no times or end before they start, the
// process's memory, the memory that the C library has handed out, device memory in use, and how long a flush took, on average and at most.
//
//   nvcc -O2 -std=c++17 long_run.cpp -I<cuda>/extras/CUPTI/include -L<cuda>/extras/CUPTI/lib64 -lcupti -lcuda -lpthread -o long_run
//   long_run SECONDS FLUSH_MS KINDS CALLBACKS THREADS GRAPH CYCLE POOL
//     FLUSH_MS 0: never, below 0: with CUPTI_ACTIVITY_FLAG_FLUSH_FORCED; KINDS: k kernels, s synchronisation, m copies and memsets, o overhead; CALLBACKS: 0 none, 1 of
//     launches, 2 of graph nodes that are made and copied, 3 both; GRAPH 1: a graph of 100 nodes is captured and
//     instantiated before and never launched, 2: and destroyed at once, 3: and launched after every 200 kernels, 4: 500 nodes, and
//     nothing else is launched; CYCLE 1: every 3 s all
//     kinds are turned off and on, 2: and the subscription is ended and begun anew, 3: kinds are on for every fourth FLUSH_MS,
//     4: every 3 s the callbacks are turned off and on, 5: those of graph nodes are turned off after 3 s, for good; POOL: the
//     most device buffers, 0 for CUPTI's own number

#include <cuda.h>
#include <cupti.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr size_t BUFFER_BYTES = size_t{1} << 20;

std::atomic<uint64_t> records{0}, untimed{0}, reversed{0}, launches{0}, buffers{0};
std::atomic<bool> over{false};
std::mutex lock;
std::vector<uint8_t *> ready;

void check(int code, const char *what) {
    if (code != 0) {
        std::fprintf(stderr, "long_run: %s gives %d\n", what, code);
        std::exit(1);
    }
}

void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *max_records) {
    const std::lock_guard<std::mutex> held(lock);
    if (ready.empty()) {
        buffers += 1;
        *buffer = static_cast<uint8_t *>(std::aligned_alloc(64, BUFFER_BYTES));
    } else {
        *buffer = ready.back();
        ready.pop_back();
    }
    *size = BUFFER_BYTES;
    *max_records = 0;
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    CUpti_Activity *record = nullptr;
    uint64_t count = 0;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        ++count;
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            // Start and end lie where they did in all versions since CUpti_ActivityKernel3 (cupti-rs/facts).
            const auto *kernel = reinterpret_cast<const CUpti_ActivityKernel9 *>(record);
            if (kernel->start == 0 || kernel->end == 0) {
                ++untimed;
            } else if (kernel->end < kernel->start) {
                ++reversed;
            }
        }
    }
    records += count;
    const std::lock_guard<std::mutex> held(lock);
    ready.push_back(buffer);
}

void CUPTIAPI callback(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *) {}

const char *PTX = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";

size_t resident_kib() {
    size_t pages = 0, all = 0;
    if (FILE *file = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(file, "%zu %zu", &all, &pages) != 2) {
            pages = 0;
        }
        std::fclose(file);
    }
    return pages * 4;
}

} // namespace

int main(int count, char **arguments) {
    auto argument = [&](int place, const char *otherwise) { return count > place ? arguments[place] : otherwise; };
    const int seconds = std::atoi(argument(1, "20")), flush_ms = std::atoi(argument(2, "50"));
    const char *kinds = argument(3, "kmso");
    const int callbacks = std::atoi(argument(4, "1"));
    const int threads = std::atoi(argument(5, "4")), with_graph = std::atoi(argument(6, "0")), cycle = std::atoi(argument(7, "0"));
    size_t pool = std::strtoul(argument(8, "0"), nullptr, 10);

    check(cuInit(0), "cuInit");
    CUdevice device;
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    CUcontext context;
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    CUmodule module;
    check(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    CUfunction nothing;
    check(cuModuleGetFunction(&nothing, module, "nothing"), "cuModuleGetFunction");

    if (pool != 0) {
        size_t bytes = sizeof pool;
        check(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &bytes, &pool), "cuptiActivitySetAttribute");
    }
    size_t free_before = 0, free_now = 0, whole = 0;
    check(cuMemGetInfo(&free_before, &whole), "cuMemGetInfo");
    CUpti_SubscriberHandle subscriber = nullptr;
    const auto turn_callbacks = [&](int which, uint32_t on) {
        if ((which & 1) != 0) {
            for (CUpti_driver_api_trace_cbid id : {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize}) {
                check(cuptiEnableCallback(on, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id), "cuptiEnableCallback");
            }
        }
        if ((which & 2) != 0) {
            for (CUpti_CallbackIdResource id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                                                CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED}) {
                check(cuptiEnableCallback(on, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id), "cuptiEnableCallback");
            }
        }
    };
    const auto turn_on = [&] {
        if (subscriber == nullptr) {
            check(cuptiSubscribe(&subscriber, callback, nullptr), "cuptiSubscribe");
        }
        check(cuptiActivityRegisterCallbacks(requested, completed), "cuptiActivityRegisterCallbacks");
        turn_callbacks(callbacks, 1);
        auto enable = [&](char letter, CUpti_ActivityKind kind) {
            if (std::strchr(kinds, letter) != nullptr) {
                check(cuptiActivityEnable(kind), "cuptiActivityEnable");
            }
        };
        enable('k', CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        enable('m', CUPTI_ACTIVITY_KIND_MEMCPY);
        enable('m', CUPTI_ACTIVITY_KIND_MEMSET);
        enable('s', CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
        enable('o', CUPTI_ACTIVITY_KIND_OVERHEAD);
    };
    const auto turn_off = [&] {
        for (CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_OVERHEAD}) {
            cuptiActivityDisable(kind);
        }
        if (cycle == 2) {
            check(cuptiUnsubscribe(subscriber), "cuptiUnsubscribe");
            subscriber = nullptr;
        }
    };
    turn_on();

    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&] {
            check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
            CUstream stream;
            check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
            CUgraphExec executable = nullptr;
            if (with_graph != 0) {
                CUgraph graph;
                check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
                for (int j = 0; j < (with_graph == 4 ? 500 : 100); ++j) {
                    check(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
                }
                check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
                check(cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
                check(cuGraphDestroy(graph), "cuGraphDestroy");
                if (with_graph == 2) {
                    check(cuGraphExecDestroy(executable), "cuGraphExecDestroy");
                }
            }
            while (!over) {
                if (with_graph >= 3) {
                    check(cuGraphLaunch(executable, stream), "cuGraphLaunch");
                }
                for (int j = 0; j < 200 && with_graph != 4; ++j) {
                    check(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
                }
                check(cuStreamSynchronize(stream), "cuStreamSynchronize");
                launches += with_graph == 4 ? 500 : 200;
            }
        });
    }
    const auto start = std::chrono::steady_clock::now();
    auto since = [&](auto from) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(); };
    double next = 0, next_cycle = 3, slowest = 0, flushing = 0;
    int flushes = 0, periods = 0;
    while (since(start) < seconds) {
        if (flush_ms != 0) {
            const auto flush = std::chrono::steady_clock::now();
            const uint32_t flags = flush_ms < 0 ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0;
            check(cuptiActivityFlushAll(flags), "cuptiActivityFlushAll");
            const double took = since(flush) * 1e3;
            slowest = std::max(slowest, took);
            flushing += took;
            flushes += 1;
        }
        if (cycle == 3) {
            turn_off();
            if (++periods % 4 == 0) {
                turn_on();
            }
        } else if (cycle != 0 && since(start) >= next_cycle) {
            if (cycle < 3) {
                turn_off();
                turn_on();
            } else if (cycle == 4) {
                turn_callbacks(callbacks, 0);
                turn_callbacks(callbacks, 1);
            } else {
                turn_callbacks(callbacks & 2, 0);
            }
            next_cycle += 3;
        }
        if (since(start) >= next) {
            check(cuMemGetInfo(&free_now, &whole), "cuMemGetInfo");
            std::printf("%5.1f s, %lu launches, %lu records, %lu without times, %lu reversed, %zu MiB resident, %zu MiB handed out, %ld MiB of the device, "
                        "%lu buffers, flush %.1f ms, at most %.1f ms\n",
                        since(start), launches.load(), records.load(), untimed.load(), reversed.load(), resident_kib() >> 10,
                        mallinfo2().uordblks >> 20, (static_cast<long>(free_before) - static_cast<long>(free_now)) >> 20, buffers.load(),
                        flushing / std::max(flushes, 1), slowest);
            std::fflush(stdout);
            next += 5;
            slowest = flushing = 0;
            flushes = 0;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(flush_ms != 0 ? std::abs(flush_ms) : 50));
    }
    over = true;
    for (auto &worker : workers) {
        worker.join();
    }
    check(cuptiActivityFlushAll(0), "cuptiActivityFlushAll");
    std::printf("end: %lu launches, %lu records, %lu without times, %lu reversed, %zu MiB resident, %zu MiB handed out\n", launches.load(), records.load(),
                untimed.load(), reversed.load(), resident_kib() >> 10, mallinfo2().uordblks >> 20);
}

// How can callbacks of CUPTI be turned off and on again beside threads that make calls, and what does each way cost? Nothing of ours is in here.
//
// Threads make requests of 12 launches and a wait all the time. Callbacks are on for MS milliseconds and off for as many, TIMES times. Printed are the
// calls per millisecond while they are on and while they are off, how long turning them off took, and for each time that they were on the threads
// whose calls all had one correlation id, and those that were not called back at all ("1+2": one and two).
//
//   g++ -O2 -std=c++17 callback_switch.cpp -I<cuda>/include -I<cuda>/extras/CUPTI/include <libcupti.so> -l:libcuda.so.1 -lpthread -o callback_switch
//   callback_switch TIMES MS HOW THREADS [US [RECORDS]]
//     US: how many microseconds each kernel runs
//     HOW, callbacks are turned off:
//       never    they never were on
//       ids      each is disabled
//       many     as ids, of all functions of the driver
//       domain   all at once
//       renewed  as ids, and the subscription ends and another begins
//       swap     the subscription ends with its callbacks enabled, and another begins
//       inside   as swap, within the callback of a call's return
//       toggled  as swap, and after half the time each is enabled and disabled
//       parked   as ids, while each thread waits in the callback of a call's return
//       race     as parked, with one more thread, which makes calls now and then and is not waited for
//       pinned   as swap the first time, then as parked
//       redone   each is disabled while the one thread waits in the callback of a call's begin, which enables its own again until the call returns
//       kept     not at all
//     RECORDS: none, registered (buffers can be had, no kind is enabled), once (kernels' records were enabled for a while before), on (they are)

#include <cuda.h>
#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr CUpti_CallbackDomain DRIVER = CUPTI_CB_DOMAIN_DRIVER_API;
constexpr uint32_t LAUNCH = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, WAIT = CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize;

struct alignas(64) Worker {
    std::atomic<uint64_t> made{0}, seen{0};
    std::atomic<uint32_t> first_id{0}, last_id{0};
    uint64_t made_before = 0, seen_before = 0;
};

std::deque<Worker> workers;
std::atomic<bool> over{false}, parks{false}, swaps_inside{false}, holds{false};
std::atomic<int> parked{0}, held{0};
thread_local Worker *own = nullptr;
thread_local bool is_redone = false;
CUpti_SubscriberHandle subscriber = nullptr;

void check(int code, const char *what) {
    if (code != 0) {
        std::fprintf(stderr, "callback_switch: %s gives %d\n", what, code);
        std::exit(1);
    }
}

void enable(uint32_t id, bool on) {
    check(cuptiEnableCallback(on, subscriber, DRIVER, id), "cuptiEnableCallback");
}

void CUPTIAPI callback(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *);

void swap() {
    check(cuptiUnsubscribe(subscriber), "cuptiUnsubscribe");
    check(cuptiSubscribe(&subscriber, callback, nullptr), "cuptiSubscribe");
}

void entered(CUpti_CallbackId id, uint32_t correlation_id) {
    own->seen.fetch_add(1, std::memory_order_relaxed);
    own->last_id.store(correlation_id, std::memory_order_relaxed);
    if (own->first_id.load(std::memory_order_relaxed) == 0) {
        own->first_id.store(correlation_id, std::memory_order_relaxed);
    }
    if (holds) {
        held += 1;
        while (holds) {
            std::this_thread::yield();
        }
        enable(id, true);
        is_redone = true;
    }
}

void returned(CUpti_CallbackId id) {
    if (is_redone) {
        enable(id, false);
        is_redone = false;
        held -= 1;
    }
    if (swaps_inside.exchange(false)) {
        swap();
    }
    if (parks) {
        parked += 1;
        while (parks) {
            std::this_thread::yield();
        }
        parked -= 1;
    }
}

void CUPTIAPI callback(void *, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    const auto *call = static_cast<const CUpti_CallbackData *>(data);
    if (own == nullptr || domain != DRIVER || (id != LAUNCH && id != WAIT)) {
        return;
    }
    if (call->callbackSite == CUPTI_API_ENTER) {
        entered(id, call->correlationId);
    } else {
        returned(id);
    }
}

// Buffers for records that nobody reads.
void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 1 << 20;
    *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, *size));
    *records = 0;
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t) {
    std::free(buffer);
}

// Runs for a number of nanoseconds of the GPU's timer.
const char *PTX = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 nanoseconds) {
    .reg .u64 %begin, %now, %passed, %wanted;
    .reg .pred %go_on;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %begin;
    setp.lt.u64 %go_on, %passed, %wanted;
    @%go_on bra again;
    ret;
}
)";

using Clock = std::chrono::steady_clock;

double since(Clock::time_point from) {
    return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

uint64_t all_made() {
    uint64_t made = 0;
    for (const Worker &worker : workers) {
        made += worker.made;
    }
    return made;
}

// Calls and the time in which they were made.
struct Rate {
    double calls = 0, ms = 0;

    void wait(std::chrono::milliseconds time) {
        const uint64_t before = all_made();
        const auto from = Clock::now();
        std::this_thread::sleep_for(time);
        calls += static_cast<double>(all_made() - before);
        ms += since(from);
    }
};

struct Switch {
    std::string how;
    int threads;
    bool was_swapped = false;

    void all(bool on) const {
        enable(LAUNCH, on);
        enable(WAIT, on);
    }

    void turn_on() const {
        if (how == "never") {
            return;
        }
        if (subscriber == nullptr) {
            check(cuptiSubscribe(&subscriber, callback, nullptr), "cuptiSubscribe");
        }
        if (how == "domain") {
            check(cuptiEnableDomain(1, subscriber, DRIVER), "cuptiEnableDomain");
        } else if (how == "many") {
            for (uint32_t id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) {
                cuptiEnableCallback(1, subscriber, DRIVER, id);
            }
        } else {
            all(true);
        }
    }

    void turn_off() {
        const bool swaps = how == "swap" || how == "toggled" || (how == "pinned" && !was_swapped);
        if (how == "never" || how == "kept") {
        } else if (how == "domain") {
            check(cuptiEnableDomain(0, subscriber, DRIVER), "cuptiEnableDomain");
        } else if (how == "many") {
            for (uint32_t id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) {
                cuptiEnableCallback(0, subscriber, DRIVER, id);
            }
        } else if (swaps) {
            swap();
            was_swapped = true;
        } else if (how == "inside") {
            swaps_inside = true;
            while (swaps_inside) {
                std::this_thread::yield();
            }
        } else if (how == "redone") {
            holds = true;
            while (held == 0) {
                std::this_thread::yield();
            }
            all(false);
            holds = false;
            while (held != 0) {
                std::this_thread::yield();
            }
        } else {
            parks = how == "parked" || how == "race" || how == "pinned";
            const auto start = Clock::now();
            while (parks && parked < threads && since(start) < 1e3) {
                std::this_thread::yield();
            }
            all(false);
            parks = false;
            if (how == "renewed") {
                swap();
            }
        }
    }

    void after_half_the_time() const {
        if (how == "toggled") {
            for (uint32_t id : {LAUNCH, WAIT}) {
                enable(id, true);
                enable(id, false);
            }
        }
    }
};

} // namespace

int main(int count, char **arguments) {
    auto argument = [&](int place, const char *otherwise) { return count > place ? arguments[place] : otherwise; };
    const int times = std::atoi(argument(1, "10"));
    const std::chrono::milliseconds turn(std::atoi(argument(2, "100")));
    const std::string how = argument(3, "ids"), records = argument(6, "none");
    const int threads = std::atoi(argument(4, "4"));
    uint64_t kernel_ns = std::strtoull(argument(5, "0"), nullptr, 10) * 1000;
    const auto is_one_of = [](const std::string &word, std::initializer_list<const char *> words) {
        return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (times < 1 || threads < 1 || (how == "redone" && threads > 1) || !is_one_of(records, {"none", "registered", "once", "on"}) ||
        !is_one_of(how, {"never", "ids", "many", "domain", "renewed", "swap", "inside", "toggled", "parked", "race", "pinned", "redone", "kept"})) {
        std::fprintf(stderr, "usage: callback_switch TIMES MS HOW THREADS [US [RECORDS]], as the head of callback_switch.cpp describes them\n");
        return 2;
    }

    check(cuInit(0), "cuInit");
    CUdevice device;
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    CUcontext context;
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    CUmodule module;
    check(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    CUfunction spin;
    check(cuModuleGetFunction(&spin, module, "spin"), "cuModuleGetFunction");

    // Waits up to 255 us between launches of its own if it is the one that is not waited for.
    auto serve = [&](Worker *worker, bool is_rare) {
        check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        CUstream stream;
        check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        own = worker;
        void *parameters[] = {&kernel_ns};
        for (uint32_t random = 1; !over; random = random * 1664525 + 1013904223) {
            for (int i = 0; i < (is_rare ? 1 : 12); ++i) {
                check(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
                worker->made.fetch_add(1, std::memory_order_relaxed);
            }
            if (is_rare) {
                const auto until = Clock::now() + std::chrono::microseconds(random >> 24);
                while (Clock::now() < until) {
                }
                continue;
            }
            check(cuStreamSynchronize(stream), "cuStreamSynchronize");
            worker->made.fetch_add(1, std::memory_order_relaxed);
        }
        own = nullptr;
        check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    };
    std::vector<std::thread> running;
    for (int i = 0; i < threads + (how == "race" ? 1 : 0); ++i) {
        workers.emplace_back();
        running.emplace_back(serve, &workers.back(), i == threads);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));

    Switch callbacks{how, threads};
    if (records != "none") {
        // Enabling a kind beside threads that launch, with no callback enabled, crashes (13.0).
        callbacks.turn_on();
        check(cuptiActivityRegisterCallbacks(requested, completed), "cuptiActivityRegisterCallbacks");
    }
    if (records == "once" || records == "on") {
        check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
        std::this_thread::sleep_for(turn);
    }
    if (records == "once") {
        check(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable");
    }

    Rate on, off;
    std::string lost;
    double longest_ms = 0;
    for (int nth = 0; nth < times; ++nth) {
        callbacks.turn_on();
        for (Worker &worker : workers) {
            worker.made_before = worker.made;
            worker.seen_before = worker.seen;
            worker.first_id = 0;
        }
        on.wait(turn);
        int stuck = 0, silent = 0;
        for (Worker &worker : workers) {
            const uint64_t made = worker.made - worker.made_before, seen = worker.seen - worker.seen_before;
            stuck += seen > 10 && worker.first_id == worker.last_id ? 1 : 0;
            silent += made > 10 && seen == 0 ? 1 : 0;
        }
        lost += " " + std::to_string(stuck) + "+" + std::to_string(silent);
        const auto from = Clock::now();
        callbacks.turn_off();
        longest_ms = std::max(longest_ms, since(from));
        std::this_thread::sleep_for(turn / 2);
        callbacks.after_half_the_time();
        off.wait(turn);
    }
    std::printf("%s: %.2f calls/ms with callbacks, %.2f without, turned off in at most %.3f ms; threads with one id + silent:%s\n", how.c_str(),
                on.calls / on.ms, off.calls / off.ms, longest_ms, lost.c_str());
    over = true;
    for (std::thread &thread : running) {
        thread.join();
    }
}

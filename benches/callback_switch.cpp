// Does CUPTI call back for every call of a thread once callbacks were turned off and on again beside it? Nothing of ours is in here.
//
// Threads make requests of 12 launches and a wait all the time. Callbacks are on for MS milliseconds and off for as many, TIMES times. Each line is of a
// time in which they were on: how long turning them on took, and turning them off before it; the calls that returned meanwhile, and how many of them
// called back; by how much CUPTI's correlation ids advanced from the first to the last of these; the threads that made calls of which none called back,
// and how many of those were in a call when the callbacks were last turned off. Before the last time one more thread begins; the last line is of it.
//
//   nvcc -O2 -std=c++17 callback_switch.cpp -I<cuda>/extras/CUPTI/include -L<cuda>/extras/CUPTI/lib64 -lcupti -lcuda -lpthread -o callback_switch
//   callback_switch TIMES MS HOW WORK THREADS
//     HOW: ids (cuLaunchKernel and cuStreamSynchronize), many (each function of the driver by its id), launches and waits (that function alone, the other one
//     stays on), domain (all functions at once), again (the subscription ends and begins anew), parked (each thread waits in the callback of a call's return until
//     callbacks are off), kept (they are never turned off); WORK: both, launches, waits

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
    std::atomic<bool> is_in_call{false};
    // What was there when callbacks were on, and whether it was in a call when they were turned off.
    uint64_t made_before = 0, seen_before = 0;
    bool was_in_call = false;
};

std::deque<Worker> workers;
std::atomic<bool> over{false}, is_parking{false};
std::atomic<int> parked{0};
thread_local Worker *own = nullptr;

void check(int code, const char *what) {
    if (code != 0) {
        std::fprintf(stderr, "callback_switch: %s gives %d\n", what, code);
        std::exit(1);
    }
}

void CUPTIAPI callback(void *, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    const auto *call = static_cast<const CUpti_CallbackData *>(data);
    if (own == nullptr || domain != DRIVER || (id != LAUNCH && id != WAIT)) {
        return;
    }
    if (call->callbackSite == CUPTI_API_ENTER) {
        own->seen.fetch_add(1, std::memory_order_relaxed);
        own->last_id.store(call->correlationId, std::memory_order_relaxed);
        if (own->first_id.load(std::memory_order_relaxed) == 0) {
            own->first_id.store(call->correlationId, std::memory_order_relaxed);
        }
    } else if (is_parking) {
        parked += 1;
        while (is_parking) {
            std::this_thread::yield();
        }
        parked -= 1;
    }
}

const char *PTX = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";

double since(std::chrono::steady_clock::time_point from) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
}

} // namespace

int main(int count, char **arguments) {
    auto argument = [&](int place, const char *otherwise) { return count > place ? arguments[place] : otherwise; };
    const int times = std::atoi(argument(1, "10"));
    const std::chrono::milliseconds turn(std::atoi(argument(2, "100")));
    const std::string how = argument(3, "ids"), work = argument(4, "both");
    const int threads = std::atoi(argument(5, "4"));
    const auto is_one_of = [](const std::string &word, std::initializer_list<const char *> words) {
        return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (times < 1 || threads < 1 || !is_one_of(work, {"both", "launches", "waits"}) ||
        !is_one_of(how, {"ids", "many", "launches", "waits", "domain", "again", "parked", "kept"})) {
        std::fprintf(stderr, "usage: callback_switch TIMES MS HOW WORK THREADS, as the head of callback_switch.cpp describes them\n");
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
    CUfunction nothing;
    check(cuModuleGetFunction(&nothing, module, "nothing"), "cuModuleGetFunction");

    CUpti_SubscriberHandle subscriber = nullptr;
    auto enable = [&](uint32_t id, bool on) { check(cuptiEnableCallback(on, subscriber, DRIVER, id), "cuptiEnableCallback"); };
    auto turn_on = [&] {
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
            enable(LAUNCH, true);
            enable(WAIT, true);
        }
    };
    auto turn_off = [&] {
        if (how == "domain") {
            check(cuptiEnableDomain(0, subscriber, DRIVER), "cuptiEnableDomain");
        } else if (how == "many") {
            for (uint32_t id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) {
                cuptiEnableCallback(0, subscriber, DRIVER, id);
            }
        } else if (how == "again") {
            check(cuptiUnsubscribe(subscriber), "cuptiUnsubscribe");
            subscriber = nullptr;
        } else if (how != "kept") {
            is_parking = how == "parked";
            const auto start = std::chrono::steady_clock::now();
            while (is_parking && parked < static_cast<int>(workers.size()) && since(start) < 1e3) {
                std::this_thread::yield();
            }
            if (how != "waits") {
                enable(LAUNCH, false);
            }
            if (how != "launches") {
                enable(WAIT, false);
            }
            is_parking = false;
        }
    };

    auto serve = [&](Worker *worker) {
        check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        CUstream stream;
        check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        own = worker;
        auto call = [&](auto made) {
            worker->is_in_call.store(true, std::memory_order_relaxed);
            made();
            worker->is_in_call.store(false, std::memory_order_relaxed);
            worker->made.fetch_add(1, std::memory_order_relaxed);
        };
        while (!over) {
            for (int i = 0; i < 12 && work != "waits"; ++i) {
                call([&] { check(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel"); });
            }
            if (work != "launches") {
                call([&] { check(cuStreamSynchronize(stream), "cuStreamSynchronize"); });
            }
        }
        own = nullptr;
        check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    };
    std::vector<std::thread> running;
    auto begin = [&] {
        workers.emplace_back();
        running.emplace_back(serve, &workers.back());
    };
    for (int i = 0; i < threads; ++i) {
        begin();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));

    double off_ms = 0;
    for (int nth = 0; nth < times; ++nth) {
        if (nth + 1 == times) {
            begin();
            std::this_thread::sleep_for(turn);
        }
        const auto turning_on = std::chrono::steady_clock::now();
        turn_on();
        const double on_ms = since(turning_on);
        for (Worker &worker : workers) {
            worker.made_before = worker.made.load();
            worker.seen_before = worker.seen.load();
            worker.first_id = 0;
        }
        std::this_thread::sleep_for(turn);
        uint64_t made = 0, seen = 0, made_of_last = 0, seen_of_last = 0;
        uint32_t first_id = UINT32_MAX, last_id = 0;
        int silent = 0, were_in_call = 0;
        for (Worker &worker : workers) {
            made_of_last = worker.made.load() - worker.made_before;
            seen_of_last = worker.seen.load() - worker.seen_before;
            made += made_of_last;
            seen += seen_of_last;
            if (worker.first_id != 0) {
                first_id = std::min(first_id, worker.first_id.load());
                last_id = std::max(last_id, worker.last_id.load());
            }
            if (made_of_last > 100 && seen_of_last == 0) {
                silent += 1;
                were_in_call += worker.was_in_call ? 1 : 0;
            }
        }
        std::printf("on %.3f ms, off before %.3f ms: %lu calls, %lu called back (%.4f), ids advanced by %u, %d threads silent, %d of them were in a call\n",
                    on_ms, off_ms, made, seen, static_cast<double>(seen) / static_cast<double>(made), last_id >= first_id ? last_id - first_id : 0,
                    silent, were_in_call);
        if (nth + 1 == times) {
            std::printf("the thread that began last: %lu calls, %lu called back\n", made_of_last, seen_of_last);
            break;
        }
        for (Worker &worker : workers) {
            worker.was_in_call = worker.is_in_call.load();
        }
        const auto turning_off = std::chrono::steady_clock::now();
        turn_off();
        off_ms = since(turning_off);
        std::this_thread::sleep_for(turn);
    }
    over = true;
    for (std::thread &thread : running) {
        thread.join();
    }
}

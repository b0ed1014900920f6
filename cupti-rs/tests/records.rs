//! Every kind of record in every version's layout: what was written is what is read, and what a version does not have is
//! absent.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use cupti::record::*;
use cupti::sys::field::Family;
use cupti::sys::strides::stride_of_kind;
use cupti::sys::{functions, generated};
use cupti::{ActivityKind, Collected, Collector, Config, Version};
use fake_cupti::{Fake, Written};

/// API versions, one for each release that changed a layout and some that did not.
const VERSIONS: [u32; 15] =
    [18, 20, 21, 22, 23, 24, 26, 27, 28, 130_001, 130_101, 130_202, 130_301, 130_401, 130_500];

type Release = (u32, u32);
const ALWAYS: Release = (12, 0);

/// What a version is expected to have.
#[derive(Clone, Copy)]
struct Has(Release);

impl Has {
    /// The value, from this release on.
    fn from<T>(self, release: Release, value: T) -> Option<T> {
        (self.0 >= release).then_some(value)
    }
}

fn decoded(version: Version, kind: ActivityKind, bytes: Vec<u8>) -> RecordBytes {
    let stride = u32::try_from(bytes.len()).unwrap();
    // A second record shows that the first has its stride, and that nothing is read beyond it.
    let mut two = bytes.clone();
    two.extend_from_slice(&bytes);
    RecordBytes::from_parts(version, vec![two], [(kind, stride)], [])
}

/// Writes a record in each version that has the kind, from `first` on, and checks what is read.
fn in_every_version<F: Family>(
    kind: ActivityKind,
    first: Release,
    write: impl Fn(Written<F>) -> Written<F>,
    check: impl Fn(Has, Record<'_>),
) {
    for version in VERSIONS.map(Version) {
        let release = version.cuda_release();
        let written = Written::new(kind, version);
        assert_eq!(written.is_some(), release >= first, "{kind} in {version}");
        let Some(written) = written else { continue };
        let records = decoded(version, kind, write(written).into_bytes());
        let mut seen = 0;
        for record in &records {
            check(Has(release), record);
            seen += 1;
        }
        assert_eq!(seen, 2, "{kind} in {version}");
    }
}

/// The fields of a record of this variant.
macro_rules! of {
    ($record:expr, $variant:ident) => {
        match $record {
            Record::$variant(record) => record,
            other => panic!("not {}: {other:?}", stringify!($variant)),
        }
    };
}

/// Compares a record's fields, all at once so that a failure shows every one.
macro_rules! check {
    ($record:ident: $($field:ident = $value:expr,)+) => {
        $(assert_eq!($record.$field, $value, stringify!($field));)+
    };
}

fn node(record: Option<GraphNode>) -> Option<(u32, u64)> {
    record.map(|node| (node.graph, node.node))
}

fn place(place: cupti::Place) -> [u32; 3] {
    [place.device, place.context, place.stream]
}

fn span(span: cupti::Span) -> (u64, u64) {
    (span.start_ns, span.end_ns)
}

fn channel(channel: Option<Channel>) -> Option<(u32, ChannelKind)> {
    channel.map(|channel| (channel.id, channel.kind))
}

#[test]
fn kernels() {
    use generated::kernel::*;
    let write = |record: Written<Layout>| {
        record
            .set(CACHE_CONFIG_BOTH, 0x21)
            .set(SHARED_MEMORY_CONFIG, 2)
            .set(REGISTERS_PER_THREAD, 255)
            .set(PARTITIONED_GLOBAL_CACHE_REQUESTED, 2)
            .set(PARTITIONED_GLOBAL_CACHE_EXECUTED, 3)
            .set(START, 1 << 60)
            .set(END, (1 << 60) + 5)
            .set(COMPLETED, 1001)
            .set(DEVICE_ID, 1)
            .set(CONTEXT_ID, 2)
            .set(STREAM_ID, 3)
            .set(GRID_X, 4)
            .set(GRID_Y, 5)
            .set(GRID_Z, 6)
            .set(BLOCK_X, 7)
            .set(BLOCK_Y, 8)
            .set(BLOCK_Z, 9)
            .set(STATIC_SHARED_MEMORY, 10)
            .set(DYNAMIC_SHARED_MEMORY, 11)
            .set(LOCAL_MEMORY_PER_THREAD, 12)
            .set(CORRELATION_ID, 13)
            .set(GRID_ID, -14)
            .set(QUEUED, 15)
            .set(SUBMITTED, 16)
            .set(LAUNCH_TYPE, 1)
            .set(IS_SHARED_MEMORY_CARVEOUT_REQUESTED, 1)
            .set(SHARED_MEMORY_CARVEOUT_REQUESTED, 50)
            .set(SHARED_MEMORY_EXECUTED, 17)
            .set(GRAPH_NODE_ID, 18)
            .set(SHMEM_LIMIT_CONFIG, 1)
            .set(GRAPH_ID, 19)
            .set(CHANNEL_ID, 20)
            .set(CHANNEL_TYPE, 1)
            .set(CLUSTER_X, 21)
            .set(CLUSTER_Y, 22)
            .set(CLUSTER_Z, 23)
            .set(CLUSTER_SCHEDULING_POLICY, 2)
            .set(LOCAL_MEMORY_TOTAL_V2, 1 << 40)
            .set(MAX_POTENTIAL_CLUSTER_SIZE, 24)
            .set(MAX_ACTIVE_CLUSTERS, 25)
            .set(IS_DEVICE_LAUNCHED, 1)
            .set(PRIORITY, -5)
            .set(EXECUTION_MODEL, 2)
            .set(SOURCE_GRAPH_ID, 26)
            .set(SOURCE_GRAPH_NODE_ID, 27)
    };
    for kind in [ActivityKind::CONCURRENT_KERNEL, ActivityKind::KERNEL] {
        in_every_version(kind, ALWAYS, write, |has, record| {
            let kernel = of!(record, Kernel);
            check! { kernel:
                name = NameKey(0),
                correlation_id = 13,
                grid = [4, 5, 6],
                block = [7, 8, 9],
                cluster = [21, 22, 23],
                registers_per_thread = 255,
                static_shared_bytes = 10,
                dynamic_shared_bytes = 11,
                local_bytes_per_thread = 12,
            }
            assert_eq!(span(kernel.span), (1 << 60, (1 << 60) + 5));
            assert_eq!(place(kernel.place), [1, 2, 3]);
            assert_eq!(node(kernel.graph_node), Some((19, 18)));
            let details = kernel.details();
            check! { details:
                completed_ns = 1001,
                queued_ns = 15,
                submitted_ns = 16,
                grid_id = -14,
                launch = LaunchType::COOPERATIVE_SINGLE_DEVICE,
                cache_requested = CacheConfig::SHARED,
                cache_executed = CacheConfig::L1,
                shared_banks = SharedMemoryConfig::EIGHT_BYTES,
                partitioned_cache_requested = PartitionedCache::OFF,
                partitioned_cache_executed = PartitionedCache::ON,
                shared_carveout_percent = Some(50),
                shared_executed_bytes = 17,
                shared_limit = SharedMemoryLimit::OPT_IN,
                local_bytes = 1 << 40,
                cluster_scheduling = ClusterScheduling::LOAD_BALANCING,
                max_cluster_size = 24,
                max_active_clusters = 25,
                device_launched = has.from((13, 0), true),
                priority = has.from((13, 1), -5),
                execution_model = has.from((13, 3), ExecutionModel::TILE),
            }
            assert_eq!(channel(details.channel), Some((20, ChannelKind::COMPUTE)));
            assert_eq!(node(details.source_graph_node), has.from((13, 4), (26, 27)));
        });
    }
}

#[test]
fn copies() {
    use generated::memcpy::*;
    let write = |record: Written<Layout>| {
        record
            .set(COPY_KIND, 2)
            .set(SRC_KIND, 3)
            .set(DST_KIND, 1)
            .set(FLAGS, 1)
            .set(BYTES, 1 << 33)
            .set(START, 4)
            .set(END, 5)
            .set(DEVICE_ID, 6)
            .set(CONTEXT_ID, 7)
            .set(STREAM_ID, 8)
            .set(CORRELATION_ID, 9)
            .set(RUNTIME_CORRELATION_ID, 10)
            .set(GRAPH_NODE_ID, 11)
            .set(GRAPH_ID, 12)
            .set(CHANNEL_ID, 13)
            .set(CHANNEL_TYPE, 2)
            .set(IS_DEVICE_LAUNCHED, 1)
            .set(COPY_COUNT, 14)
            .set(SOURCE_GRAPH_ID, 15)
            .set(SOURCE_GRAPH_NODE_ID, 16)
    };
    in_every_version(ActivityKind::MEMCPY, ALWAYS, write, |has, record| {
        let copy = of!(record, Memcpy);
        check! { copy:
            kind = CopyKind::DeviceToHost,
            source = MemoryKind::DEVICE,
            destination = MemoryKind::PAGEABLE,
            bytes = 1 << 33,
            asynchronous = true,
            peers = None,
            correlation_id = 9,
            runtime_correlation_id = Some(10),
            device_launched = has.from((13, 0), true),
            copies = has.from((12, 8), 14),
        }
        assert_eq!((span(copy.span), place(copy.place)), ((4, 5), [6, 7, 8]));
        assert_eq!(node(copy.graph_node), Some((12, 11)));
        assert_eq!(channel(copy.channel), Some((13, ChannelKind::ASYNC_MEMCPY)));
        assert_eq!(node(copy.source_graph_node), has.from((13, 4), (15, 16)));
    });
}

#[test]
fn copies_between_devices() {
    use generated::memcpy2::*;
    let write = |record: Written<Layout>| {
        record
            .set(COPY_KIND, 10)
            .set(SRC_KIND, 3)
            .set(DST_KIND, 4)
            .set(FLAGS, 0)
            .set(BYTES, 3)
            .set(START, 4)
            .set(END, 5)
            .set(DEVICE_ID, 6)
            .set(CONTEXT_ID, 7)
            .set(STREAM_ID, 8)
            .set(SRC_DEVICE_ID, 9)
            .set(SRC_CONTEXT_ID, 10)
            .set(DST_DEVICE_ID, 11)
            .set(DST_CONTEXT_ID, 12)
            .set(CORRELATION_ID, 13)
            .set(GRAPH_NODE_ID, 14)
            .set(GRAPH_ID, 15)
            .set(CHANNEL_ID, u32::MAX)
    };
    in_every_version(ActivityKind::MEMCPY2, ALWAYS, write, |_, record| {
        let copy = of!(record, Memcpy);
        check! { copy:
            kind = CopyKind::PeerToPeer,
            source = MemoryKind::DEVICE,
            destination = MemoryKind::ARRAY,
            bytes = 3,
            asynchronous = false,
            correlation_id = 13,
            runtime_correlation_id = None,
            channel = None,
            device_launched = None,
            copies = None,
            source_graph_node = None,
        }
        assert_eq!((span(copy.span), place(copy.place)), ((4, 5), [6, 7, 8]));
        let peers = copy.peers.unwrap();
        assert_eq!((peers.source_device, peers.source_context), (9, 10));
        assert_eq!((peers.destination_device, peers.destination_context), (11, 12));
        assert_eq!(node(copy.graph_node), Some((15, 14)));
    });
}

#[test]
fn fills() {
    use generated::memset::*;
    let write = |record: Written<Layout>| {
        record
            .set(VALUE, 1)
            .set(BYTES, 2)
            .set(START, 3)
            .set(END, 4)
            .set(DEVICE_ID, 5)
            .set(CONTEXT_ID, 6)
            .set(STREAM_ID, 7)
            .set(CORRELATION_ID, 8)
            .set(FLAGS, 1)
            .set(MEMORY_KIND, 5)
            .set(GRAPH_NODE_ID, 9)
            .set(GRAPH_ID, 10)
            .set(CHANNEL_ID, 11)
            .set(CHANNEL_TYPE, 9)
            .set(IS_DEVICE_LAUNCHED, 0)
            .set(SOURCE_GRAPH_ID, 12)
            .set(SOURCE_GRAPH_NODE_ID, 13)
    };
    in_every_version(ActivityKind::MEMSET, ALWAYS, write, |has, record| {
        let fill = of!(record, Memset);
        check! { fill:
            value = 1,
            bytes = 2,
            memory = MemoryKind::MANAGED,
            asynchronous = true,
            correlation_id = 8,
            device_launched = has.from((13, 0), false),
        }
        assert_eq!((span(fill.span), place(fill.place)), ((3, 4), [5, 6, 7]));
        assert_eq!(node(fill.graph_node), Some((10, 9)));
        assert_eq!(channel(fill.channel), Some((11, ChannelKind(9))));
        assert_eq!(node(fill.source_graph_node), has.from((13, 4), (12, 13)));
    });
}

#[test]
fn calls() {
    use generated::api::*;
    let write = |record: Written<Layout>| {
        record
            .set(CBID, 307)
            .set(START, 1)
            .set(END, 2)
            .set(PROCESS_ID, 3)
            .set(THREAD_ID, 4)
            .set(CORRELATION_ID, 5)
            .set(RETURN_VALUE, 700)
    };
    let kinds = [
        (ActivityKind::DRIVER, ApiFunction::Driver(307)),
        (ActivityKind::RUNTIME, ApiFunction::Runtime(307)),
        (ActivityKind::INTERNAL_LAUNCH_API, ApiFunction::Internal),
    ];
    for (kind, function) in kinds {
        in_every_version(kind, ALWAYS, write, |_, record| {
            let call = of!(record, ApiCall);
            check! { call:
                function = function,
                process = 3,
                thread = 4,
                correlation_id = 5,
                result = 700,
            }
            assert_eq!(span(call.span), (1, 2));
        });
    }
    let names = [
        (ApiFunction::Driver(307), Some("cuLaunchKernel")),
        (ApiFunction::Driver(1), Some("cuInit")),
        (ApiFunction::Runtime(20), Some("cudaMalloc_v3020")),
        (ApiFunction::Runtime(211), Some("cudaLaunchKernel_v7000")),
        (ApiFunction::Driver(0), None),
        (ApiFunction::Runtime(1_000_000), None),
        (ApiFunction::Internal, None),
    ];
    for (function, name) in names {
        assert_eq!(function.name(), name, "{function:?}");
    }
    assert_eq!(ApiFunction::Driver(307).to_string(), "cuLaunchKernel");
    assert_eq!(ApiFunction::Runtime(1_000_000).to_string(), "runtime function 1000000");
}

#[test]
fn the_call_log_and_the_records_agree_on_names() {
    for call in functions::DRIVER_CALLS.iter() {
        assert_eq!(ApiFunction::Driver(call.id).name(), Some(call.name));
    }
}

#[test]
fn synchronizations() {
    use generated::synchronization::*;
    let write = |record: Written<Layout>| {
        record
            .set(TYPE, 2)
            .set(START, 1)
            .set(END, 2)
            .set(CORRELATION_ID, 3)
            .set(CONTEXT_ID, 4)
            .set(STREAM_ID, 5)
            .set(CUDA_EVENT_ID, 6)
            .set(CUDA_EVENT_SYNC_ID, 7)
            .set(RETURN_VALUE, 600)
    };
    in_every_version(ActivityKind::SYNCHRONIZATION, ALWAYS, write, |has, record| {
        let wait = of!(record, Synchronization);
        check! { wait:
            kind = SynchronizationKind::StreamWaitEvent,
            context = 4,
            stream = Some(5),
            event = Some(6),
            event_sync_id = has.from((12, 8), 7),
            result = has.from((12, 8), 600),
            correlation_id = 3,
        }
        assert_eq!(span(wait.span), (1, 2));
    });
    in_every_version(
        ActivityKind::SYNCHRONIZATION,
        ALWAYS,
        |record: Written<Layout>| record.set(STREAM_ID, u32::MAX).set(CUDA_EVENT_ID, u32::MAX),
        |_, record| {
            let wait = of!(record, Synchronization);
            check! { wait: stream = None, event = None, }
        },
    );
}

#[test]
fn overheads() {
    use generated::overhead::*;
    let write = |record: Written<Layout>| {
        record
            .set(OVERHEAD_KIND, 5 << 16)
            .set(OBJECT_KIND, 5)
            .set(OBJECT_ID_DCS_DEVICE_ID, 1)
            .set(OBJECT_ID_DCS_CONTEXT_ID, 2)
            .set(OBJECT_ID_DCS_STREAM_ID, 3)
            .set(START, 4)
            .set(END, 5)
            .set(CORRELATION_ID, 6)
    };
    in_every_version(ActivityKind::OVERHEAD, ALWAYS, write, |has, record| {
        let overhead = of!(record, Overhead);
        check! { overhead:
            kind = OverheadKind::LAZY_FUNCTION_LOADING,
            correlation_id = has.from((12, 3), 6),
            data = None,
        }
        assert_eq!(span(overhead.span), (4, 5));
        match overhead.object {
            ObjectId::Stream(stream) => assert_eq!(place(stream), [1, 2, 3]),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn objects_are_distinguished_by_kind() {
    use generated::overhead::*;
    let kinds = [
        (1, ObjectId::Process(7)),
        (2, ObjectId::Thread { process: 7, thread: 8 }),
        (3, ObjectId::Device(7)),
        (4, ObjectId::Context { device: 7, context: 8 }),
        (99, ObjectId::Unknown(99)),
    ];
    for (kind, object) in kinds {
        let write = |record: Written<Layout>| {
            record
                .set(OBJECT_KIND, kind)
                .set(OBJECT_ID_DCS_DEVICE_ID, 7)
                .set(OBJECT_ID_DCS_CONTEXT_ID, 8)
                .set(OBJECT_ID_DCS_STREAM_ID, 9)
        };
        in_every_version(ActivityKind::OVERHEAD, ALWAYS, write, |_, record| {
            assert_eq!(of!(record, Overhead).object, object);
        });
    }
}

#[test]
fn graphs() {
    use generated::graph_trace::*;
    let write = |record: Written<Layout>| {
        record
            .set(CORRELATION_ID, 1)
            .set(START, 2)
            .set(END, 3)
            .set(DEVICE_ID, 4)
            .set(GRAPH_ID, 5)
            .set(CONTEXT_ID, 6)
            .set(STREAM_ID, 7)
            .set(END_DEVICE_ID, 8)
            .set(END_CONTEXT_ID, 9)
    };
    in_every_version(ActivityKind::GRAPH_TRACE, ALWAYS, write, |has, record| {
        let graph = of!(record, GraphTrace);
        check! { graph:
            graph = 5,
            correlation_id = 1,
            end_device = has.from((12, 3), 8),
            end_context = has.from((12, 3), 9),
        }
        assert_eq!((span(graph.span), place(graph.place)), ((2, 3), [4, 6, 7]));
    });
}

#[test]
fn memory_operations() {
    use generated::memory2::*;
    let write = |record: Written<Layout>| {
        record
            .set(MEMORY_OPERATION_TYPE, 2)
            .set(MEMORY_KIND, 3)
            .set(CORRELATION_ID, 1)
            .set(ADDRESS, 2)
            .set(BYTES, 3)
            .set(TIMESTAMP, 4)
            .set(PC, 5)
            .set(PROCESS_ID, 6)
            .set(DEVICE_ID, 7)
            .set(CONTEXT_ID, 8)
            .set(STREAM_ID, 9)
            .set(IS_ASYNC, 1)
            .set(MEMORY_POOL_CONFIG_ADDRESS, 10)
            .set(MEMORY_POOL_CONFIG_RELEASE_THRESHOLD, 11)
            .set(MEMORY_POOL_CONFIG_POOL_SIZE, 12)
            .set(MEMORY_POOL_CONFIG_UTILIZED_SIZE, 13)
            .text(SOURCE, c"libtorch.so")
    };
    let local = Pool::Local { address: 10, release_threshold_bytes: 11, bytes: 12, used_bytes: 13 };
    let imported = Pool::Imported { address: 10, process: 12 };
    let pools = [(0, None), (1, Some(local)), (2, Some(imported)), (3, Some(Pool::Unknown(3)))];
    for (kind, pool) in pools {
        let write = |record| write(record).set(MEMORY_POOL_CONFIG_MEMORY_POOL_TYPE, kind);
        in_every_version(ActivityKind::MEMORY2, ALWAYS, write, |has, record| {
            let operation = of!(record, MemoryOperation);
            check! { operation:
                operation = MemoryOperationKind::RELEASE,
                kind = MemoryKind::DEVICE,
                correlation_id = 1,
                address = 2,
                bytes = 3,
                at_ns = 4,
                pc = 5,
                process = 6,
                device = 7,
                context = Some(8),
                stream = Some(9),
                name = None,
                asynchronous = true,
                pool = pool,
            }
            assert_eq!(operation.source.is_some(), has.from((12, 6), ()).is_some());
        });
    }
    in_every_version(
        ActivityKind::MEMORY2,
        ALWAYS,
        |record: Written<Layout>| record.set(CONTEXT_ID, 0).set(STREAM_ID, 0),
        |_, record| {
            let operation = of!(record, MemoryOperation);
            check! { operation: context = None, stream = None, asynchronous = false, }
        },
    );
}

#[test]
fn unified_memory() {
    use generated::unified_memory_counter::*;
    let causes = [
        (1, UnifiedMemoryCause::Migration(MigrationCause::PREFETCH)),
        (2, UnifiedMemoryCause::Migration(MigrationCause::PREFETCH)),
        (3, UnifiedMemoryCause::Other(3)),
        (4, UnifiedMemoryCause::Access(MemoryAccess::ATOMIC)),
        (5, UnifiedMemoryCause::OnCpu(true)),
        (6, UnifiedMemoryCause::OnCpu(true)),
        (7, UnifiedMemoryCause::RemoteMap(RemoteMapCause::POLICY)),
        (8, UnifiedMemoryCause::Migration(MigrationCause::PREFETCH)),
    ];
    for (kind, cause) in causes {
        let write = |record: Written<Layout>| {
            record
                .set(COUNTER_KIND, kind)
                .set(VALUE, 1)
                .set(START, 2)
                .set(END, 3)
                .set(ADDRESS, 4)
                .set(SRC_ID, 5)
                .set(DST_ID, 6)
                .set(PROCESS_ID, 7)
                .set(FLAGS, 3)
                .set(PROCESSORS, [8, 9, 10, 11, 12])
        };
        in_every_version(ActivityKind::UNIFIED_MEMORY_COUNTER, ALWAYS, write, |has, record| {
            let event = of!(record, UnifiedMemory);
            check! { event:
                kind = UnifiedMemoryKind(kind),
                value = 1,
                address = 4,
                source = 5,
                destination = 6,
                process = 7,
                cause = cause,
                processors = has.from((12, 8), [8, 9, 10, 11, 12]),
            }
            assert_eq!(span(event.span), (2, 3));
        });
    }
}

#[test]
fn cuda_events() {
    use generated::cuda_event::*;
    let write = |record: Written<Layout>| {
        record
            .set(CORRELATION_ID, 1)
            .set(CONTEXT_ID, 2)
            .set(STREAM_ID, 3)
            .set(EVENT_ID, 4)
            .set(DEVICE_ID, 5)
            .set(DEVICE_TIMESTAMP, 6)
            .set(CUDA_EVENT_SYNC_ID, 7)
            .set(GRAPH_NODE_ID, 8)
            .set(GRAPH_ID, 9)
            .set(SOURCE_GRAPH_ID, 10)
            .set(SOURCE_GRAPH_NODE_ID, 11)
    };
    in_every_version(ActivityKind::CUDA_EVENT, ALWAYS, write, |has, record| {
        let event = of!(record, CudaEvent);
        check! { event:
            event = 4,
            context = 2,
            stream = 3,
            correlation_id = 1,
            device = has.from((12, 8), 5),
            device_timestamp_ns = has.from((12, 8), 6),
            event_sync_id = has.from((12, 8), 7),
        }
        assert_eq!(node(event.graph_node), has.from((13, 5), (9, 8)));
        assert_eq!(node(event.source_graph_node), has.from((13, 5), (10, 11)));
    });
}

#[test]
fn devices() {
    use generated::device::*;
    let uuid: [u8; 16] = std::array::from_fn(|i| i as u8);
    let mig: [u8; 16] = std::array::from_fn(|i| 0xf0 | i as u8);
    let write = |record: Written<Layout>| {
        record
            .set(FLAGS, 1)
            .set(GLOBAL_MEMORY_BANDWIDTH, 4_800_000_000)
            .set(GLOBAL_MEMORY_SIZE, 139 << 30)
            .set(CONSTANT_MEMORY_SIZE, 1)
            .set(L2_CACHE_SIZE, 2)
            .set(NUM_THREADS_PER_WARP, 32)
            .set(CORE_CLOCK_RATE, 3)
            .set(NUM_MEMCPY_ENGINES, 4)
            .set(NUM_MULTIPROCESSORS, 132)
            .set(MAX_IPC, 5)
            .set(MAX_WARPS_PER_MULTIPROCESSOR, 6)
            .set(MAX_BLOCKS_PER_MULTIPROCESSOR, 7)
            .set(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 8)
            .set(MAX_REGISTERS_PER_MULTIPROCESSOR, 9)
            .set(MAX_REGISTERS_PER_BLOCK, 10)
            .set(MAX_SHARED_MEMORY_PER_BLOCK, 11)
            .set(MAX_THREADS_PER_BLOCK, 12)
            .set(MAX_BLOCK_DIM_X, 13)
            .set(MAX_BLOCK_DIM_Y, 14)
            .set(MAX_BLOCK_DIM_Z, 15)
            .set(MAX_GRID_DIM_X, 16)
            .set(MAX_GRID_DIM_Y, 17)
            .set(MAX_GRID_DIM_Z, 18)
            .set(COMPUTE_CAPABILITY_MAJOR, 9)
            .set(COMPUTE_CAPABILITY_MINOR, 0)
            .set(ID, 19)
            .set(ECC_ENABLED, 1)
            .set(UUID, uuid)
            .set(IS_CUDA_VISIBLE, 1)
            .set(IS_MIG_ENABLED, 1)
            .set(GPU_INSTANCE_ID, 20)
            .set(COMPUTE_INSTANCE_ID, 21)
            .set(MIG_UUID, mig)
            .set(IS_NUMA_NODE, 1)
            .set(NUMA_ID, 22)
            .set(NUM_TPCS, 66)
    };
    in_every_version(ActivityKind::DEVICE, ALWAYS, write, |has, record| {
        let device = of!(record, Device);
        check! { device:
            id = 19,
            name = None,
            uuid = Uuid(uuid),
            compute_capability = (9, 0),
            multiprocessors = 132,
            tpcs = has.from((13, 2), 66),
            memory_bytes = 139 << 30,
            memory_bandwidth_kb_per_s = 4_800_000_000,
            l2_bytes = 2,
            core_clock_khz = 3,
            ecc = true,
            concurrent_kernels = true,
            visible = true,
            is_numa_node = has.from((12, 2), true),
            numa_node = has.from((12, 2), 22),
        }
        assert_eq!(device.uuid.to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
        let instance = device.mig.unwrap();
        check! { instance: gpu_instance = 20, compute_instance = 21, uuid = Uuid(mig), }
        let limits = device.limits();
        check! { limits:
            constant_bytes = 1,
            threads_per_warp = 32,
            copy_engines = 4,
            instructions_per_cycle = 5,
            warps_per_multiprocessor = 6,
            blocks_per_multiprocessor = 7,
            shared_bytes_per_multiprocessor = 8,
            registers_per_multiprocessor = 9,
            registers_per_block = 10,
            shared_bytes_per_block = 11,
            threads_per_block = 12,
            block = [13, 14, 15],
            grid = [16, 17, 18],
        }
    });
}

/// Links have one layout up to 13.1, and another from 13.2 on, whose ports lie in memory that is freed: a sanitizer would
/// report it. No type reads them.
#[test]
fn ports_of_links_are_freed() {
    use generated::{nvlink, nvlink5::*};
    for version in VERSIONS.map(Version).into_iter().filter(|v| v.cuda_release() >= (13, 2)) {
        assert!(Written::<nvlink::Layout>::new(ActivityKind::NVLINK, version).is_none());
        let fake = Fake::builder().version(version.0).build();
        let collected = collect(&fake, || {
            let record: Written<Layout> = Written::new(ActivityKind::NVLINK, version).unwrap();
            let record = record.set(TYPE_DEV0, 1).set(TYPE_DEV1, 1);
            fake.write(&record.leave(PORT_DEV0, [5, 6]).leave(PORT_DEV1, [7]));
        });
        let Some(Record::Unknown { kind: ActivityKind::NVLINK, bytes }) =
            collected.records.iter().next()
        else {
            panic!("{:?}", collected.records);
        };
        let pointers = &bytes[PORT_DEV0.offset()..PORT_DEV1.offset() + PORT_DEV1.size()];
        assert!(pointers.iter().all(|byte| *byte == 0), "{version}");
        assert_eq!(collected.records.all_data().count(), 0, "{version}");
    }
}

/// A kind that has a name and no type is collected as its bytes.
#[test]
fn records_without_a_type_have_their_bytes() {
    let kinds: Vec<_> =
        ActivityKind::ALL.iter().copied().filter(|kind| kind.is_without_type()).collect();
    assert!(kinds.contains(&ActivityKind::STREAM) && kinds.contains(&ActivityKind::OPENMP));
    for version in VERSIONS.map(Version) {
        let stride = |kind: ActivityKind| stride_of_kind(kind.0, version.cuda_release());
        let written: Vec<_> =
            kinds.iter().filter_map(|kind| Some((*kind, stride(*kind)?))).collect();
        let fake = Fake::builder().version(version.0).build();
        let collected = collect(&fake, || {
            written.iter().for_each(|(kind, stride)| fake.raw_record(*kind, *stride));
        });
        let read = collected.records.iter().map(|record| match record {
            Record::Unknown { kind, bytes } => (kind, bytes.len()),
            other => panic!("{other:?}"),
        });
        assert_eq!(read.collect::<Vec<_>>(), written, "{version}");
    }
}

fn collect(fake: &Fake, program: impl FnOnce()) -> Collected {
    let collector = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap();
    program();
    collector.stop().unwrap()
}

/// The bytes of a new field were padding in an older library: its version tells, not the record's length.
#[test]
fn bytes_that_were_padding_are_no_fields() {
    let as_of = |version, kind, bytes: &[u8]| decoded(Version(version), kind, bytes.to_vec());
    let new = Version(130_001);

    let bytes = Written::new(ActivityKind::MEMCPY, new)
        .unwrap()
        .set(generated::memcpy::IS_DEVICE_LAUNCHED, 1)
        .into_bytes();
    for (version, launched) in [(130_001, Some(true)), (28, None), (26, None)] {
        let records = as_of(version, ActivityKind::MEMCPY, &bytes);
        let copy = of!(records.iter().next().unwrap(), Memcpy);
        assert_eq!((copy.device_launched, copy.copies), (launched, Some(0)), "{version}");
    }

    let bytes = Written::new(ActivityKind::MEMSET, new)
        .unwrap()
        .set(generated::memset::IS_DEVICE_LAUNCHED, 1)
        .into_bytes();
    for (version, launched) in [(130_001, Some(true)), (28, None), (18, None)] {
        let records = as_of(version, ActivityKind::MEMSET, &bytes);
        let fill = of!(records.iter().next().unwrap(), Memset);
        assert_eq!(fill.device_launched, launched, "{version}");
    }
}

/// Texts are copied before the buffer goes back, and null pointers are none.
#[test]
fn texts_are_copied() {
    use generated::memory2::{Layout, NAME, SOURCE};
    for version in VERSIONS.map(Version) {
        let fake = Fake::builder().version(version.0).build();
        let collected = collect(&fake, || {
            let record = || Written::<Layout>::new(ActivityKind::MEMORY2, version).unwrap();
            fake.write(&record().text(NAME, c"weights").text(SOURCE, c"libtorch.so"));
            fake.write(&record());
        });
        let records = &collected.records;
        let text = |key: Option<NameKey>| key.map(|key| records.name(key).unwrap_or("(unknown)"));
        let operations = records.iter().map(|record| of!(record, MemoryOperation));
        let texts: Vec<_> =
            operations.map(|found| (text(found.name), text(found.source))).collect();
        let source = Has(version.cuda_release()).from((12, 6), "libtorch.so");
        assert_eq!(texts, [(Some("weights"), source), (None, None)], "{version}");
    }
}

/// The memory that CUPTI leaves to its client is freed, and may come again for the next record: every record keeps its own.
#[test]
fn freed_memory_is_separate() {
    use generated::device::{ID, NAME};
    let names = [c"NVIDIA H200", c"NVIDIA B200", c"NVIDIA H200", c"gr\xc3\xb6\xc3\x9fer"];
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let collector = Collector::start(&library, &Config::new()).unwrap();
    for (name, id) in names.iter().zip(0..) {
        let device = Written::new(ActivityKind::DEVICE, library.version()).unwrap();
        fake.write(&device.set(ID, id).name(NAME, name));
        // Each in a buffer of its own, so that the last one's memory is free by then.
        collector.flush().unwrap();
    }
    let collected = collector.stop().unwrap();
    let records = &collected.records;
    assert_eq!(records.buffers().len(), names.len());
    let devices: Vec<_> = records.iter().map(|record| of!(record, Device)).collect();
    let found: Vec<_> = devices.iter().map(|device| records.name(device.name.unwrap())).collect();
    assert_eq!(found, names.map(|name| name.to_str().ok()));
    // One key for one text, which is no address.
    assert_eq!(devices[0].name, devices[2].name);
    assert!(devices.iter().all(|device| device.name.unwrap().0 >> 63 == 1));
}

/// A device's name is CUPTI's before 13.0, and its client's from then on: freed there, left alone here.
#[test]
fn owned_device_names_are_freed() {
    use generated::device::NAME;
    for version in VERSIONS.map(Version) {
        let fake = Fake::builder().version(version.0).build();
        let collected = collect(&fake, || {
            let device = Written::new(ActivityKind::DEVICE, version).unwrap();
            fake.write(&device.name(NAME, c"NVIDIA H200"));
        });
        let records = &collected.records;
        let device = of!(records.iter().next().unwrap(), Device);
        let key = device.name.unwrap();
        assert_eq!(records.name(key), Some("NVIDIA H200"), "{version}");
        let is_address = key.0 >> 63 == 0;
        assert_eq!(is_address, version.cuda_release() < (13, 0), "{version}");
    }
}

#[test]
fn an_overheads_command_buffer_is_copied() {
    use generated::overhead::*;
    let data: Vec<u8> = [0u32, 17, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
    for version in VERSIONS.map(Version) {
        let fake = Fake::builder().version(version.0).build();
        let collected = collect(&fake, || {
            for kind in [OverheadKind::COMMAND_BUFFER_FULL, OverheadKind::RESOURCE] {
                let overhead = Written::new(ActivityKind::OVERHEAD, version).unwrap();
                fake.write(&overhead.set(OVERHEAD_KIND, kind.0).leave(OVERHEAD_DATA, data.clone()));
            }
        });
        let records = &collected.records;
        let full = records.iter().map(|record| of!(record, Overhead).command_buffer(records));
        let full: Vec<_> =
            full.map(|full| full.map(|full| (full.left, channel(full.channel)))).collect();
        let expected =
            Has(version.cuda_release()).from((12, 4), (0, Some((17, ChannelKind::COMPUTE))));
        assert_eq!(full, [expected, None], "{version}");
        assert_eq!(records.all_data().count(), usize::from(expected.is_some()), "{version}");
    }
}

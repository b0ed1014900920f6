//! Every kind of record in every version's layout: what was written is what is read, and what a version does not have is
//! absent.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use cupti::record::*;
use cupti::sys::field::Family;
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
fn markers() {
    use generated::marker::*;
    let write = |record: Written<Layout>| {
        record
            .set(FLAGS, 2)
            .set(TIMESTAMP, 1)
            .set(ID, 2)
            .set(OBJECT_KIND, 2)
            .set(OBJECT_ID_PT_PROCESS_ID, 3)
            .set(OBJECT_ID_PT_THREAD_ID, 4)
    };
    in_every_version(ActivityKind::MARKER, ALWAYS, write, |_, record| {
        let marker = of!(record, Marker);
        check! { marker:
            at_ns = 1,
            id = 2,
            object = ObjectId::Thread { process: 3, thread: 4 },
            name = None,
            domain = None,
        }
        assert!(marker.flags.is_start() && !marker.flags.is_end() && !marker.flags.is_mark());
    });
    let flags = [
        MarkerFlags::is_mark,
        MarkerFlags::is_start,
        MarkerFlags::is_end,
        MarkerFlags::is_acquire,
        MarkerFlags::is_acquired,
        MarkerFlags::is_acquire_failed,
        MarkerFlags::is_release,
    ];
    for (bit, is) in flags.iter().enumerate() {
        let all: Vec<_> = (0..flags.len()).map(|other| is(MarkerFlags(1 << other))).collect();
        assert_eq!(all.iter().filter(|is| **is).count(), 1);
        assert!(all[bit]);
    }
}

#[test]
fn marker_data() {
    use generated::marker_data::*;
    let payloads = [
        (0, 1.5f64.to_bits(), Payload::F64(1.5)),
        (1, 7, Payload::U64(7)),
        (2, 50.0f64.to_bits(), Payload::Percent(50.0)),
        (3, 8, Payload::Throughput(8)),
        (4, u64::MAX, Payload::I64(-1)),
        (5, 10, Payload::UtilizationLevel(10)),
        (6, 0x7f00, Payload::Extended { address: 0x7f00 }),
        (7, 9, Payload::Unknown { kind: 7, bits: 9 }),
    ];
    for (kind, bits, payload) in payloads {
        let write = |record: Written<Layout>| {
            record
                .set(FLAGS, 2)
                .set(ID, 1)
                .set(PAYLOAD_KIND, kind)
                .set(PAYLOAD_METRIC_VALUE_UINT64, bits)
                .set(COLOR, 0xff00_ff00)
                .set(CATEGORY, 3)
                .set(CUPTI_DOMAIN_ID, 4)
        };
        in_every_version(ActivityKind::MARKER_DATA, ALWAYS, write, |has, record| {
            let data = of!(record, MarkerData);
            check! { data:
                id = 1,
                payload = payload,
                color = Some(0xff00_ff00),
                category = 3,
                domain = has.from((13, 0), 4),
            }
        });
    }
    in_every_version(
        ActivityKind::MARKER_DATA,
        ALWAYS,
        |record: Written<Layout>| record.set(FLAGS, 1).set(COLOR, 5),
        |_, record| assert_eq!(of!(record, MarkerData).color, None),
    );
}

#[test]
fn external_correlations() {
    use generated::external_correlation::*;
    in_every_version(
        ActivityKind::EXTERNAL_CORRELATION,
        ALWAYS,
        |record: Written<Layout>| {
            record.set(EXTERNAL_KIND, 4).set(EXTERNAL_ID, 1 << 50).set(CORRELATION_ID, 2)
        },
        |_, record| {
            let correlation = of!(record, ExternalCorrelation);
            check! { correlation:
                kind = ExternalCorrelationKind::CUSTOM1,
                external_id = 1 << 50,
                correlation_id = 2,
            }
        },
    );
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
    use generated::name::*;
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
        in_every_version(ActivityKind::NAME, ALWAYS, write, |_, record| {
            let name = of!(record, Name);
            check! { name: object = object, name = None, }
        });
    }
}

#[test]
fn graphs() {
    {
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
    {
        use generated::device_graph_trace::*;
        let write = |record: Written<Layout>| {
            record
                .set(DEVICE_ID, 1)
                .set(START, 2)
                .set(END, 3)
                .set(GRAPH_ID, 4)
                .set(LAUNCHER_GRAPH_ID, 5)
                .set(DEVICE_LAUNCH_MODE, 2)
                .set(CONTEXT_ID, 6)
                .set(STREAM_ID, 1 << 40)
        };
        in_every_version(ActivityKind::DEVICE_GRAPH_TRACE, (12, 8), write, |_, record| {
            let graph = of!(record, DeviceGraphTrace);
            check! { graph:
                device = 1,
                context = 6,
                stream = 1 << 40,
                graph = 4,
                launcher = 5,
                mode = DeviceGraphLaunchMode::TAIL,
            }
            assert_eq!(span(graph.span), (2, 3));
        });
    }
}

#[test]
fn host_functions() {
    {
        use generated::graph_host_node::*;
        let write = |record: Written<Layout>| {
            record
                .set(STREAM_ID, 1)
                .set(CONTEXT_ID, 2)
                .set(DEVICE_ID, 3)
                .set(CORRELATION_ID, 4)
                .set(GRAPH_ID, 5)
                .set(GRAPH_NODE_ID, 6)
                .set(PROCESS_ID, 7)
                .set(THREAD_ID, 8)
                .set(START, 9)
                .set(END, 10)
        };
        in_every_version(ActivityKind::GRAPH_HOST_NODE, (13, 1), write, |_, record| {
            let host = of!(record, GraphHostNode);
            check! { host: correlation_id = 4, process = 7, thread = 8, }
            assert_eq!((span(host.span), place(host.place)), ((9, 10), [3, 2, 1]));
            assert_eq!(node(host.graph_node), Some((5, 6)));
        });
    }
    {
        use generated::host_launch::*;
        let write = |record: Written<Layout>| {
            record
                .set(STREAM_ID, 1)
                .set(CONTEXT_ID, 2)
                .set(DEVICE_ID, 3)
                .set(CORRELATION_ID, 4)
                .set(PROCESS_ID, 7)
                .set(THREAD_ID, 8)
                .set(START, 9)
                .set(END, 10)
        };
        in_every_version(ActivityKind::HOST_LAUNCH, (13, 1), write, |_, record| {
            let host = of!(record, HostLaunch);
            check! { host: correlation_id = 4, process = 7, thread = 8, }
            assert_eq!((span(host.span), place(host.place)), ((9, 10), [3, 2, 1]));
        });
    }
}

#[test]
fn allocations() {
    use generated::memory::*;
    let write = |record: Written<Layout>| {
        record
            .set(MEMORY_KIND, 2)
            .set(ADDRESS, 1)
            .set(BYTES, 2)
            .set(START, 3)
            .set(END, 4)
            .set(ALLOC_PC, 5)
            .set(FREE_PC, 6)
            .set(PROCESS_ID, 7)
            .set(DEVICE_ID, 8)
            .set(CONTEXT_ID, 9)
    };
    in_every_version(ActivityKind::MEMORY, ALWAYS, write, |_, record| {
        let allocation = of!(record, Allocation);
        check! { allocation:
            kind = MemoryKind::PINNED,
            address = 1,
            bytes = 2,
            alloc_pc = 5,
            free_pc = 6,
            process = 7,
            device = 8,
            context = Some(9),
            name = None,
        }
        assert_eq!(span(allocation.span), (3, 4));
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
fn memory_pools() {
    use generated::memory_pool::*;
    let write = |record: Written<Layout>| {
        record
            .set(MEMORY_POOL_OPERATION_TYPE, 3)
            .set(MEMORY_POOL_TYPE, 1)
            .set(CORRELATION_ID, 1)
            .set(PROCESS_ID, 2)
            .set(DEVICE_ID, 3)
            .set(MIN_BYTES_TO_KEEP, 4)
            .set(ADDRESS, 5)
            .set(SIZE, 6)
            .set(RELEASE_THRESHOLD, 7)
            .set(TIMESTAMP, 8)
            .set(UTILIZED_SIZE, 9)
            .set(IS_MANAGED_POOL, 1)
    };
    in_every_version(ActivityKind::MEMORY_POOL, ALWAYS, write, |has, record| {
        let pool = of!(record, MemoryPool);
        check! { pool:
            operation = MemoryPoolOperationKind::TRIMMED,
            kind = MemoryPoolKind::LOCAL,
            correlation_id = 1,
            process = 2,
            device = 3,
            min_bytes_to_keep = 4,
            address = 5,
            bytes = 6,
            release_threshold_bytes = 7,
            used_bytes = 9,
            at_ns = 8,
            managed = has.from((13, 0), true),
        }
    });
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
fn streams_and_contexts() {
    {
        use generated::stream::*;
        let write = |record: Written<Layout>| {
            record
                .set(CONTEXT_ID, 1)
                .set(STREAM_ID, 2)
                .set(PRIORITY, u32::MAX)
                .set(FLAG, 2)
                .set(CORRELATION_ID, 3)
        };
        in_every_version(ActivityKind::STREAM, ALWAYS, write, |_, record| {
            let stream = of!(record, Stream);
            check! { stream:
                context = 1,
                stream = 2,
                priority = -1,
                flag = StreamFlag::NON_BLOCKING,
                correlation_id = 3,
            }
        });
    }
    {
        use generated::context::*;
        let write = |record: Written<Layout>| {
            record
                .set(CONTEXT_ID, 1)
                .set(DEVICE_ID, 2)
                .set(COMPUTE_API_KIND, 2)
                .set(NULL_STREAM_ID, 7)
                .set(PARENT_CONTEXT_ID, 3)
                .set(IS_GREEN_CONTEXT, 1)
                .set(NUM_MULTIPROCESSORS, 16)
                .set(CIG_MODE, 1)
                .set(PROCESS_ID, 1 << 40)
        };
        in_every_version(ActivityKind::CONTEXT, ALWAYS, write, |has, record| {
            let context = of!(record, Context);
            check! { context:
                context = 1,
                device = 2,
                api = ComputeApi::CUDA_MPS,
                null_stream = 7,
                parent = has.from((12, 4), 3),
                is_green = has.from((12, 4), true),
                multiprocessors = has.from((12, 5), 16),
                cig_mode = has.from((12, 5), CigMode::CIG),
                process = has.from((13, 1), 1 << 40),
            }
        });
    }
    {
        use generated::compute_engine_ctx_switch::*;
        let write = |record: Written<Layout>| {
            record.set(CONTEXT_ID, 1).set(TIMESTAMP, 2).set(OPERATION_TYPE, 2)
        };
        in_every_version(ActivityKind::COMPUTE_ENGINE_CTX_SWITCH, (13, 1), write, |_, record| {
            let switch = of!(record, ContextSwitch);
            check! { switch: context = 1, at_ns = 2, operation = ContextSwitchKind::END, }
        });
    }
}

#[test]
fn green_contexts() {
    use generated::green_context::*;
    let mut mask = [0; 32];
    (mask[0], mask[1], mask[2]) = (66, 8, u32::MAX);
    let mut channels = [0; 32];
    channels[..3].copy_from_slice(&[5, 6, 7]);
    let write = |record: Written<Layout>| {
        record
            .set(CONTEXT_ID, 1)
            .set(PARENT_CONTEXT_ID, 2)
            .set(DEVICE_ID, 3)
            .set(NUM_TPCS, 4)
            .set(NUM_MULTIPROCESSORS, 8)
            .set(LOGICAL_TPC_MASK_SIZE, 2)
            .set(LOGICAL_TPC_MASK, mask)
            .set(WORKQUEUE_RESOURCE_ID, 5)
            .set(WORKQUEUE_CONCURRENCY_LIMIT, 6)
            .set(WORKQUEUE_SHARING_SCOPE, 7)
            .set(WORKQUEUE_CHANNEL_COUNT, 2)
            .set(WORKQUEUE_CHANNEL_IDS, channels)
    };
    in_every_version(ActivityKind::GREEN_CONTEXT, (13, 2), write, |has, record| {
        let context = of!(record, GreenContext);
        check! { context:
            context = 1,
            parent = 2,
            device = 3,
            tpc_count = 4,
            multiprocessors = 8,
            workqueue = 5,
            workqueue_limit = 6,
            workqueue_scope = 7,
            channel_count = has.from((13, 4), 2),
        }
        assert_eq!(context.tpcs().collect::<Vec<_>>(), [1, 6, 35]);
        let expected: &[u32] = has.from((13, 4), &[5, 6][..]).unwrap_or_default();
        assert_eq!(context.channels().collect::<Vec<_>>(), expected);
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

#[test]
fn environments() {
    use generated::environment::*;
    let speed = EnvironmentSample::Speed {
        sm_mhz: 1,
        memory_mhz: 2,
        pcie_generation: 3,
        pcie_lanes: 4,
        throttled: ThrottleReasons(12),
    };
    let samples = [
        (1, speed),
        (2, EnvironmentSample::Temperature { celsius: 1 }),
        (3, EnvironmentSample::Power { milliwatts: 1, limit_milliwatts: 2 }),
        (4, EnvironmentSample::Cooling { fan_percent: 1 }),
        (5, EnvironmentSample::Unknown(5)),
    ];
    for (kind, sample) in samples {
        let write = |record: Written<Layout>| {
            record
                .set(DEVICE_ID, 7)
                .set(TIMESTAMP, 8)
                .set(ENVIRONMENT_KIND, kind)
                .set(DATA_SPEED_SM_CLOCK, 1)
                .set(DATA_SPEED_MEMORY_CLOCK, 2)
                .set(DATA_SPEED_PCIE_LINK_GEN, 3)
                .set(DATA_SPEED_PCIE_LINK_WIDTH, 4)
                .set(DATA_SPEED_CLOCKS_THROTTLE_REASONS, 12)
        };
        in_every_version(ActivityKind::ENVIRONMENT, ALWAYS, write, |_, record| {
            let environment = of!(record, Environment);
            check! { environment: device = 7, at_ns = 8, sample = sample, }
        });
    }
    assert_eq!(ThrottleReasons(12).to_string(), "power cap, hardware slowdown");
    assert_eq!(ThrottleReasons(0).to_string(), "none");
}

#[test]
fn code() {
    {
        use generated::function::*;
        let write = |record: Written<Layout>| {
            record.set(ID, 1).set(CONTEXT_ID, 2).set(MODULE_ID, 3).set(FUNCTION_INDEX, 4)
        };
        in_every_version(ActivityKind::FUNCTION, ALWAYS, write, |_, record| {
            let function = of!(record, Function);
            check! { function: id = 1, context = 2, module = 3, index = 4, name = None, }
        });
    }
    {
        use generated::jit::*;
        let write = |record: Written<Layout>| {
            record
                .set(JIT_ENTRY_TYPE, 1)
                .set(JIT_OPERATION_TYPE, 3)
                .set(DEVICE_ID, 1)
                .set(START, 2)
                .set(END, 3)
                .set(CORRELATION_ID, 4)
                .set(JIT_OPERATION_CORRELATION_ID, 5)
                .set(CACHE_SIZE, 6)
                .set(PROCESS_ID, 7)
                .set(THREAD_ID, 8)
        };
        in_every_version(ActivityKind::JIT, ALWAYS, write, |has, record| {
            let jit = of!(record, Jit);
            check! { jit:
                entry = JitEntry::PTX_TO_CUBIN,
                operation = JitOperation::COMPILE,
                device = 1,
                correlation_id = 4,
                unit = 5,
                cache_bytes = 6,
                cache_path = None,
                process = has.from((12, 4), 7),
                thread = has.from((12, 4), 8),
            }
            assert_eq!(span(jit.span), (2, 3));
        });
    }
}

#[test]
fn decompression_and_key_rotation() {
    {
        use generated::mem_decompress::*;
        let write = |record: Written<Layout>| {
            record
                .set(DEVICE_ID, 1)
                .set(CONTEXT_ID, 2)
                .set(STREAM_ID, 3)
                .set(CHANNEL_ID, 4)
                .set(CHANNEL_TYPE, 3)
                .set(CORRELATION_ID, 5)
                .set(NUMBER_OF_OPERATIONS, 6)
                .set(SOURCE_BYTES, 7)
                .set(START, 8)
                .set(END, 9)
        };
        in_every_version(ActivityKind::MEM_DECOMPRESS, (12, 8), write, |_, record| {
            let batch = of!(record, MemDecompress);
            check! { batch: correlation_id = 5, operations = 6, source_bytes = 7, }
            assert_eq!((span(batch.span), place(batch.place)), ((8, 9), [1, 2, 3]));
            assert_eq!(channel(batch.channel), Some((4, ChannelKind::DECOMPRESSION)));
        });
    }
    {
        use generated::confidential_compute_rotation::*;
        let write = |record: Written<Layout>| {
            record
                .set(EVENT_TYPE, 2)
                .set(DEVICE_ID, 1)
                .set(CONTEXT_ID, 2)
                .set(CHANNEL_ID, 3)
                .set(CHANNEL_TYPE, 1)
                .set(TIMESTAMP, 4)
        };
        let kind = ActivityKind::CONFIDENTIAL_COMPUTE_ROTATION;
        in_every_version(kind, (12, 9), write, |_, record| {
            let rotation = of!(record, KeyRotation);
            check! { rotation:
                event = KeyRotationEvent::DRAINED,
                device = 1,
                context = 2,
                at_ns = 4,
            }
            assert_eq!(channel(rotation.channel), Some((3, ChannelKind::COMPUTE)));
        });
    }
}

#[test]
fn pcie() {
    use generated::pcie::*;
    let uuid: [u8; 16] = std::array::from_fn(|i| i as u8);
    let mut peers = [u32::MAX; 32];
    peers[..2].copy_from_slice(&[3, 4]);
    let common = |record: Written<Layout>| {
        record
            .set(ID_DEV_ID, 1)
            .set(DOMAIN, 2)
            .set(PCIE_GENERATION, 5)
            .set(LINK_RATE, 32)
            .set(LINK_WIDTH, 16)
            .set(UPSTREAM_BUS, 6)
    };
    let check_common = |pcie: Pcie<'_>| {
        check! { pcie:
            domain = 2,
            generation = 5,
            link_gt_per_s = 32,
            lanes = 16,
            upstream_bus = 6,
        }
    };
    in_every_version(
        ActivityKind::PCIE,
        ALWAYS,
        |record| {
            common(record).set(ATTR_GPU_ATTR_UUID_DEV, uuid).set(ATTR_GPU_ATTR_PEER_DEV, peers)
        },
        |_, record| {
            let gpu = of!(record, Pcie);
            check_common(gpu);
            assert_eq!(gpu.node, PcieNode::Gpu { device: 1, uuid: Uuid(uuid) });
            assert_eq!(gpu.peers().collect::<Vec<_>>(), [3, 4]);
        },
    );
    in_every_version(
        ActivityKind::PCIE,
        ALWAYS,
        |record| {
            common(record)
                .set(TYPE, 1)
                .set(ATTR_BRIDGE_ATTR_SECONDARY_BUS, 7)
                .set(ATTR_BRIDGE_ATTR_DEVICE_ID, 8)
                .set(ATTR_BRIDGE_ATTR_VENDOR_ID, 9)
        },
        |_, record| {
            let bridge = of!(record, Pcie);
            check_common(bridge);
            let node = PcieNode::Bridge { id: 1, secondary_bus: 7, device_id: 8, vendor_id: 9 };
            assert_eq!(bridge.node, node);
            assert_eq!(bridge.peers().count(), 0);
        },
    );
}

/// One layout up to 13.1, another from 13.2 on, whose ports lie in memory that is the reader's to free.
#[test]
fn nvlinks() {
    let uuid: [u8; 16] = std::array::from_fn(|i| i as u8);
    let mut ports = [u8::MAX; 32];
    ports[..2].copy_from_slice(&[5, 6]);
    let words: Vec<u8> = [5u32, 6, u32::MAX].iter().flat_map(|port| port.to_ne_bytes()).collect();
    macro_rules! common {
        ($record:expr) => {
            $record
                .set(NVLINK_VERSION, 4)
                .set(TYPE_DEV0, 1)
                .set(TYPE_DEV1, 2)
                .set(ID_DEV0_UUID_DEV, uuid)
                .set(ID_DEV1_NPU_INDEX, 7)
                .set(ID_DEV1_NPU_DOMAIN_ID, 8)
                .set(FLAG, 2 | 16)
                .set(PHYSICAL_NV_LINK_COUNT, 3)
                .set(BANDWIDTH, 50_000_000)
                .set(NVSWITCH_CONNECTED, 1)
        };
    }
    for version in VERSIONS.map(Version) {
        let fake = Fake::builder().version(version.0).build();
        let collected = collect(&fake, || {
            if version.cuda_release() < (13, 2) {
                use generated::nvlink::*;
                assert!(
                    Written::<generated::nvlink5::Layout>::new(ActivityKind::NVLINK, version)
                        .is_none()
                );
                let record = Written::new(ActivityKind::NVLINK, version).unwrap();
                let record: Written<Layout> = common!(record).set(PORT_DEV0, ports);
                fake.write(&record.set(PORT_DEV1, ports));
            } else {
                use generated::nvlink5::*;
                assert!(
                    Written::<generated::nvlink::Layout>::new(ActivityKind::NVLINK, version)
                        .is_none()
                );
                let record = Written::new(ActivityKind::NVLINK, version).unwrap();
                let record: Written<Layout> = common!(record).leave(PORT_DEV0, words.clone());
                fake.write(&record);
            }
        });
        let records = &collected.records;
        let link = of!(records.iter().next().unwrap(), NvLink);
        check! { link:
            version = 4,
            ends = [LinkEnd::Gpu(Uuid(uuid)), LinkEnd::Npu { index: 7, domain: 8 }],
            links = 3,
            bandwidth_kb_per_s = 50_000_000,
            through_switch = true,
        }
        assert!(link.flags.peer_access() && link.flags.system_atomics(), "{version}");
        assert!(!link.flags.system_access() && !link.flags.peer_atomics(), "{version}");
        let of_end = |end| link.ports(end, records).collect::<Vec<_>>();
        assert_eq!(of_end(0), [Some(5), Some(6), None], "{version}");
        assert_eq!((of_end(1), of_end(2)), (vec![], vec![]), "{version}");
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

    let bytes = Written::new(ActivityKind::CONTEXT, Version(23))
        .unwrap()
        .set(generated::context::NUM_MULTIPROCESSORS, 9)
        .into_bytes();
    for (version, multiprocessors) in [(23, Some(9)), (22, None)] {
        let records = as_of(version, ActivityKind::CONTEXT, &bytes[..24]);
        let context = of!(records.iter().next().unwrap(), Context);
        assert_eq!(context.multiprocessors, multiprocessors, "{version}");
    }
}

/// Texts are copied before the buffer goes back, and null pointers are none.
#[test]
fn texts_are_copied() {
    use generated::{function, jit, marker, memory, memory2, name};
    for version in VERSIONS.map(Version) {
        let fake = Fake::builder().version(version.0).build();
        let collected = collect(&fake, || {
            fake.write(
                &Written::new(ActivityKind::MARKER, version)
                    .unwrap()
                    .text(marker::NAME, c"step")
                    .text(marker::DOMAIN, c"torch"),
            );
            fake.write(
                &Written::<name::Layout>::new(ActivityKind::NAME, version)
                    .unwrap()
                    .text(name::NAME, c"worker"),
            );
            fake.write(
                &Written::new(ActivityKind::FUNCTION, version)
                    .unwrap()
                    .text(function::NAME, c"_Z1fv"),
            );
            fake.write(
                &Written::new(ActivityKind::MEMORY, version).unwrap().text(memory::NAME, c"table"),
            );
            fake.write(
                &Written::new(ActivityKind::MEMORY2, version)
                    .unwrap()
                    .text(memory2::NAME, c"weights")
                    .text(memory2::SOURCE, c"libtorch.so"),
            );
            fake.write(
                &Written::new(ActivityKind::JIT, version)
                    .unwrap()
                    .text(jit::CACHE_PATH, c"/cache/a"),
            );
            fake.write(&Written::<marker::Layout>::new(ActivityKind::MARKER, version).unwrap());
        });
        let records = &collected.records;
        let text = |key: Option<NameKey>| key.map(|key| records.name(key).unwrap_or("(unknown)"));
        let mut texts = Vec::new();
        for record in records {
            match record {
                Record::Marker(marker) => texts.extend([text(marker.name), text(marker.domain)]),
                Record::Name(name) => texts.push(text(name.name)),
                Record::Function(function) => texts.push(text(function.name)),
                Record::Allocation(allocation) => texts.push(text(allocation.name)),
                Record::MemoryOperation(operation) => {
                    texts.extend([text(operation.name), text(operation.source)]);
                }
                Record::Jit(jit) => texts.push(text(jit.cache_path)),
                other => panic!("{other:?}"),
            }
        }
        let source = Has(version.cuda_release()).from((12, 6), "libtorch.so");
        let expected = [
            Some("step"),
            Some("torch"),
            Some("worker"),
            Some("_Z1fv"),
            Some("table"),
            Some("weights"),
            source,
            Some("/cache/a"),
            None,
            None,
        ];
        assert_eq!(texts, expected, "{version}");
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

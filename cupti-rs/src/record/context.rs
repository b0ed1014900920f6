//! Contexts and streams.

use super::fields::{Fields, Raw, oldest, record, words};
use crate::sys::generated::green_context;

record! {
    /// A context (`CONTEXT`).
    Context, raw, f of context {
        /// CUPTI's id (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// CUDA ordinal (`deviceId`).
        device: u32 = f.get(DEVICE_ID),
        /// The API that created it (`computeApiKind`).
        api: ComputeApi = ComputeApi(f.get(COMPUTE_API_KIND)),
        /// CUPTI's id of its default stream (`nullStreamId`).
        null_stream: u16 = f.get(NULL_STREAM_ID),
        /// The parent context (`parentContextId`); 0 if none. From CUPTI 12.4.
        parent: Option<u32> = f.newer(PARENT_CONTEXT_ID),
        /// True for a green context (`isGreenContext`). From CUPTI 12.4.
        is_green: Option<bool> = f.newer_flag(IS_GREEN_CONTEXT),
        /// Multiprocessors of a green context (`numMultiprocessors`). From CUPTI 12.5.
        multiprocessors: Option<u16> = f.newer(NUM_MULTIPROCESSORS),
        /// CUDA in graphics (`cigMode`). From CUPTI 12.5.
        cig_mode: Option<CigMode> = f.newer(CIG_MODE).map(CigMode),
        /// The process (`processId`). From CUPTI 13.1.
        process: Option<u64> = f.newer(PROCESS_ID),
    }
}

words! {
    /// The API that created a context (`CUpti_ActivityComputeApiKind`).
    ComputeApi(u16) {
        UNKNOWN = 0 "not known",
        CUDA = 1 "CUDA",
        CUDA_MPS = 2 "CUDA under MPS",
    }

    /// CUDA in graphics (`CUpti_ContextCigMode`).
    CigMode(u32) {
        NONE = 0 "none",
        CIG = 1 "CUDA in graphics",
        CIG_FALLBACK = 2 "fallback",
    }
}

record! {
    /// A stream (`STREAM`).
    Stream, raw, f of stream {
        /// CUPTI's id of its context (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// CUPTI's id (`streamId`).
        stream: u32 = f.get(STREAM_ID),
        /// Its priority, within the bounds of its device (`priority`).
        priority: i32 = f.get(PRIORITY).cast_signed(),
        /// The creation flag (`flag`).
        flag: StreamFlag = StreamFlag(f.get(FLAG)),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
    }
}

words! {
    /// The creation flag of a stream (`CUpti_ActivityStreamFlag`).
    StreamFlag(u32) {
        UNKNOWN = 0 "not known",
        DEFAULT = 1 "default",
        NON_BLOCKING = 2 "non-blocking",
        NULL = 3 "null stream",
    }
}

record! {
    /// A green context: a share of a device (`GREEN_CONTEXT`, from CUPTI 13.2).
    GreenContext<'a>, raw, f of green_context {
        /// CUPTI's id (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// The parent context (`parentContextId`).
        parent: u32 = f.get(PARENT_CONTEXT_ID),
        /// CUDA ordinal (`deviceId`).
        device: u32 = f.get(DEVICE_ID),
        /// The number of texture processing clusters (`numTpcs`); [`tpcs`](Self::tpcs) lists them.
        tpc_count: u32 = f.get(NUM_TPCS),
        /// Its multiprocessors (`numMultiprocessors`).
        multiprocessors: u16 = f.get(NUM_MULTIPROCESSORS),
        /// Its work queue (`workqueueResourceId`).
        workqueue: u64 = f.get(WORKQUEUE_RESOURCE_ID),
        /// The maximum number of concurrent operations in the work queue
        /// (`workqueueConcurrencyLimit`).
        workqueue_limit: u32 = f.get(WORKQUEUE_CONCURRENCY_LIMIT),
        /// The sharing scope of the work queue (`workqueueSharingScope`): a
        /// `CUdevWorkqueueConfigScope`.
        workqueue_scope: u32 = f.get(WORKQUEUE_SHARING_SCOPE),
        /// Channels of the work queue (`workqueueChannelCount`); 0 if not known. From CUPTI 13.4.
        channel_count: Option<u32> = f.newer(WORKQUEUE_CHANNEL_COUNT),
        ; raw: Raw<'a> = raw
    }
}

impl GreenContext<'_> {
    fn fields(
        &self,
    ) -> Option<Fields<'_, green_context::Layout, { oldest(green_context::STRIDES) }>> {
        Fields::from_raw(self.raw)
    }

    /// The logical numbers of the texture processing clusters, ascending (`logicalTpcMask`).
    pub fn tpcs(&self) -> impl Iterator<Item = u32> + use<> {
        let fields = self.fields();
        let words = fields.as_ref().map_or(0, |f| f.get(green_context::LOGICAL_TPC_MASK_SIZE));
        let mask = fields.map_or([0; 32], |f| f.get(green_context::LOGICAL_TPC_MASK));
        mask.into_iter().take(words.into()).zip((0..).step_by(32)).flat_map(|(word, first)| {
            (0..32).filter(move |bit| word >> bit & 1 != 0).map(move |bit| first + bit)
        })
    }

    /// The ids of the work queue's channels (`workqueueChannelIds`). None before CUPTI 13.4.
    pub fn channels(&self) -> impl Iterator<Item = u32> + use<> {
        let ids = self.fields().and_then(|f| f.newer(green_context::WORKQUEUE_CHANNEL_IDS));
        ids.unwrap_or([0; 32]).into_iter().take(self.channel_count.unwrap_or(0) as usize)
    }
}

record! {
    /// The compute engine began or ended a switch of contexts (`COMPUTE_ENGINE_CTX_SWITCH`, from
    /// CUPTI 13.1).
    ContextSwitch, raw, f of compute_engine_ctx_switch {
        /// CUPTI's id of the context (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// The time in nanoseconds (`timestamp`).
        at_ns: u64 = f.get(TIMESTAMP),
        /// Begin or end (`operationType`).
        operation: ContextSwitchKind = ContextSwitchKind(f.get(OPERATION_TYPE)),
    }
}

words! {
    /// Begin or end of a switch of contexts (`CUpti_ComputeEngineCtxSwitchOperationType`).
    ContextSwitchKind(u32) {
        INVALID = 0 "invalid",
        START = 1 "start",
        END = 2 "end",
    }
}

//! Joins work to the calls that caused it, by correlation id, and balances the account.
//!
//! No time is compared to find a call: CUPTI's correlation id says it. A call then says its range.

use cupti::CallClass;
use rustc_hash::FxHashMap;

use crate::health::{Account, Health};
use crate::recording::Recording;
use crate::store::{Call, CallId, Operation, Store, Work};

/// `CUDA_ERROR_NOT_READY`: a query's way to say no, not an error.
const NOT_READY: u32 = 600;

/// Records found for a call, by kind.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    operations: u32,
    synchronizations: u32,
}

/// Fills in the call of every operation and synchronisation, and leaves out what lies outside the recording's windows.
pub(crate) fn join(store: &mut Store, recording: &Recording, health: &mut Health) {
    let within = |call: &Call| cupti::clock::is_within(&recording.windows_ns, call.call.start_ns);
    let stop_ns = recording.window_ns.1;
    let mut by_id = FxHashMap::with_capacity_and_hasher(store.calls.len(), Default::default());
    for (row, call) in store.calls.iter().enumerate() {
        by_id.insert(call.call.correlation_id, CallId(row as u32));
    }
    let mut found = vec![Found::default(); store.calls.len()];

    let calls = &store.calls;
    store.operations.retain_mut(|operation| {
        operation.call = by_id.get(&operation.correlation_id).copied();
        let Some(row) = operation.call else {
            // Work that was asked for while the stop went on.
            return operation.time.is_none_or(|time| time.start_ns < stop_ns);
        };
        found[row.at()].operations += 1;
        within(&calls[row.at()])
    });
    store.synchronizations.retain_mut(|synchronization| {
        let record = &synchronization.record;
        synchronization.call = by_id.get(&record.correlation_id).copied();
        let Some(row) = synchronization.call else {
            return true;
        };
        found[row.at()].synchronizations += 1;
        within(&calls[row.at()])
    });

    for operation in &store.operations {
        let account = account(health, operation);
        account.records += 1;
        account.matched_records += u64::from(operation.call.is_some());
        if let (Some(call), Some(time)) = (operation.call, operation.time) {
            let early = store.calls[call.at()].call.start_ns.saturating_sub(time.start_ns);
            health.before_their_call += u64::from(early != 0);
            health.clock_error_ns = health.clock_error_ns.max(early);
        }
    }
    for synchronization in &store.synchronizations {
        health.synchronizations.records += 1;
        health.synchronizations.matched_records += u64::from(synchronization.call.is_some());
    }
    for (call, found) in store.calls.iter().zip(&found) {
        if within(call) {
            settle(&call.call, *found, recording.pending_from_ns, health);
        } else {
            health.calls_outside += 1;
        }
    }
    remove_calls_outside(store, within);
}

fn account<'a>(health: &'a mut Health, operation: &Operation) -> &'a mut Account {
    match operation.work {
        Work::Kernel { .. } => &mut health.kernels,
        Work::Copy(_) => &mut health.copies,
        Work::Memset(_) => &mut health.memsets,
    }
}

/// Whether a call has the records it owes, or may still get them.
fn settle(call: &cupti::Call, found: Found, pending_from_ns: Option<u64>, health: &mut Health) {
    let class = call.function.class();
    let Some(end_ns) = call.end_ns else {
        let open = if pending_from_ns.is_some() {
            &mut health.pending_calls
        } else {
            &mut health.open_calls
        };
        *open += 1;
        return;
    };
    let is_pending = pending_from_ns.is_some_and(|from| end_ns >= from);
    if is_failure(call) {
        health.failed_calls += 1;
        return;
    }
    if call.captured {
        health.captured_calls += 1;
        return;
    }
    let (account, has_record) = match class {
        CallClass::KernelLaunch => (&mut health.kernels, found.operations > 0),
        CallClass::Memcpy => (&mut health.copies, found.operations > 0),
        CallClass::Memset => (&mut health.memsets, found.operations > 0),
        CallClass::Synchronize | CallClass::WaitEvent => {
            (&mut health.synchronizations, found.synchronizations > 0)
        }
        CallClass::GraphLaunch => {
            if is_pending {
                // How many it owes is not known.
                health.pending_calls += 1;
            } else {
                health.silent_graph_launches += u64::from(found.operations == 0);
            }
            return;
        }
        _ => return,
    };
    if call.empty && !has_record {
        return;
    }
    if is_pending && !has_record {
        health.pending_calls += 1;
        return;
    }
    account.calls += 1;
    account.matched_calls += u64::from(has_record);
}

/// True if the call returned an error.
pub(crate) fn is_failure(call: &cupti::Call) -> bool {
    let not_ready = call.function.class() == CallClass::Query && call.result == NOT_READY;
    call.end_ns.is_some() && call.result != 0 && !not_ready
}

/// Takes the calls outside the window out of the table; nothing refers to them any more.
fn remove_calls_outside(store: &mut Store, within: impl Fn(&Call) -> bool) {
    if store.calls.iter().all(&within) {
        return;
    }
    let mut kept = 0;
    let new_rows: Vec<u32> = store
        .calls
        .iter()
        .map(|call| {
            let row = kept;
            kept += u32::from(within(call));
            row
        })
        .collect();
    store.calls.retain(within);
    let moved = |call: &mut Option<CallId>| {
        if let Some(call) = call {
            call.0 = new_rows[call.at()];
        }
    };
    store.operations.iter_mut().for_each(|operation| moved(&mut operation.call));
    store.synchronizations.iter_mut().for_each(|synchronization| moved(&mut synchronization.call));
}

//! Joins work to the calls that caused it, by correlation id, and balances the account.
//!
//! No time is compared to find a call: CUPTI's correlation id says it. A call then says its range.

use cupti::CallClass;
use rustc_hash::FxHashMap;

use crate::health::{Account, Health};
use crate::store::{Api, Call, CallId, CallKind, Operation, Store, What};

/// Records found for a call, by kind.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    operations: u32,
    synchronizations: u32,
}

/// Calls by their correlation id. CUPTI counts these up, so that a table by id is short; a damaged file need not.
enum Calls {
    Table { first: u32, rows: Vec<u32> },
    Map(FxHashMap<u32, CallId>),
}

const NO_CALL: u32 = u32::MAX;

impl Calls {
    /// Of calls with the same id the last one. Those of `skip` are left out.
    fn of(calls: &[Call], is_left_out: impl Fn(&Call) -> bool) -> Self {
        let ids = || calls.iter().map(|call| call.correlation_id);
        let (first, last) = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
        let span = (last - first) as usize + 1;
        let rows = (0..).zip(calls).filter(|(_, call)| !is_left_out(call));
        if span <= 4 * calls.len() + 1024 {
            let mut table = vec![NO_CALL; span];
            for (row, call) in rows {
                table[(call.correlation_id - first) as usize] = row;
            }
            Self::Table { first, rows: table }
        } else {
            Self::Map(rows.map(|(row, call)| (call.correlation_id, CallId(row))).collect())
        }
    }

    #[inline]
    fn get(&self, id: u32) -> Option<CallId> {
        match self {
            Self::Table { first, rows } => {
                let row = *rows.get(id.checked_sub(*first)? as usize)?;
                (row != NO_CALL).then_some(CallId(row))
            }
            Self::Map(map) => map.get(&id).copied(),
        }
    }
}

/// Fills in the call of every operation, synchronisation and allocation, and leaves out what lies outside the session's
/// windows.
pub(crate) fn join(store: &mut Store, health: &mut Health) {
    set_outer_calls_apart(store);
    let windows = std::mem::take(&mut store.session.windows_ns);
    let within = |call: &Call| cupti::clock::is_within(&windows, call.time.start_ns);
    let stop_ns = store.session.window_ns.1;
    let by_id = Calls::of(&store.calls, |_| false);
    let mut found = vec![Found::default(); store.calls.len()];

    let calls = &store.calls;
    store.operations.retain_mut(|operation| {
        let call = by_id.get(operation.correlation_id);
        operation.call = call.into();
        let Some(row) = call else {
            // Work that was asked for while the stop went on.
            return operation.time().is_none_or(|time| time.start_ns < stop_ns);
        };
        found[row.at()].operations += 1;
        within(&calls[row.at()])
    });
    store.synchronizations.retain_mut(|synchronization| {
        let record = &synchronization.record;
        synchronization.call = by_id.get(record.correlation_id);
        let Some(row) = synchronization.call else {
            return true;
        };
        found[row.at()].synchronizations += 1;
        within(&calls[row.at()])
    });
    store.memory.retain_mut(|event| {
        let call = by_id.get(event.correlation_id);
        event.call = call.into();
        call.is_none_or(|row| within(&calls[row.at()]))
    });

    for operation in &store.operations {
        let account = account(health, store, operation);
        account.records += 1;
        let call = operation.call.get();
        account.matched_records += u64::from(call.is_some());
        if let (Some(call), Some(time)) = (call, operation.time()) {
            let early = store.calls[call.at()].time.start_ns.saturating_sub(time.start_ns);
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
            let pending_from_ns = store.session.pending_from_ns;
            settle(call, store.call_kind(call), *found, pending_from_ns, health);
        } else {
            health.calls_outside += 1;
        }
    }
    remove_calls_outside(store, within);
    store.session.windows_ns = windows;
}

/// Takes the calls of the runtime API that made a driver call out of the table: the driver call stands for both.
fn set_outer_calls_apart(store: &mut Store) {
    let is_runtime = |store: &Store, call: &Call| store.call_kind(call).api == Api::Runtime;
    if !store.calls.iter().any(|call| is_runtime(store, call)) {
        return;
    }
    let inner = Calls::of(&store.calls, |call| is_runtime(store, call));
    let calls = std::mem::take(&mut store.calls);
    let is_outer =
        |call: &Call| is_runtime(store, call) && inner.get(call.correlation_id).is_some();
    let (outer, calls) = calls.into_iter().partition(is_outer);
    (store.outer_calls, store.calls) = (outer, calls);
}

fn account<'a>(health: &'a mut Health, store: &Store, operation: &Operation) -> &'a mut Account {
    match store.work(operation).what {
        What::Kernel { .. } => &mut health.kernels,
        What::Copy(_) => &mut health.copies,
        What::Memset(_) => &mut health.memsets,
    }
}

/// Whether a call has the records it owes, or may still get them.
fn settle(
    call: &Call,
    kind: &CallKind,
    found: Found,
    pending_from_ns: Option<u64>,
    health: &mut Health,
) {
    if !kind.has_returned {
        let open = if pending_from_ns.is_some() {
            &mut health.pending_calls
        } else {
            &mut health.open_calls
        };
        *open += 1;
        return;
    }
    let is_pending = pending_from_ns.is_some_and(|from| call.time.end_ns >= from);
    if kind.is_failure() {
        health.failed_calls += 1;
        return;
    }
    if kind.captured {
        health.captured_calls += 1;
        return;
    }
    let (account, has_record) = match kind.class {
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
    if kind.empty && !has_record {
        return;
    }
    if is_pending && !has_record {
        health.pending_calls += 1;
        return;
    }
    account.calls += 1;
    account.matched_calls += u64::from(has_record);
}

/// Takes the calls outside the window out of the table; nothing refers to them any more.
fn remove_calls_outside(store: &mut Store, within: impl Fn(&Call) -> bool) {
    store.outer_calls.retain(&within);
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
    let moved = |call: CallId| CallId(new_rows[call.at()]);
    for operation in &mut store.operations {
        operation.call = operation.call.get().map(moved).into();
    }
    for synchronization in &mut store.synchronizations {
        synchronization.call = synchronization.call.map(moved);
    }
    for event in &mut store.memory {
        event.call = event.call.get().map(moved).into();
    }
}

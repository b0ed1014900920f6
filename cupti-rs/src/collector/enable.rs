//! CUPTI's settings, activity kinds and callbacks. Kinds are disabled in pauses; settings are
//! restored at the end; callbacks stay enabled and do nothing then.

use super::Collector;
use crate::attribute::{AttributeId, AttributeSetting, ZEROED_BUFFERS};
use crate::call_log;
use crate::clock;
use crate::collection_state;
use crate::error::{Error, Kind};
use crate::graphs::{GraphEventKind, KINDS};
use crate::kind::ActivityKind;
use crate::pc_sampling::session::{self, Session};
use crate::profiler_switch;
use crate::sys::abi::*;
use crate::sys::functions::*;
use crate::sys::safe::{self, CallbackId};

/// The callbacks of the profiler switch, `cudaProfilerStart` and `cudaProfilerStop`.
const SWITCH: [CallbackId; 4] = [
    (DOMAIN_DRIVER_API, DRIVER_PROFILER_START),
    (DOMAIN_DRIVER_API, DRIVER_PROFILER_STOP),
    (DOMAIN_RUNTIME_API, RUNTIME_PROFILER_START),
    (DOMAIN_RUNTIME_API, RUNTIME_PROFILER_STOP),
];

/// The events of contexts and modules for instruction samples.
const SAMPLED_EVENTS: [CallbackId; 4] = [
    (DOMAIN_RESOURCE, RESOURCE_CONTEXT_CREATED),
    (DOMAIN_RESOURCE, RESOURCE_CONTEXT_DESTROY_STARTING),
    (DOMAIN_RESOURCE, RESOURCE_MODULE_LOADED),
    (DOMAIN_RESOURCE, RESOURCE_MODULE_UNLOAD_STARTING),
];

/// A setting of CUPTI to restore.
#[derive(Debug, Clone, Copy)]
pub(super) enum Undo {
    Attribute(AttributeId, u64),
    ThreadIdType(u32),
    FlushPeriod,
    LatencyTimestamps,
    UnifiedMemoryCounters,
}

impl Collector {
    /// Subscribes to CUPTI and applies what lasts through pauses: settings and the profiler switch.
    /// Enables neither records nor callbacks. It makes launches of graphs slower
    /// until the process ends. A second call does nothing. Every collection is attached at its
    /// start, except one that [attaches later](crate::Config::attaches_later).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start). The collection is unchanged then.
    pub fn attach(&mut self) -> Result<(), Error> {
        if self.subscription.is_some() {
            return Ok(());
        }
        self.subscription = Some(self.library.api.subscription()?);
        self.flusher.attach();
        let attached = match self.library.unusable {
            Some(why) => Err(self.library.refuse(why)),
            None => self.set_up(),
        };
        self.has_attached = attached.is_ok();
        if attached.is_err() {
            self.detach();
            (self.callbacks, self.attributes) = Default::default();
        }
        attached
    }

    /// Restores the settings and returns the switch's marks. Callbacks stay enabled: CUPTI 13 loses
    /// threads whose callback is disabled during a call.
    pub(super) fn detach(&mut self) -> Vec<(u64, bool)> {
        if let Some(session) = &self.sampling {
            session.end();
        }
        if self.subscription.take().is_some() {
            safe::unsubscribe_if_silent();
        }
        self.callbacks_on = false;
        self.flusher.detach();
        while let Some(undo) = self.undo.pop() {
            self.restore(undo);
        }
        collection_state::end();
        profiler_switch::end()
    }

    fn set_up(&mut self) -> Result<(), Error> {
        self.cursor.get_mut().clock = clock::read(&self.library)?;
        self.set_attributes()?;
        let api = &self.library.api;
        if self.config.system_thread_ids {
            let before = api.thread_id_type()?;
            api.set_thread_id_type(THREAD_ID_TYPE_SYSTEM)?;
            self.undo.push(Undo::ThreadIdType(before));
        }
        api.use_pool()?;
        if let Some(period) = self.config.flush_period {
            let milliseconds = u32::try_from(period.as_millis()).unwrap_or(u32::MAX).max(1);
            api.set_flush_period(milliseconds)?;
            self.undo.push(Undo::FlushPeriod);
        }
        if self.config.latency_timestamps {
            api.set_latency_timestamps(true)?;
            self.undo.push(Undo::LatencyTimestamps);
        }
        self.choose_counters()?;
        let library = &self.library;
        let begin = |settings| Session::begin(&library.api, library.version(), settings);
        self.sampling = self.config.pc_sampling.as_ref().map(begin);
        self.choose_callbacks();
        call_log::set_stacks_after(self.config.stacks_after);
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        profiler_switch::begin();
        collection_state::begin(
            flag(self.config.runtime_calls, collection_state::RUNTIME_CALLS)
                | flag(self.config.graph_events, collection_state::GRAPHS)
                | flag(self.config.writes_synchronizations(), collection_state::WAITS)
                | flag(self.config.watches_switch(), collection_state::SWITCH)
                | flag(!self.config.profiler_switch, collection_state::SWITCHED_ON)
                | flag(self.samples(), collection_state::SAMPLES),
        );
        if self.samples() {
            // Enabled in pauses too: without the modules that they load there are no lines.
            for id in SAMPLED_EVENTS {
                self.enable_callback(id)?;
            }
        }
        profiler_switch::set_handler(self.config.switch_handler());
        if self.config.watches_switch() {
            // Enabled in pauses too: a switch that the program uses during a pause takes effect
            // after it.
            for id in SWITCH {
                if !self.enable_callback(id)? {
                    return Err(Error::call("cuptiEnableCallback", CuptiResult::INVALID_PARAMETER));
                }
            }
        }
        Ok(())
    }

    /// Sets the attributes, which CUPTI requires before the buffer functions are registered.
    fn set_attributes(&mut self) -> Result<(), Error> {
        let api = &self.library.api;
        // A library without this attribute zeroes buffers itself; one that does not return its
        // value has the default.
        let before = api.attribute(ZEROED_BUFFERS).ok().flatten().unwrap_or(0);
        if api.set_attribute(ZEROED_BUFFERS, 1)? {
            self.undo.push(Undo::Attribute(ZEROED_BUFFERS, before));
        }
        for &(attribute, asked) in &self.config.attributes {
            let lacks = || self.library.lacks(format!("setting for {attribute}"), "");
            let before = api.attribute(attribute.key())?.ok_or_else(lacks)?;
            if !api.set_attribute(attribute.key(), asked)? {
                return Err(Error::call(
                    "cuptiActivitySetAttribute",
                    CuptiResult::INVALID_PARAMETER,
                ));
            }
            self.undo.push(Undo::Attribute(attribute.key(), before));
            let set = api.attribute(attribute.key())?.unwrap_or(asked);
            self.attributes.push(AttributeSetting { attribute, before, asked, set });
        }
        Ok(())
    }

    /// Sets the counters of managed memory, without which CUPTI refuses that kind. They last
    /// through pauses.
    fn choose_counters(&mut self) -> Result<(), Error> {
        let counters = &self.config.unified_memory_counters;
        let is_unified_memory =
            |(kind, _): &(ActivityKind, bool)| *kind == ActivityKind::UNIFIED_MEMORY_COUNTER;
        if counters.is_empty() || !self.config.kinds.iter().any(is_unified_memory) {
            return Ok(());
        }
        self.counters_refused = self.library.api.set_unified_memory_counters(counters, true)?;
        if self.counters_refused.is_none() {
            self.undo.push(Undo::UnifiedMemoryCounters);
        }
        Ok(())
    }

    /// Returns true if CUPTI has the callback.
    fn enable_callback(&self, id: CallbackId) -> Result<bool, Error> {
        self.subscription.as_ref().map_or(Ok(false), |subscription| subscription.enable(id))
    }

    /// Collects the callbacks that [`log_calls_and_events`](Self::log_calls_and_events) enables.
    fn choose_callbacks(&mut self) {
        use GraphEventKind::{DependencyCreated, DependencyDestroyed, NodeCreated};
        let driver = DRIVER_CALLS.iter().map(|call| (DOMAIN_DRIVER_API, call.id));
        self.callbacks.extend(driver);
        self.callbacks.push((DOMAIN_RESOURCE, RESOURCE_GRAPHNODE_CREATED));
        if self.config.runtime_calls {
            let runtime = RUNTIME_CALLS.iter().map(|call| (DOMAIN_RUNTIME_API, call.id));
            self.callbacks.extend(runtime);
        }
        if self.config.graph_events {
            let is_chosen = |kind: GraphEventKind| match kind {
                DependencyCreated | DependencyDestroyed => self.config.graph_dependencies,
                NodeCreated => false,
                _ => true,
            };
            let others = KINDS.iter().filter(|(_, kind)| is_chosen(*kind));
            self.callbacks.extend(others.map(|&(id, _)| (DOMAIN_RESOURCE, id)));
        }
    }

    /// Logs calls and graph events from now on. Callbacks are enabled once.
    pub(super) fn log_calls_and_events(&mut self) -> Result<(), Error> {
        call_log::begin_segment();
        collection_state::resume();
        if self.callbacks_on {
            return Ok(());
        }
        for &id in &self.callbacks {
            // A function that the library lacks is never called.
            let known = self.enable_callback(id)?;
            // Every library has this one. Without it, captured calls would count as calls that lost
            // their records.
            if !known && id == (DOMAIN_RESOURCE, RESOURCE_GRAPHNODE_CREATED) {
                return Err(Error::call("cuptiEnableCallback", CuptiResult::INVALID_PARAMETER));
            }
        }
        self.callbacks_on = true;
        Ok(())
    }

    /// True if callbacks find contexts to sample.
    fn samples(&self) -> bool {
        self.sampling.as_ref().is_some_and(|session| session.is_sampling())
    }

    /// Samples the known contexts and this thread's. Others are found by the driver calls that name
    /// them.
    fn sample_contexts(&self) {
        let Some(session) = self.sampling.as_ref().filter(|session| session.is_sampling()) else {
            return;
        };
        session.resume();
        let current = self.library.api.contexts().and_then(|contexts| contexts.current());
        // Without an answer a call finds the context.
        if let Ok(Some((context, _))) = current
            && let Some(id) = self.library.api.context_id(context)
        {
            session::context_found(context, id);
        }
    }

    pub(super) fn turn_on(&mut self) -> Result<(), Error> {
        self.turned_on_ns = clock::now_ns();
        if !collection_state::State::load().has(collection_state::ON) {
            self.log_calls_and_events()?;
        }
        if let Some(session) = &self.sampling {
            // CUPTI enables no kind of kernel records while it samples, which a pause may have left.
            session.pause();
        }
        self.missing_kinds.clear();
        for &(kind, required) in
            self.config.kinds.iter().filter(|(kind, _)| self.config.enables(*kind))
        {
            let refused = match self.counters_refused {
                Some(code) if kind == ActivityKind::UNIFIED_MEMORY_COUNTER => Some(code),
                _ => self.enable(kind)?,
            };
            let Some(code) = refused else { continue };
            if required {
                let version = self.library.version();
                return Err(Error::new(Kind::UnknownActivity { kind, code, version }));
            }
            self.missing_kinds.push(kind);
        }
        // Last, for the same reason.
        self.sample_contexts();
        self.on_since_ns = Some(clock::now_ns());
        Ok(())
    }

    /// Enables a kind. Returns CUPTI's refusal if the library does not have it.
    fn enable(&self, kind: ActivityKind) -> Result<Option<CuptiResult>, Error> {
        match self.library.version().lacks_kind(kind) {
            true => Ok(Some(CuptiResult::INVALID_KIND)),
            false => self.library.api.enable_kind(kind.0),
        }
    }

    /// Disables the kinds that [`turn_on`](Self::turn_on) enabled, even if it failed half-way.
    /// Ignores errors: no caller could act on them.
    pub(super) fn turn_off(&self) {
        let api = &self.library.api;
        for &(kind, _) in &self.config.kinds {
            if self.config.enables(kind) && !self.missing_kinds.contains(&kind) {
                api.disable_kind(kind.0);
            }
        }
    }

    pub(super) fn restore(&self, undo: Undo) {
        let api = &self.library.api;
        let _ = match undo {
            Undo::Attribute(attribute, value) => api.set_attribute(attribute, value).map(|_| ()),
            Undo::ThreadIdType(kind) => api.set_thread_id_type(kind),
            Undo::FlushPeriod => api.set_flush_period(0),
            Undo::LatencyTimestamps => api.set_latency_timestamps(false),
            Undo::UnifiedMemoryCounters => {
                let counters = &self.config.unified_memory_counters;
                api.set_unified_memory_counters(counters, false).map(|_| ())
            }
        };
    }
}

//! NVTX ranges and marks with their labels.

use std::cmp::Reverse;
use std::rc::Rc;

use nvtx::Payload;
use rustc_hash::FxHashMap;

use super::super::file::Cells;
use super::super::format::event;
use super::super::schema;
use super::Reader;
use crate::error::Error;
use profiler_core::tables::{
    Details, Field, FieldValue, Interval, Label, LabelId, Mark, MarkId, Maybe, NameId,
    ProcessRange, ProcessRangeId, Range, RangeId, Subject, Tables, ThreadId,
};

/// Process, domain and number.
type Registered = (u32, u64, u64);

/// Registered domains, categories and thread names.
#[derive(Default)]
struct Registry {
    domains: FxHashMap<(u32, u64), NameId>,
    categories: FxHashMap<Registered, NameId>,
    threads: FxHashMap<ThreadId, Box<str>>,
    labels: FxHashMap<Label, LabelId>,
    /// Payloads by the id of their JSON text; `None` if unreadable.
    payloads: FxHashMap<i64, Option<Rc<[Field]>>>,
    /// Fields of shared payloads, counted for each row.
    shared_fields: u64,
}

/// The maximum number of fields from shared payloads, plus one per byte of the file: many rows may
/// share one.
const SHARED_FIELDS: u64 = 1 << 20;

/// A row of `NVTX_EVENTS` before it is in the store.
struct Event {
    thread: ThreadId,
    end_thread: Option<ThreadId>,
    start_ns: u64,
    end_ns: Option<u64>,
    label: LabelId,
    number: u64,
    details: Option<Details>,
}

impl Reader<'_> {
    pub(super) fn read_ranges(&mut self) -> Result<(), Error> {
        let mut registry = self.read_registry()?;
        let (mut ranges, mut process_ranges, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        let file = self.file;
        let (table, columns) = schema::ANNOTATIONS;
        file.rows((table, &format!("{columns}, textId, jsonTextId, rowid")), |row| {
            let times = [row.time(0), row.time(1)].into_iter().flatten();
            self.capture.last_annotation_ns = times.fold(self.capture.last_annotation_ns, u64::max);
            let to = match row.number(2) {
                Some(event::PUSH_POP | event::NVTXT_PUSH_POP) => &mut ranges,
                Some(event::START_END | event::NVTXT_START_END) => &mut process_ranges,
                Some(event::MARK) => &mut marks,
                Some(event::CATEGORY | event::DOMAIN | event::THREAD) => return,
                Some(_) => {
                    self.capture.health.facts.unused_records += 1;
                    return;
                }
                None => return self.unreadable(),
            };
            match self.event(row, &mut registry) {
                Some(event) => to.push(event),
                None => self.unreadable(),
            }
        })?;
        for (thread, name) in registry.threads {
            self.capture.store.threads[thread.at()].name = Some(name);
        }
        let order = |event: &Event| {
            (event.thread, event.start_ns, Reverse(event.end_ns.unwrap_or(u64::MAX)), event.number)
        };
        for events in [&mut ranges, &mut process_ranges, &mut marks] {
            events.sort_by_key(order);
        }
        let last_ns = |event: &Event| event.end_ns.unwrap_or(event.start_ns);
        self.capture.last_range_ns =
            ranges.iter().chain(&process_ranges).map(last_ns).max().unwrap_or(0);
        for mut event in ranges {
            let id = RangeId(self.capture.store.ranges.len() as u32);
            let time = self.range_time(Subject::Range(id), &mut event);
            let (label, thread, is_open) = (event.label, event.thread, event.end_ns.is_none());
            self.capture.store.ranges.push(Range {
                time,
                label,
                thread,
                parent: Maybe::NONE,
                is_open,
            });
        }
        for mut event in process_ranges {
            let id = ProcessRangeId(self.capture.store.process_ranges.len() as u32);
            let time = self.range_time(Subject::ProcessRange(id), &mut event);
            let (label, thread) = (event.label, event.thread);
            let end_thread = event.end_ns.map(|_| event.end_thread.unwrap_or(thread));
            self.capture.store.process_ranges.push(ProcessRange {
                label,
                thread,
                parent: None,
                time,
                end_thread,
            });
        }
        for event in marks {
            let id = MarkId(self.capture.store.marks.len() as u32);
            self.add_details(Subject::Mark(id), event.details);
            let (label, thread, at_ns) = (event.label, event.thread, event.start_ns);
            self.capture.store.marks.push(Mark { label, thread, at_ns, parent: None });
        }
        Ok(())
    }

    /// The time of a range. An open range ends at `u64::MAX`, since the end of the capture is not
    /// known yet.
    fn range_time(&mut self, subject: Subject, event: &mut Event) -> Interval {
        self.add_details(subject, event.details.take());
        self.capture.store.range_numbers.push(event.number);
        self.capture.health.facts.open_ranges += u64::from(event.end_ns.is_none());
        Interval { start_ns: event.start_ns, end_ns: event.end_ns.unwrap_or(u64::MAX) }
    }

    fn add_details(&mut self, subject: Subject, details: Option<Details>) {
        if let Some(details) = details {
            self.capture.store.details.insert(subject, details);
        }
    }

    /// Reads registrations first: rows may use names defined by later rows.
    fn read_registry(&mut self) -> Result<Registry, Error> {
        let file = self.file;
        let mut registry = Registry::default();
        // nsys uses the first of several names by time; among simultaneous ones the first row.
        let mut firsts: FxHashMap<(i64, u64, u64, u64), (i64, i64)> = FxHashMap::default();
        file.rows(
            ("NVTX_EVENTS", "eventType, globalTid, text, textId, domainId, category, start, rowid"),
            |row| {
                let Some(kind @ (event::CATEGORY | event::DOMAIN | event::THREAD)) = row.number(0)
                else {
                    return;
                };
                let (Some(global), Some(name)) = (row.bits(1), self.event_text(row, 2, 3)) else {
                    return self.unreadable();
                };
                let process = self.process(global);
                let domain = row.bits(4).unwrap_or(0);
                let named = match kind {
                    event::THREAD => (kind, global, 0, 0),
                    event::DOMAIN => (kind, process.into(), domain, 0),
                    _ => (kind, process.into(), domain, row.bits(5).unwrap_or(0)),
                };
                let at = (row.number(6).unwrap_or(i64::MAX), row.number(7).unwrap_or(i64::MAX));
                let first = firsts.entry(named).or_insert(at);
                if *first < at {
                    return;
                }
                *first = at;
                match kind {
                    event::DOMAIN => {
                        registry.domains.insert((process, domain), name);
                    }
                    event::CATEGORY => {
                        let number = row.bits(5).unwrap_or(0);
                        registry.categories.insert((process, domain, number), name);
                    }
                    _ => {
                        let thread = self.thread(global);
                        registry.threads.insert(thread, self.capture.store.names.get(name).into());
                    }
                }
            },
        )?;
        Ok(registry)
    }

    /// The text of a row: registered texts have an id.
    fn event_text(&mut self, row: Cells<'_>, text: usize, id: usize) -> Option<NameId> {
        match row.number(id) {
            Some(id) => self.strings.name(&mut self.capture.store, id),
            None => row.text(text).map(|text| self.capture.store.names.intern(&text)),
        }
    }

    fn event(&mut self, row: Cells<'_>, registry: &mut Registry) -> Option<Event> {
        let (start_ns, global) = (row.time(0)?, row.bits(7)?);
        let end_ns = match row.time(1) {
            Some(end_ns) => Some(Some(end_ns).filter(|end_ns| *end_ns >= start_ns)?),
            None => None,
        };
        self.capture.end_ns = self.capture.end_ns.max(end_ns.unwrap_or(start_ns));
        let thread = self.thread(global);
        let process = self.capture.store.threads[thread.at()].process;
        let end_thread = row.bits(8).map(|global| self.thread(global));
        let name = self.event_text(row, 6, 17);
        let name = name.unwrap_or_else(|| self.capture.store.names.intern(""));
        let domain = row.bits(9).filter(|domain| *domain != 0);
        let category = row.bits(4).filter(|category| *category != 0);
        let in_domain = domain.unwrap_or(0);
        let label = Label {
            name,
            domain: domain.map(|domain| {
                let known = registry.domains.get(&(process, domain)).copied();
                known.unwrap_or_else(|| {
                    self.capture.store.names.intern(&format!("(domain {domain})"))
                })
            }),
            category: category.map(|number| {
                let known = registry.categories.get(&(process, in_domain, number)).copied();
                known.unwrap_or_else(|| self.capture.store.names.intern(&number.to_string()))
            }),
            // CAST: the colour's 32 bits, with either sign.
            color: row.number::<i64>(5).map(|color| color as u32),
        };
        let label = *registry.labels.entry(label).or_insert_with(|| {
            self.capture.store.labels.push(label);
            LabelId(self.capture.store.labels.len() as u32 - 1)
        });
        let number = row.bits(19).unwrap_or(0);
        let details = self.details(row, registry);
        Some(Event { thread, end_thread, start_ns, end_ns, label, number, details })
    }

    fn details(&mut self, row: Cells<'_>, registry: &mut Registry) -> Option<Details> {
        let payload = (row.bits(10).map(Payload::U64))
            .or_else(|| row.number(11).map(Payload::I64))
            .or_else(|| row.real(12).map(Payload::F64))
            .or_else(|| row.number(13).map(Payload::U32))
            .or_else(|| row.number(14).map(Payload::I32))
            // CAST: the original value had 32 bits.
            .or_else(|| row.real(15).map(|value| Payload::F32(value as f32)));
        let fields = match (row.text(16), row.number(18)) {
            (Some(json), _) => fields_of(&mut self.capture.store, &json),
            (None, Some(id)) => self.shared_fields(id, registry),
            (None, None) => Some(Vec::new()),
        };
        let fields = fields.unwrap_or_else(|| {
            self.unreadable();
            Vec::new()
        });
        let is_any = payload.is_some() || !fields.is_empty();
        is_any.then_some(Details { payload, within: None, fields })
    }

    /// The fields of a payload with an id, parsed once. `None` also beyond the limit of fields.
    fn shared_fields(&mut self, id: i64, registry: &mut Registry) -> Option<Vec<Field>> {
        let Self { capture, strings, .. } = self;
        let parse = || Some(fields_of(&mut capture.store, strings.text(id)?)?.into());
        let fields = registry.payloads.entry(id).or_insert_with(parse).clone()?;
        let shared = registry.shared_fields.saturating_add(fields.len() as u64);
        if shared > SHARED_FIELDS.saturating_add(self.file.bytes) {
            return None;
        }
        registry.shared_fields = shared;
        let copy = |field: &Field| Field { name: field.name, unit: field.unit, value: field.value };
        Some(fields.iter().map(copy).collect())
    }
}

/// The fields of a structured payload, exported as a JSON object. Nested values become text.
fn fields_of(store: &mut Tables, json: &str) -> Option<Vec<Field>> {
    use serde_json::Value;
    let Ok(Value::Object(object)) = serde_json::from_str(json) else { return None };
    let names = &mut store.names;
    let unit = names.intern("");
    let mut fields = Vec::with_capacity(object.len());
    for (name, value) in object {
        let value = match &value {
            Value::Bool(value) => FieldValue::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => FieldValue::U64(value),
                (None, Some(value)) => FieldValue::I64(value),
                _ => FieldValue::F64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => FieldValue::Text(names.intern(text)),
            other => FieldValue::Text(names.intern(&other.to_string())),
        };
        fields.push(Field { name: names.intern(&name), unit, value });
    }
    Some(fields)
}

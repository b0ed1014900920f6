//! Writes ranges, process ranges and marks.

use nvtx::Payload;
use rustc_hash::FxHashMap;

use super::super::destination::{Cell, Destination, Rows};
use super::super::format::event;
use super::super::schema;
use super::{Result_, Writer};
use profiler_core::tables::{
    Details, FieldValue, LabelId, MarkId, NameId, ProcessRangeId, RangeId, Subject, Tables,
    ThreadId,
};

/// The numbers of domains and categories by process.
#[derive(Default)]
struct Registry {
    domains: FxHashMap<(u32, NameId), u32>,
    categories: FxHashMap<(u32, u32, NameId), u32>,
}

/// A row of `NVTX_EVENTS`.
struct Event {
    time: (i64, Option<i64>),
    kind: i64,
    range_id: Option<i64>,
    label: LabelId,
    thread: ThreadId,
    end_thread: Option<ThreadId>,
    subject: Subject,
    /// The row number, which nsys's reports use for ranges.
    number: Option<i64>,
}

impl Event {
    fn new(kind: i64, label: LabelId, thread: ThreadId, subject: Subject) -> Self {
        let (time, range_id, end_thread, number) = ((0, None), None, None, None);
        Self { time, kind, range_id, label, thread, end_thread, subject, number }
    }
}

impl<T: Destination, P: FnMut(u64, u64)> Writer<'_, T, P> {
    pub(super) fn write_ranges(&mut self) -> Result_<T> {
        let store = self.store;
        let (table, columns) = schema::ANNOTATIONS;
        let number = if self.has_numbers() { ", rowid" } else { "" };
        let mut insert = self.tables.insert(table, &format!("{columns}{number}"))?;
        let number = |row: usize| store.range_numbers.get(row).map(|number| number.cast_signed());
        let mut registry = Registry::default();
        for (row, range) in (0..).zip(&store.ranges) {
            let (start, end) = self.span(range.time);
            let event = Event {
                time: (start, (!range.is_open).then_some(end)),
                number: number(row as usize),
                ..Event::new(
                    event::PUSH_POP,
                    range.label,
                    range.thread,
                    Subject::Range(RangeId(row)),
                )
            };
            self.write_event(&mut insert, &mut registry, &event)?;
        }
        for (row, range) in (0..).zip(&store.process_ranges) {
            let (start, end) = self.span(range.time);
            let subject = Subject::ProcessRange(ProcessRangeId(row));
            let event = Event {
                time: (start, range.end_thread.map(|_| end)),
                range_id: Some(i64::from(row) + 1),
                // nsys writes the end thread only if it differs.
                end_thread: range.end_thread.filter(|end| *end != range.thread),
                number: number(store.ranges.len() + row as usize),
                ..Event::new(event::START_END, range.label, range.thread, subject)
            };
            self.write_event(&mut insert, &mut registry, &event)?;
        }
        for (row, mark) in (0..).zip(&store.marks) {
            let event = Event {
                time: (self.at(mark.at_ns), None),
                ..Event::new(event::MARK, mark.label, mark.thread, Subject::Mark(MarkId(row)))
            };
            self.write_event(&mut insert, &mut registry, &event)?;
        }
        let mut domains: Vec<_> = registry.domains.into_iter().collect();
        domains.sort_unstable_by_key(|((process, _), number)| (*process, *number));
        let mut insert =
            self.insert(("NVTX_EVENTS", "start, eventType, text, globalTid, domainId"))?;
        for ((process, name), number) in domains {
            insert.set(0)?.set(event::DOMAIN)?.set(store.names.get(name))?;
            insert.bits(self.global(process, 0))?.set(number)?.row()?;
        }
        let mut categories: Vec<_> = registry.categories.into_iter().collect();
        categories
            .sort_unstable_by_key(|((process, domain, _), number)| (*process, *domain, *number));
        let mut insert =
            self.insert(("NVTX_EVENTS", "start, eventType, text, globalTid, domainId, category"))?;
        for ((process, domain, name), number) in categories {
            insert.set(0)?.set(event::CATEGORY)?.set(store.names.get(name))?;
            insert.bits(self.global(process, 0))?.set(domain)?.set(number)?.row()?;
        }
        Ok(())
    }

    /// Writes the ranges that operations refer to by row.
    pub(super) fn write_tree(&self) -> Result_<T> {
        let mut insert = self.insert(schema::RANGES)?;
        let paths: Vec<String> = self.profile.nodes().map(|node| node.cut_path()).collect();
        let mut instances = vec![0_i64; paths.len()];
        for ((row, range), node) in
            (0_u32..).zip(&self.store.ranges).zip(&self.profile.range_tree().of_range)
        {
            let (start, end) = self.span(range.time);
            let instance = &mut instances[node.at()];
            let domain = self.profile.range_tree().node_at(*node).domain;
            insert.set(row)?.set(range.parent.get().map(|parent| parent.0))?;
            insert.set(&*paths[node.at()])?;
            insert.set(domain.map(|domain| self.store.names.get(domain)))?.set(*instance)?;
            insert.set(self.global_thread(range.thread))?;
            insert.set(start)?.set((!range.is_open).then_some(end))?.row()?;
            *instance += 1;
        }
        Ok(())
    }

    fn write_event(
        &mut self,
        insert: &mut T::Rows,
        registry: &mut Registry,
        event: &Event,
    ) -> Result_<T> {
        self.progress.row();
        let store = self.store;
        let label = store.label(event.label);
        let process = store.threads[event.thread.at()].process;
        let domain = label.domain.map_or(0, |domain| {
            // 0 is the default domain.
            let next = registry.domains.len() as u32 + 1;
            *registry.domains.entry((process, domain)).or_insert(next)
        });
        let category = label.category.map(|category| {
            let next = registry.categories.len() as u32 + 1;
            *registry.categories.entry((process, domain, category)).or_insert(next)
        });
        insert.set(event.time.0)?.set(event.time.1)?.set(event.kind)?.set(event.range_id)?;
        insert.set(category)?.set(label.color)?.set(store.names.get(label.name))?;
        insert.set(self.global_thread(event.thread))?;
        insert.set(event.end_thread.map(|thread| self.global_thread(thread)))?.set(domain)?;
        let details = store.details.get(&event.subject);
        let payload = details.and_then(|details| details.payload);
        let (place, value) = match payload {
            Some(Payload::U64(value)) => (0, Cell::Integer(value.cast_signed())),
            Some(Payload::I64(value)) => (1, Cell::Integer(value)),
            Some(Payload::F64(value)) => (2, Cell::Real(value)),
            Some(Payload::U32(value)) => (3, Cell::from(value)),
            Some(Payload::I32(value)) => (4, Cell::from(value)),
            Some(Payload::F32(value)) => (5, Cell::Real(value.into())),
            _ => (6, Cell::Null),
        };
        for column in 0..6 {
            insert.set(if column == place { value } else { Cell::Null })?;
        }
        let fields = details.and_then(|details| json(store, details));
        insert.set(fields.as_deref())?;
        if self.has_numbers() {
            insert.set(event.number)?;
        }
        insert.row()
    }

    /// True if ranges have row numbers from their capture. Parquet has no row numbers.
    fn has_numbers(&self) -> bool {
        !T::HAS_RANGES && !self.store.range_numbers.is_empty()
    }
}

/// Fields as a JSON object, in nsys's export format. Units are lost.
fn json(store: &Tables, details: &Details) -> Option<String> {
    use serde_json::{Map, Value};
    if details.fields.is_empty() {
        return None;
    }
    let mut object = Map::new();
    for field in &details.fields {
        let value = match field.value {
            FieldValue::U64(value) => Value::from(value),
            FieldValue::I64(value) => Value::from(value),
            FieldValue::F64(value) => Value::from(value),
            FieldValue::Bool(value) => Value::from(value),
            FieldValue::Text(text) => Value::from(store.names.get(text)),
        };
        object.insert(store.names.get(field.name).to_owned(), value);
    }
    Some(Value::Object(object).to_string())
}

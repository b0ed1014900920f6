//! The events of a trace, read one by one. Memory grows with their number, not with the text: values
//! that are not used are skipped, and names are stored once.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::formats::capture::UNKNOWN_NAME;
use profiler_core::tables::{NameId, Names};

/// The contents of a file.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) names: Names,
    pub(super) events: Vec<Event>,
    /// Names of processes and threads, by process and thread; -1 for the process.
    pub(super) titles: Vec<((i64, i64), NameId)>,
    pub(super) devices: Vec<Object>,
    /// The profiler's own span, in nanoseconds.
    pub(super) windows: Vec<(i64, i64)>,
    pub(super) unreadable: u64,
    pub(super) unused: u64,
    pub(super) file: Object,
    pub(super) distributed: Object,
}

/// An event with a time.
pub(super) struct Event {
    pub(super) category: Category,
    pub(super) name: NameId,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) pid: i64,
    pub(super) tid: i64,
    pub(super) correlation: u32,
    /// Of work and waits.
    pub(super) work: Option<Box<Work>>,
}

/// Arguments of work and waits. Numbers that are missing or out of range are `None` or 0.
pub(super) struct Work {
    pub(super) device: Option<u32>,
    pub(super) context: u32,
    pub(super) stream: Option<u32>,
    pub(super) bytes: Option<u64>,
    pub(super) registers: u16,
    pub(super) shared_bytes: u32,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) graph: u32,
    pub(super) node: u64,
    /// Source and destination, each a device and a context.
    pub(super) peers: Option<((u32, u32), (u32, u32))>,
    pub(super) event: Option<u32>,
}

impl Work {
    fn new(args: &Object) -> Self {
        let number = |key| args.number(key).unwrap_or(0);
        let source = args.number(Key::FromDevice).map(|of| (of, number(Key::FromContext)));
        let destination = args.number(Key::ToDevice).map(|of| (of, number(Key::ToContext)));
        Self {
            device: args.number(Key::Device),
            context: number(Key::Context),
            stream: args.number(Key::Stream).filter(|stream| *stream != u32::MAX),
            bytes: args.number(Key::Bytes),
            registers: args.number(Key::Registers).unwrap_or(0),
            shared_bytes: number(Key::SharedMemory),
            grid: args.sizes(Key::Grid),
            block: args.sizes(Key::Block),
            graph: number(Key::Graph),
            node: args.number(Key::Node).unwrap_or(0),
            peers: source.zip(destination),
            event: args.number(Key::WaitEvent),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    Kernel,
    Copy,
    Memset,
    Graph,
    Runtime,
    Driver,
    Operator,
    Annotation,
    GpuAnnotation,
    Wait,
    Overhead,
    Window,
    Other,
}

impl Category {
    /// By Kineto's name; names with a capital are those of older versions.
    fn new(name: &str) -> Self {
        match name {
            "kernel" | "Kernel" => Self::Kernel,
            "gpu_memcpy" | "Memcpy" => Self::Copy,
            "gpu_memset" | "Memset" => Self::Memset,
            // Not Kineto's: whole graphs in our exports.
            "gpu_graph" => Self::Graph,
            "cuda_runtime" | "Runtime" => Self::Runtime,
            "cuda_driver" => Self::Driver,
            "cpu_op" | "Operator" => Self::Operator,
            "user_annotation" => Self::Annotation,
            "gpu_user_annotation" => Self::GpuAnnotation,
            "cuda_sync" => Self::Wait,
            "overhead" => Self::Overhead,
            "Trace" => Self::Window,
            _ => Self::Other,
        }
    }

    fn is_on_gpu(self) -> bool {
        matches!(self, Self::Kernel | Self::Copy | Self::Memset | Self::Graph | Self::Wait)
    }
}

macro_rules! keys {
    ($($key:ident $text:literal,)+) => {
        /// The members of objects that are read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
        #[serde(field_identifier)]
        pub(super) enum Key {
            $(#[serde(rename = $text)] $key,)+
            #[serde(other)]
            Other,
        }

        const KEYS: usize = [$($text),+].len();
    };
}
keys! {
    TraceEvents "traceEvents", DeviceProperties "deviceProperties", Distributed "distributedInfo",
    SchemaVersion "schemaVersion", BaseTime "baseTimeNanoseconds",
    DriverVersion "cuda_driver_version", Rank "rank", WorldSize "world_size",
    Phase "ph", Category "cat", Name "name", Pid "pid", Tid "tid", Time "ts", Duration "dur",
    Args "args",
    Correlation "correlation", Device "device", Context "context", Stream "stream", Bytes "bytes",
    Registers "registers per thread", SharedMemory "shared memory", Grid "grid", Block "block",
    Graph "graph id", Node "graph node id", FromDevice "fromDevice", FromContext "fromContext",
    ToDevice "toDevice", ToContext "toContext", WaitEvent "wait_on_cuda_event_id",
    Id "id", Memory "totalGlobalMem", Major "computeMajor", Minor "computeMinor", WarpSize "warpSize",
    Threads "maxThreadsPerMultiprocessor", Multiprocessors "numSms", RegistersPerBlock "regsPerBlock",
    RegistersEach "regsPerMultiprocessor", SharedPerBlock "sharedMemPerBlockOptin",
    SharedEach "sharedMemPerMultiprocessor",
}

/// A member's value. Of a list, the first three numbers.
#[derive(Debug, Clone, Copy, Default)]
enum Value {
    Integer(i64),
    Real(f64),
    Sizes([u32; 3]),
    Phase(u8),
    Category(Category),
    /// In [`Object::name`].
    Name,
    Object,
    #[default]
    Other,
}

/// An object's members that are read.
#[derive(Debug, Clone)]
pub(super) struct Object {
    values: [Value; KEYS],
    name: String,
}

impl Default for Object {
    fn default() -> Self {
        Self { values: [Value::Other; KEYS], name: String::new() }
    }
}

impl Object {
    fn clear(&mut self) {
        self.values = [Value::Other; KEYS];
        self.name.clear();
    }

    fn value(&self, key: Key) -> Value {
        self.values.get(key as usize).copied().unwrap_or_default()
    }

    pub(super) fn name(&self) -> Option<&str> {
        matches!(self.value(Key::Name), Value::Name).then_some(&*self.name)
    }

    pub(super) fn number<T: TryFrom<i64>>(&self, key: Key) -> Option<T> {
        match self.value(key) {
            Value::Integer(number) => T::try_from(number).ok(),
            // CAST: a number beyond 64 bits becomes one that no column has.
            Value::Real(number) if number.fract() == 0.0 => T::try_from(number as i64).ok(),
            _ => None,
        }
    }

    pub(super) fn sizes(&self, key: Key) -> [u32; 3] {
        match self.value(key) {
            Value::Sizes(sizes) => sizes,
            _ => [0; 3],
        }
    }

    /// Nanoseconds, of microseconds in the file.
    fn ns(&self, key: Key) -> Option<i64> {
        let ns = match self.value(key) {
            Value::Integer(micros) => micros.checked_mul(1000)?,
            // CAST: saturates, and is checked below.
            Value::Real(micros) if micros.is_finite() => (micros * 1000.0).round() as i64,
            _ => return None,
        };
        (-MOST_NS..=MOST_NS).contains(&ns).then_some(ns)
    }
}

/// 146 years.
const MOST_NS: i64 = 1 << 62;
/// Names are cut to this; those of kernels have some thousand bytes.
const NAME_BYTES: usize = 1 << 16;
const MOST_DEVICES: usize = 1024;

/// Reads any value: an event with its arguments, or a member.
struct Seed<'a> {
    key: Key,
    /// For a name.
    name: Option<&'a mut String>,
    /// The objects to fill: this value and its arguments.
    objects: &'a mut [Object],
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Other, Value::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Real(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(match (self.key, self.name) {
            (Key::Phase, _) => Value::Phase(text.bytes().next().unwrap_or(0)),
            (Key::Category, _) => Value::Category(Category::new(text)),
            (Key::Name, Some(name)) => {
                name.clear();
                name.push_str(&text[..text.floor_char_boundary(NAME_BYTES)]);
                Value::Name
            }
            _ => Value::Other,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let (mut sizes, mut next) = ([0; 3], 0);
        let element = || Seed { key: Key::Other, name: None, objects: &mut [] };
        while let Some(value) = list.next_element_seed(element())? {
            if let (Some(size), Value::Integer(number)) = (sizes.get_mut(next), value) {
                *size = u32::try_from(number).unwrap_or(0);
            }
            next += 1;
        }
        Ok(Value::Sizes(sizes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Some((object, inner)) = self.objects.split_first_mut() else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Other);
        };
        while let Some(key) = map.next_key::<Key>()? {
            let Some(value) = object.values.get_mut(key as usize) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let objects = if key == Key::Args { &mut *inner } else { &mut [] };
            let name = Some(&mut object.name);
            *value = map.next_value_seed(Seed { key, name, objects })?;
        }
        Ok(Value::Object)
    }
}

/// Reads a list of objects, one after the other into the same memory.
struct List<'a, F> {
    objects: &'a mut [Object],
    each: F,
}

impl<'de, F: FnMut(Option<&[Object]>)> DeserializeSeed<'de> for List<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(Option<&[Object]>)> Visitor<'de> for List<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        loop {
            self.objects.iter_mut().for_each(Object::clear);
            let seed = Seed { key: Key::Other, name: None, objects: &mut *self.objects };
            match list.next_element_seed(seed)? {
                Some(Value::Object) => (self.each)(Some(&*self.objects)),
                Some(_) => (self.each)(None),
                None => return Ok(()),
            }
        }
    }
}

/// Reads the file.
struct Whole<'a>(&'a mut Trace);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with traceEvents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let trace = self.0;
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::TraceEvents => {
                    let objects = &mut [Object::default(), Object::default()];
                    let each = |event: Option<&[Object]>| trace.add(event);
                    map.next_value_seed(List { objects, each })?;
                }
                Key::DeviceProperties => {
                    let devices = &mut trace.devices;
                    let each = |device: Option<&[Object]>| {
                        let room = MOST_DEVICES - devices.len();
                        devices.extend(device.into_iter().flatten().take(room).cloned());
                    };
                    map.next_value_seed(List { objects: &mut [Object::default()], each })?;
                }
                Key::Distributed => {
                    let objects = std::slice::from_mut(&mut trace.distributed);
                    map.next_value_seed(Seed { key, name: None, objects })?;
                }
                Key::Other => _ = map.next_value::<IgnoredAny>()?,
                key => {
                    let value = map.next_value_seed(Seed { key, name: None, objects: &mut [] })?;
                    trace.file.values[key as usize] = value;
                }
            }
        }
        Ok(())
    }
}

impl Trace {
    fn add(&mut self, event: Option<&[Object]>) {
        let Some([event, args]) = event else { return self.unreadable += 1 };
        let Value::Phase(phase) = event.value(Key::Phase) else { return self.unreadable += 1 };
        let category = match (phase, event.value(Key::Category)) {
            (b'M', _) => return self.add_title(event, args),
            // Arrows repeat correlation ids. Without a category: the profiler's own notes.
            (b's' | b't' | b'f', _) | (_, Value::Other) => return,
            (b'X', Value::Category(category)) => category,
            _ => return self.unused += 1,
        };
        match category {
            Category::Other => return self.unused += 1,
            // Repeats an annotation.
            Category::GpuAnnotation => return,
            _ => {}
        }
        let times = event.ns(Key::Time).zip(event.ns(Key::Duration));
        let Some((start_ns, ns)) = times.filter(|(_, ns)| *ns >= 0) else {
            return self.unreadable += 1;
        };
        let end_ns = start_ns.saturating_add(ns);
        if category == Category::Window {
            return self.windows.push((start_ns, end_ns));
        }
        let name = event.name().unwrap_or_else(|| {
            self.unreadable += 1;
            UNKNOWN_NAME
        });
        self.events.push(Event {
            category,
            name: self.names.intern(name),
            start_ns,
            end_ns,
            pid: event.number(Key::Pid).unwrap_or(-1),
            tid: event.number(Key::Tid).unwrap_or(-1),
            correlation: args.number(Key::Correlation).unwrap_or(0),
            work: category.is_on_gpu().then(|| Box::new(Work::new(args))),
        });
    }

    fn add_title(&mut self, event: &Object, args: &Object) {
        let thread = match event.name() {
            Some("process_name") => Some(-1),
            Some("thread_name") => event.number(Key::Tid),
            _ => return,
        };
        if let (Some(pid), Some(thread), Some(title)) =
            (event.number(Key::Pid), thread, args.name())
        {
            self.titles.push(((pid, thread), self.names.intern(title)));
        }
    }

    /// True for a trace of `torch.profiler`, also for one without events.
    pub(super) fn is_torch(&self) -> bool {
        let has_version = matches!(self.file.value(Key::SchemaVersion), Value::Integer(_));
        has_version || !self.events.is_empty() || !self.windows.is_empty()
    }
}

/// Reads a file to its end.
pub(super) fn parse(text: impl Read) -> serde_json::Result<Trace> {
    let mut trace = Trace::default();
    let mut json = serde_json::Deserializer::from_reader(text);
    json.deserialize_map(Whole(&mut trace))?;
    json.end()?;
    Ok(trace)
}

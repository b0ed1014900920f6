//! A small reader of Perfetto's protobuf: what its trace processor would make of a trace, or why it would not.

use std::collections::{BTreeMap, BTreeSet};

/// A field of a message: a number, or bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(self) -> u64 {
        let Self::Number(number) = self else { panic!("not a number: {self:?}") };
        number
    }

    fn bytes(self) -> &'a [u8] {
        let Self::Bytes(bytes) = self else { panic!("not bytes: {self:?}") };
        bytes
    }

    fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than 64 bits")
}

/// The fields of a message with their numbers.
pub(crate) fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(value.try_into().unwrap()))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn first_number(fields: &[(u64, Field<'_>)], number: u64) -> Option<u64> {
    fields.iter().find(|(n, _)| *n == number).map(|(_, field)| field.number())
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slice {
    pub(crate) category: String,
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) track: u64,
    pub(crate) args: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) name: String,
    pub(crate) parent: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) tracks: BTreeMap<u64, Track>,
    /// Instants among them, with no length.
    pub(crate) slices: Vec<Slice>,
    /// The slices that each flow touches, by category.
    pub(crate) flows: BTreeMap<u64, Vec<String>>,
    /// What time it was by each clock, at one moment.
    pub(crate) clocks: Vec<(u64, u64)>,
    /// The ids of processes.
    pub(crate) processes: Vec<u64>,
    /// By name of the track with its parent's.
    pub(crate) counters: BTreeMap<String, Vec<(u64, i64)>>,
    /// Those that are no whole numbers.
    pub(crate) reals: BTreeMap<String, Vec<(u64, f64)>>,
    /// The units of counters that say one.
    pub(crate) units: BTreeMap<String, String>,
    /// Typed GPU events by id.
    pub(crate) stages: BTreeMap<u64, Stage>,
    /// The typed GPU events that calls submitted.
    pub(crate) submitted: Vec<u64>,
    pub(crate) gpus: Vec<String>,
}

/// A `GpuRenderStageEvent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) stage: String,
    pub(crate) queue: String,
    pub(crate) name: String,
    /// The kernel's mangled and shown names; one is written if they are the same.
    pub(crate) kernel: Option<[String; 2]>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) device: u64,
    pub(crate) pid: u64,
    /// Grid and block.
    pub(crate) launch: Option<[[u64; 3]; 2]>,
    /// The launch's arguments by name.
    pub(crate) args: BTreeMap<String, String>,
}

type Texts = BTreeMap<u64, String>;

struct Event<'a> {
    at: u64,
    track: u64,
    fields: Vec<(u64, Field<'a>)>,
}

fn text_of(fields: &[(u64, Field<'_>)], number: u64) -> Option<String> {
    fields.iter().find(|(n, _)| *n == number).map(|(_, field)| field.text())
}

/// What typed GPU events refer to.
#[derive(Default)]
struct GpuData {
    specifications: Texts,
    processes: BTreeMap<u64, u64>,
    kernels: BTreeMap<u64, [String; 2]>,
    arguments: Texts,
}

impl GpuData {
    fn add(&mut self, number: u64, entry: &[(u64, Field<'_>)]) {
        let id = first_number(entry, 1).unwrap();
        let is_new = match number {
            23 => self.processes.insert(id, first_number(entry, 2).unwrap()).is_none(),
            24 => self.specifications.insert(id, text_of(entry, 2).unwrap()).is_none(),
            1000 => {
                let shown = text_of(entry, 3).unwrap();
                let names = [text_of(entry, 2).unwrap_or_else(|| shown.clone()), shown];
                self.kernels.insert(id, names).is_none()
            }
            1001 => self.arguments.insert(id, text_of(entry, 2).unwrap()).is_none(),
            other => panic!("interned data {other}"),
        };
        assert!(is_new, "interned data {number} {id} is there twice");
    }

    fn stage(&self, at: u64, event: &[(u64, Field<'_>)], names: &Texts, texts: &Texts) -> Stage {
        let launch = event.iter().find(|(number, _)| *number == 21);
        let launch = launch.map(|(_, launch)| fields(launch.bytes()));
        let sizes = launch.as_ref().map(|launch| {
            [1, 2].map(|number| {
                let sizes = launch.iter().find(|(n, _)| *n == number).unwrap().1;
                let sizes = fields(sizes.bytes());
                [1, 2, 3].map(|axis| first_number(&sizes, axis).unwrap())
            })
        });
        let args = launch.iter().flatten().filter(|(number, _)| *number == 3).map(|(_, arg)| {
            let arg = fields(arg.bytes());
            let number = first_number(&arg, 4).map(|value| value.to_string());
            let value = number.or_else(|| first_number(&arg, 7).map(|text| texts[&text].clone()));
            (self.arguments[&first_number(&arg, 1).unwrap()].clone(), value.unwrap())
        });
        let specification =
            |number| self.specifications[&first_number(event, number).unwrap()].clone();
        Stage {
            stage: specification(14),
            queue: specification(13),
            name: names[&first_number(event, 20).unwrap()].clone(),
            kernel: first_number(event, 19).map(|kernel| self.kernels[&kernel].clone()),
            start: at,
            end: at + first_number(event, 2).unwrap(),
            device: first_number(event, 11).unwrap(),
            pid: self.processes[&first_number(event, 5).unwrap()],
            launch: sizes,
            args: args.collect(),
        }
    }
}

/// Panics where the trace processor would count an error or lose something.
pub(crate) fn read(bytes: &[u8]) -> Trace {
    let mut trace = Trace::default();
    let [mut categories, mut names, mut arg_names, mut texts] = [const { Texts::new() }; 4];
    let mut gpu = GpuData::default();
    let mut events = Vec::new();
    for (number, packet) in fields(bytes) {
        assert_eq!(number, 1, "only packets");
        let packet = fields(packet.bytes());
        assert_eq!(first_number(&packet, 10), Some(1), "all are of one sequence");
        // What a packet interns is known to the packet itself.
        let mut in_order: Vec<_> = packet.iter().collect();
        in_order.sort_by_key(|(number, _)| *number != 12);
        for (number, field) in in_order {
            match number {
                12 => {
                    for (number, entry) in fields(field.bytes()) {
                        let table = match number {
                            1 => &mut categories,
                            2 => &mut names,
                            3 => &mut arg_names,
                            29 => &mut texts,
                            other => {
                                gpu.add(other, &fields(entry.bytes()));
                                continue;
                            }
                        };
                        let entry = fields(entry.bytes());
                        let text = entry.iter().find(|(number, _)| *number == 2).unwrap().1.text();
                        assert!(table.insert(first_number(&entry, 1).unwrap(), text).is_none());
                    }
                }
                6 => {
                    for (number, clock) in fields(field.bytes()) {
                        assert_eq!(number, 1, "clocks alone");
                        let clock = fields(clock.bytes());
                        trace.clocks.push((
                            first_number(&clock, 1).unwrap(),
                            first_number(&clock, 2).unwrap(),
                        ));
                    }
                }
                53 => {
                    let event = fields(field.bytes());
                    let at = first_number(&packet, 8).unwrap();
                    let stage = gpu.stage(at, &event, &names, &texts);
                    assert!(trace.stages.insert(first_number(&event, 1).unwrap(), stage).is_none());
                }
                128 => {
                    let gpus = fields(field.bytes());
                    let name = |(_, gpu): &(u64, Field<'_>)| text_of(&fields(gpu.bytes()), 1);
                    trace.gpus = gpus.iter().map(|gpu| name(gpu).unwrap_or_default()).collect();
                }
                60 => track(&mut trace, &fields(field.bytes())),
                11 => {
                    let fields = fields(field.bytes());
                    let (at, track) =
                        (first_number(&packet, 8).unwrap(), first_number(&fields, 11).unwrap());
                    assert!(trace.tracks.contains_key(&track), "track {track} is not described");
                    events.push(Event { at, track, fields });
                }
                8 | 10 | 13 | 87 => {}
                other => panic!("packet field {other}"),
            }
        }
    }
    // By time, and where that is the same in the order of the file, as the trace processor does.
    events.sort_by_key(|event| event.at);
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for event in &events {
        let stack = open.entry(event.track).or_default();
        match first_number(&event.fields, 9).unwrap() {
            kind @ (1 | 3) => {
                assert!(stack.len() < 512, "too deep");
                let mut args = BTreeMap::new();
                for (_, arg) in event.fields.iter().filter(|(number, _)| *number == 4) {
                    let arg = fields(arg.bytes());
                    let value: Vec<String> = arg[1..]
                        .iter()
                        .map(|(number, field)| match number {
                            17 => texts[&field.number()].clone(),
                            12 => first_number(&fields(field.bytes()), 3).unwrap().to_string(),
                            4 => field.number().cast_signed().to_string(),
                            5 => f64::from_bits(field.number()).to_string(),
                            _ => field.number().to_string(),
                        })
                        .collect();
                    args.insert(arg_names[&arg[0].1.number()].clone(), value.join(" "));
                }
                let category = categories[&first_number(&event.fields, 3).unwrap()].clone();
                for (_, submitted) in event.fields.iter().filter(|(number, _)| *number == 3000) {
                    let ids = fields(submitted.bytes());
                    trace.submitted.extend(ids.iter().map(|(_, id)| id.number()));
                }
                for (_, flow) in event.fields.iter().filter(|(number, _)| *number == 47) {
                    trace.flows.entry(flow.number()).or_default().push(category.clone());
                }
                if kind == 1 {
                    stack.push(trace.slices.len());
                }
                trace.slices.push(Slice {
                    category,
                    name: names[&first_number(&event.fields, 10).unwrap()].clone(),
                    start: event.at,
                    end: event.at,
                    track: event.track,
                    args,
                });
            }
            2 => trace.slices[stack.pop().unwrap()].end = event.at,
            4 => {
                let track = &trace.tracks[&event.track];
                let parent = &trace.tracks[&track.parent.unwrap()];
                let name = format!("{} / {}", parent.name, track.name);
                match (first_number(&event.fields, 30), first_number(&event.fields, 44)) {
                    (Some(value), None) => {
                        let counter = trace.counters.entry(name).or_default();
                        counter.push((event.at, value.cast_signed()));
                    }
                    (None, Some(bits)) => {
                        let counter = trace.reals.entry(name).or_default();
                        counter.push((event.at, f64::from_bits(bits)));
                    }
                    other => panic!("a counter with {other:?}"),
                }
            }
            other => panic!("event of type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "all slices have an end");
    trace
}

fn track(trace: &mut Trace, track: &[(u64, Field<'_>)]) {
    let inner = |field: Field<'_>, number| {
        let inner = fields(field.bytes());
        inner.iter().find(|(n, _)| *n == number).map(|(_, field)| field.text()).unwrap_or_default()
    };
    let name = track.iter().find_map(|&(number, field)| match number {
        2 => Some(field.text()),
        3 => Some(inner(field, 6)),
        4 => Some(format!("thread {}", inner(field, 5))),
        _ => None,
    });
    for (_, process) in track.iter().filter(|(number, _)| *number == 3) {
        trace.processes.extend(first_number(&fields(process.bytes()), 1));
    }
    let (id, parent) = (first_number(track, 1).unwrap(), first_number(track, 5));
    if let Some((_, counter)) = track.iter().find(|(number, _)| *number == 8) {
        let parent = &trace.tracks[&parent.unwrap()];
        let unit = match first_number(&fields(counter.bytes()), 3) {
            Some(known) => format!("unit {known}"),
            None => inner(*counter, 6),
        };
        trace.units.insert(format!("{} / {}", parent.name, name.as_ref().unwrap()), unit);
    }
    let parents: BTreeSet<u64> = trace.tracks.keys().copied().collect();
    assert!(parent.is_none_or(|parent| parents.contains(&parent)));
    let new = trace.tracks.insert(id, Track { name: name.unwrap(), parent }).is_none();
    assert!(new, "track {id} is described twice");
}

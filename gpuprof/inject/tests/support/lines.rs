//! An observer that writes a line for each event, of which the library's events and those of `nvtx-rs` itself are compared.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use nvtx::observer::{
    CounterSample, CounterValue, DeferredEvent, Mark, Named, Observer, RangeStart, SyncStep, Token,
};
use nvtx::{Field, FieldValue};

thread_local!(static NEXT: Cell<u64> = const { Cell::new(1) });

/// Ranges are numbered by thread, in the order of their starts.
fn next() -> Token {
    Token::new(NEXT.replace(NEXT.get() + 1))
}

pub(crate) struct Lines {
    file: File,
    /// What an observer of `nvtx-rs` gets and a tool does not is left out, or shown as the tool gets it.
    as_for_tools: bool,
}

/// The longest name in bytes that the library reads.
const LONGEST: usize = 1 << 16;

impl Lines {
    pub(crate) fn to(path: &Path, as_for_tools: bool) -> &'static Lines {
        let file = OpenOptions::new().append(true).create(true).open(path).expect("a log");
        Box::leak(Box::new(Lines { file, as_for_tools }))
    }

    fn write(&self, line: &str) {
        // One write each, so that lines of several threads stay whole.
        let thread = std::fs::read_link("/proc/thread-self").expect("a thread");
        let thread = thread.file_name().expect("an id").to_string_lossy().into_owned();
        (&self.file).write_all(format!("{thread} {line:?}\n").as_bytes()).expect("written");
    }

    fn name(&self, name: &str) -> String {
        if !self.as_for_tools {
            return name.to_owned();
        }
        // A C string ends at a NUL, for which `nvtx-rs` sends something else.
        name.replace('\0', "?").chars().take(LONGEST).collect()
    }

    fn parts(&self, event: &RangeStart<'_>) -> String {
        let mut fields: Vec<(String, String)> = event.fields.iter().map(shown).collect();
        let mut name = self.name(event.name);
        if self.as_for_tools {
            fields = match event
                .record
                .filter(|record| domain_of(record.schema().name()) == event.domain)
            {
                Some(record) => values(record.schema().name(), record.bytes()),
                // That of another domain is left out, and so is the work that is declared beside it.
                None => work(event.fields),
            };
            // A record alone has the name in it; without one, that of its schema.
            if event.record.is_some_and(|record| record.schema().name() == event.name)
                && let Some(at) = fields.iter().position(|(name, _)| name == "label")
            {
                name = fields
                    .remove(at)
                    .1
                    .trim_start_matches("Str(\"")
                    .trim_end_matches("\")[]")
                    .to_owned();
            }
        }
        let (domain, category, color) = (event.domain, event.category, event.color);
        format!("{name:?} in {domain:?} of {category:?} {color:?} {:?} {fields:?}", event.payload)
    }
}

fn shown(field: &Field<'_>) -> (String, String) {
    (field.name.to_owned(), format!("{:?}[{}]", field.value, field.unit))
}

/// The domains of the scenarios' schemas.
fn domain_of(schema: &str) -> Option<&'static str> {
    (schema == "in gpu").then_some("gpu \u{2211}")
}

/// Declared work as tools get it: numbers as `f64`, and nothing without operations or bytes.
fn work(fields: &[Field<'_>]) -> Vec<(String, String)> {
    let number = |value| match value {
        FieldValue::U64(value) => Some(value as f64),
        FieldValue::F64(value) => Some(value),
        _ => None,
    };
    let of = |name: &str| fields.iter().rfind(|field| field.name == name).copied();
    let numbers = ["flops", "bytes"].into_iter().filter_map(|name| {
        let field = of(name)?;
        Some(shown(&Field::new(field.name, number(field.value)?, field.unit)))
    });
    let mut all: Vec<_> = numbers.collect();
    if !all.is_empty() {
        all.extend(of("dtype").as_ref().map(shown));
    }
    all
}

/// The values of the scenarios' records, read by hand.
fn values(schema: &str, bytes: &[u8]) -> Vec<(String, String)> {
    let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let text = |text: &[u8]| {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        String::from_utf8(text[..end].to_vec()).unwrap()
    };
    let line =
        |name: &str, value: FieldValue<'_>, unit: &str| shown(&Field::new(name, value, unit));
    match schema {
        "gemm" => vec![
            line("dtype", FieldValue::Str(["f32", "bf16"][usize::from(bytes[0])]), ""),
            line("shape[0]", FieldValue::U64(u32_at(4).into()), ""),
            line("shape[1]", FieldValue::U64(u32_at(8).into()), ""),
            line("shape[2]", FieldValue::U64(u32_at(12).into()), ""),
            line("flops", FieldValue::F64(f64::from_bits(u64_at(16))), "flop"),
            line("label", FieldValue::Str(&text(&bytes[24..29])), ""),
        ],
        "in gpu" => {
            let x = i16::from_ne_bytes(bytes[..2].try_into().unwrap());
            vec![line("x", FieldValue::I64(x.into()), "")]
        }
        "pool" => vec![("used".to_owned(), u64_at(0).to_string())],
        other => panic!("no schema {other}"),
    }
}

impl Observer for Lines {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        let token = next();
        self.write(&format!("start {} {}", token.get(), self.parts(range)));
        token
    }

    fn range_end(&self, token: Token) {
        self.write(&format!("end {}", token.get()));
    }

    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        let token = next();
        self.write(&format!("process start {} {}", token.get(), self.parts(range)));
        Some(token)
    }

    fn process_range_end(&self, token: Token) {
        self.write(&format!("process end {}", token.get()));
    }

    fn mark(&self, mark: &Mark<'_>) {
        self.write(&format!("mark {}", self.parts(mark)));
    }

    fn named(&self, what: &Named<'_>, name: &str) {
        self.write(&format!("{what:?} is {name:?}"));
    }

    fn counter(&self, sample: &CounterSample<'_>) {
        let (mut name, mut value) = (sample.name.to_owned(), format!("{:?}", sample.value));
        if let CounterValue::Record(record) = sample.value {
            for (of, number) in values(record.schema().name(), record.bytes()) {
                (name, value) = (format!("{name}.{of}"), format!("I64({number})"));
            }
        }
        let (domain, unit, time) = (sample.domain, sample.unit, sample.time);
        self.write(&format!("{name:?} in {domain:?} [{unit}] is {value} at {time:?}"));
    }

    fn sync(&self, domain: Option<&str>, name: &str, step: SyncStep) {
        self.write(&format!("{name:?} in {domain:?}: {step:?}"));
    }

    fn deferred(&self, event: &DeferredEvent<'_>) {
        // A string of another domain is sent without its text.
        let name = if self.as_for_tools && event.name == "other" { "" } else { event.name };
        let (domain, category, color) = (event.domain, event.category, event.color);
        let (start, end, clock) = (event.start, event.end, event.clock.number());
        self.write(&format!(
            "deferred {name:?} in {domain:?} of {category:?} {color:?} {start}..{end:?} by {clock}"
        ));
    }
}

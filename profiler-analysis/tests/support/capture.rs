//! Random captures of Nsight Systems whose truth is known: written row by row, in any order, without the crate under test.

use std::collections::BTreeMap;
use std::path::Path;

use fastrand::Rng;
use rusqlite::{Connection, params};
pub(crate) use test_support::folder::Folder;

/// The tables of schema 3.20 that are needed, with the columns that are.
pub(crate) const SCHEMA: &str = "
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, smCount INTEGER, computeMajor INTEGER,
    computeMinor INTEGER, cuDevice INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER,
    registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,
    blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER,
    srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, color INTEGER,
    text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
    int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER,
    jsonText TEXT);
";

/// What a table sums up by name: each in nanoseconds, or in bytes.
pub(crate) type Sums = BTreeMap<String, Vec<u64>>;

/// What was written.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) kernels: Sums,
    pub(crate) copies: Sums,
    pub(crate) bytes: Sums,
    pub(crate) calls: Sums,
    /// By style and name with domain.
    pub(crate) ranges: BTreeMap<(String, String), Vec<u64>>,
    /// The ranges around each operation, outermost first, by process and correlation id.
    pub(crate) places: BTreeMap<(u32, u32), Vec<String>>,
}

const KERNELS: [(&str, &str); 4] = [
    ("void ns::gemm<float, (int)3>(float *, int)", "gemm"),
    ("relu(float *)", "relu"),
    ("void <unnamed>::norm<A<int>>(T1)", "norm"),
    ("plain_name", "plain_name"),
];
const RANGES: [&str; 5] = ["step", "forward", "backward", "load, \"quoted\"", "ÄÖ"];
const COPIES: [(u32, &str); 4] =
    [(1, "Host-to-Device"), (2, "Device-to-Host"), (8, "Device-to-Device"), (3, "Host-to-Array")];

/// One thread's rows while they are made.
struct Program<'a> {
    rng: &'a mut Rng,
    rows: &'a mut Vec<Row>,
    truth: &'a mut Truth,
    process: u32,
    thread: u32,
    now: u64,
    gpu: u64,
    /// Names of the ranges that are open.
    open: Vec<String>,
    next_id: &'a mut u32,
}

enum Row {
    Call {
        name: String,
        class: u32,
        time: (u64, u64),
        id: u32,
        process: u32,
        thread: u32,
    },
    Kernel {
        name: usize,
        time: (u64, u64),
        id: u32,
        process: u32,
    },
    Copy {
        kind: usize,
        bytes: u64,
        time: (u64, u64),
        id: u32,
        process: u32,
    },
    Memset {
        bytes: u64,
        time: (u64, u64),
        id: u32,
        process: u32,
    },
    Range {
        name: &'static str,
        domain: u32,
        style: u32,
        time: (u64, u64),
        process: u32,
        thread: u32,
        end: Option<u32>,
    },
}

pub(crate) fn global(process: u32, thread: u32) -> i64 {
    1 << 48 | i64::from(process) << 24 | i64::from(thread)
}

const MARK: u32 = 34;
const PUSH_POP: u32 = 59;
const START_END: u32 = 60;

/// The default domain, and one of each process that has the same number in all.
fn named(domain: u32, process: u32, name: &str) -> String {
    if domain == 0 { name.to_owned() } else { format!("domain {process}:{name}") }
}

impl Program<'_> {
    fn pass(&mut self) -> u64 {
        self.now += self.rng.u64(1..500);
        self.now
    }

    fn body(&mut self, depth: u32) {
        for _ in 0..self.rng.usize(1..6) {
            match self.rng.u32(..4) {
                0 if depth < 5 => self.range(depth),
                _ => self.call(),
            }
        }
    }

    fn range(&mut self, depth: u32) {
        let name = *self.rng.choice(&RANGES[..]).unwrap();
        let domain = if self.rng.bool() { 0 } else { 3 };
        let start = self.pass();
        self.open.push(named(domain, self.process, name));
        self.body(depth + 1);
        let begun = self.pass();
        self.open.pop();
        let time = (start, self.pass());
        if self.rng.u32(..4) == 0 {
            // A call that outlives its range is in the one around it.
            let end = self.pass();
            self.call_at((begun, end));
        }
        let (process, thread) = (self.process, self.thread);
        self.rows.push(Row::Range {
            name,
            domain,
            style: PUSH_POP,
            time,
            process,
            thread,
            end: None,
        });
        let key = ("PushPop".to_owned(), named(domain, process, name));
        self.truth.ranges.entry(key).or_default().push(time.1 - time.0);
        if self.rng.u32(..6) == 0 {
            // Overlaps what it likes, and may end on another thread.
            let time = (start, self.now + self.rng.u64(..5000));
            let end = self.rng.bool().then_some(thread + 1);
            self.rows.push(Row::Range {
                name,
                domain,
                style: START_END,
                time,
                process,
                thread,
                end,
            });
            let key = ("StartEnd".to_owned(), named(domain, process, name));
            self.truth.ranges.entry(key).or_default().push(time.1 - time.0);
            let at = (start, start);
            self.rows.push(Row::Range {
                name,
                domain,
                style: MARK,
                time: at,
                process,
                thread,
                end: None,
            });
        }
    }

    fn call(&mut self) {
        let time = (self.pass(), self.pass());
        self.call_at(time);
    }

    fn call_at(&mut self, time: (u64, u64)) {
        let what = self.rng.u32(..5);
        let driver = self.rng.bool();
        let name = match (what, driver) {
            (0 | 1, false) => "cudaLaunchKernel_v7000",
            (0 | 1, true) => "cuLaunchKernel",
            (2, false) => "cudaMemcpyAsync_v3020",
            (2, true) => "cuMemcpyDtoHAsync_v2",
            (3, false) => "cudaMemset_v3020",
            (3, true) => "cuMemsetD8_v2",
            (_, false) => "cudaStreamSynchronize_v3020",
            (_, true) => "cuCtxSynchronize",
        };
        *self.next_id += 1;
        let (id, process, thread) = (*self.next_id, self.process, self.thread);
        let class = u32::from(driver);
        self.rows.push(Row::Call { name: name.to_owned(), class, time, id, process, thread });
        let short = name.split("_v").next().filter(|_| !driver).unwrap_or(name);
        self.truth.calls.entry(short.to_owned()).or_default().push(time.1 - time.0);
        let start = self.gpu.max(time.0) + self.rng.u64(1..2000);
        let on_gpu = (start, start + self.rng.u64(1..10_000));
        self.gpu = on_gpu.1;
        let ns = on_gpu.1 - on_gpu.0;
        match what {
            0 | 1 => {
                let name = self.rng.usize(..KERNELS.len());
                self.rows.push(Row::Kernel { name, time: on_gpu, id, process });
                self.truth.kernels.entry(KERNELS[name].0.to_owned()).or_default().push(ns);
            }
            2 => {
                let kind = self.rng.usize(..COPIES.len());
                let bytes = self.rng.u64(1..1 << 40);
                self.rows.push(Row::Copy { kind, bytes, time: on_gpu, id, process });
                let label = format!("[CUDA memcpy {}]", COPIES[kind].1);
                self.truth.copies.entry(label.clone()).or_default().push(ns);
                self.truth.bytes.entry(label).or_default().push(bytes);
            }
            3 => {
                let bytes = self.rng.u64(1..1 << 30);
                self.rows.push(Row::Memset { bytes, time: on_gpu, id, process });
                self.truth.copies.entry("[CUDA memset]".into()).or_default().push(ns);
                self.truth.bytes.entry("[CUDA memset]".into()).or_default().push(bytes);
            }
            _ => return,
        }
        self.truth.places.insert((process, id), self.open.clone());
    }
}

/// Opens a file of a test, whose writes do not wait for the disk.
pub(crate) fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    let unsafe_and_quick = "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY";
    connection.execute_batch(unsafe_and_quick).unwrap();
    connection
}

/// Writes a random capture of one to three processes, whose correlation ids are the same.
pub(crate) fn write(path: &Path, seed: u64) -> Truth {
    let mut rng = Rng::with_seed(seed);
    let (mut truth, mut rows) = (Truth::default(), Vec::new());
    let processes = rng.u32(1..4);
    for process in 0..processes {
        let process = 1000 + 100 * process;
        let mut next_id = 0;
        for thread in 0..rng.u32(1..4) {
            let mut program = Program {
                rng: &mut rng,
                rows: &mut rows,
                truth: &mut truth,
                process,
                thread: process + thread,
                now: 1000,
                gpu: 0,
                open: Vec::new(),
                next_id: &mut next_id,
            };
            for _ in 0..4 {
                program.body(0);
            }
        }
    }
    rng.shuffle(&mut rows);
    let mut connection = connect(path);
    connection.execute_batch(SCHEMA).unwrap();
    let transaction = connection.transaction().unwrap();
    let mut strings: Vec<String> = Vec::new();
    let mut string = |text: &str| {
        let known = strings.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            strings.push(text.to_owned());
            strings.len() - 1
        }) as i64
    };
    let insert = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
        transaction.prepare(sql).unwrap().execute(params).unwrap();
    };
    for process in (0..processes).map(|process| 1000 + 100 * process) {
        insert(
            "INSERT INTO PROCESSES VALUES (?, ?, 'program')",
            params![global(process, 0), process],
        );
        insert(
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, ?, ?, 3)",
            params![format!("domain {process}"), global(process, process)],
        );
        insert(
            "INSERT INTO ThreadNames VALUES (?, 20, ?)",
            params![string("main"), global(process, process)],
        );
    }
    insert("INSERT INTO TARGET_INFO_GPU VALUES (0, 'GPU', 1024, 132, 9, 0, 0)", &[]);
    for (name, value) in
        [("EXPORT_PRODUCT_NAME", "generator"), ("EXPORT_SCHEMA_VERSION_MAJOR", "3")]
    {
        insert("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", params![name, value]);
    }
    for row in rows {
        match row {
            Row::Call { name, class, time, id, process, thread } => insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, 0)",
                params![
                    time.0 as i64,
                    time.1 as i64,
                    class,
                    global(process, thread),
                    id,
                    string(&name)
                ],
            ),
            Row::Kernel { name, time, id, process } => {
                let (demangled, short) = KERNELS[name];
                insert(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?, NULL, 32, 10, 20, 30, 128, 2, 1, \
                     16, 32, 64)",
                    params![
                        time.0 as i64,
                        time.1 as i64,
                        id,
                        global(process, 0),
                        string(demangled),
                        string(short)
                    ],
                );
            }
            Row::Copy { kind, bytes, time, id, process } => insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 1, NULL, 7, ?, ?, ?, ?, 0, 2)",
                params![
                    time.0 as i64,
                    time.1 as i64,
                    id,
                    global(process, 0),
                    bytes as i64,
                    COPIES[kind].0
                ],
            ),
            Row::Memset { bytes, time, id, process } => insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?, ?, 0, 1, 7, ?, ?, 0, ?, 2)",
                params![time.0 as i64, time.1 as i64, id, global(process, 0), bytes as i64],
            ),
            Row::Range { name, domain, style, time, process, thread, end } => {
                // Registered texts stand elsewhere.
                let (text, id) =
                    if time.0 % 2 == 0 { (Some(name), None) } else { (None, Some(string(name))) };
                let end_ns = (style != MARK).then_some(time.1 as i64);
                let end = end.map(|end| global(process, end));
                insert(
                    "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, endGlobalTid, domainId) VALUES \
                     (?, ?, ?, ?, ?, ?, ?, ?)",
                    params![
                        time.0 as i64,
                        end_ns,
                        style,
                        text,
                        id,
                        global(process, thread),
                        end,
                        domain
                    ],
                );
            }
        }
    }
    for (id, text) in strings.iter().enumerate() {
        insert("INSERT INTO StringIds VALUES (?, ?)", params![id as i64, text]);
    }
    transaction.commit().unwrap();
    truth
}

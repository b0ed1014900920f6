//! Declared work of an event: operations, bytes, number type, execution units.
//!
//! The four [`Field`](crate::Field)s are `flops`, `bytes`, `dtype` and `pipe`. A tool receives the
//! first three as a payload with a schema.

use std::fmt;
use std::ops::Add;

use crate::accessors::setters;
use crate::field::{Field, FieldValue};
use crate::schema::{Entry, EntryType};

/// A number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dtype {
    /// 64-bit floating point.
    F64,
    /// 32-bit floating point with full-precision products.
    F32,
    /// 32-bit floating point that tensor cores round to 19 bits.
    Tf32,
    /// IEEE's 16-bit floating point.
    F16,
    /// 16-bit floating point with the exponent of 32 bits.
    Bf16,
    /// 8-bit floating point, E4M3 or E5M2.
    F8,
    /// 4-bit floating point, E2M1.
    F4,
    /// 8-bit integers; operations are integer operations.
    I8,
}

impl Dtype {
    /// All types.
    pub const ALL: [Dtype; 8] = [
        Dtype::F64,
        Dtype::F32,
        Dtype::Tf32,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F8,
        Dtype::F4,
        Dtype::I8,
    ];

    /// The name: `f64`, `f32`, `tf32`, `f16`, `bf16`, `f8`, `f4`, `i8`.
    #[inline]
    pub const fn name(self) -> &'static str {
        DTYPES[self as usize].2[0]
    }

    /// Returns the type with this name, in the spellings of Rust, CUDA and the frameworks: `f16`,
    /// `fp16`, `half`, `float16`.
    ///
    /// ```
    /// assert_eq!(nvtx::Dtype::named("BFloat16"), Some(nvtx::Dtype::Bf16));
    /// assert_eq!(nvtx::Dtype::named("string"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Dtype> {
        let is_named = |all: &[&str]| all.iter().any(|other| other.eq_ignore_ascii_case(name));
        DTYPES.iter().find(|(.., all)| is_named(all)).map(|(dtype, ..)| *dtype)
    }

    /// The bits of a number in memory.
    #[inline]
    pub const fn bits(self) -> u32 {
        DTYPES[self as usize].1
    }
}

/// The types in their order, each with its bits, its name and other spellings.
const DTYPES: [(Dtype, u32, &[&str]); 8] = [
    (Dtype::F64, 64, &["f64", "fp64", "float64", "double"]),
    (Dtype::F32, 32, &["f32", "fp32", "float32", "float"]),
    (Dtype::Tf32, 32, &["tf32", "tfloat32"]),
    (Dtype::F16, 16, &["f16", "fp16", "float16", "half"]),
    (Dtype::Bf16, 16, &["bf16", "bfloat16"]),
    (
        Dtype::F8,
        8,
        &[
            "f8",
            "fp8",
            "float8",
            "e4m3",
            "e5m2",
            "f8e4m3",
            "f8e5m2",
            "float8_e4m3fn",
            "float8_e5m2",
        ],
    ),
    (Dtype::F4, 4, &["f4", "fp4", "e2m1", "nvfp4", "mxfp4"]),
    (Dtype::I8, 8, &["i8", "int8", "s8", "u8", "uint8"]),
];

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Dtype> for FieldValue<'_> {
    fn from(dtype: Dtype) -> Self {
        FieldValue::Str(dtype.name())
    }
}

/// The execution units of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Pipe {
    /// The units of single threads ("CUDA cores").
    Vector,
    /// Tensor cores.
    Tensor,
}

impl Pipe {
    /// The name: `vector`, `tensor`.
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Pipe::Vector => "vector",
            Pipe::Tensor => "tensor",
        }
    }

    /// The units of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Pipe> {
        [Pipe::Vector, Pipe::Tensor].into_iter().find(|pipe| pipe.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Pipe> for FieldValue<'_> {
    fn from(pipe: Pipe) -> Self {
        FieldValue::Str(pipe.name())
    }
}

/// Operations and bytes of a piece of work, for [`Event::work`](crate::Event::work).
///
/// The constructors count compulsory bytes: each input is read once and each output written once,
/// as with an infinite cache. A kernel moves at least these. Sums that overflow are [`u64::MAX`].
///
/// ```
/// use nvtx::{Dtype, Work};
///
/// let (m, n, k) = (512, 512, 64);
/// let work = Work::gemm(m, n, k, Dtype::F32);
/// assert_eq!(work.flops(), Some(2 * 512 * 512 * 64));
/// assert_eq!(work.bytes(), Some(4 * (512 * 64 + 64 * 512 + 512 * 512)));
/// let _range = nvtx::event("gemm").work(work).range();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use = "work has no effect until an event has it"]
pub struct Work {
    flops: Option<u64>,
    bytes: Option<u64>,
    dtype: Option<Dtype>,
    pipe: Option<Pipe>,
}

impl Work {
    /// A number of operations. A multiply-add is two.
    #[inline]
    pub const fn of_flops(flops: u64) -> Work {
        Work { flops: Some(flops), bytes: None, dtype: None, pipe: None }
    }

    /// Bytes from and to device memory.
    #[inline]
    pub const fn of_bytes(bytes: u64) -> Work {
        Work { flops: None, bytes: Some(bytes), dtype: None, pipe: None }
    }

    /// Operations and bytes.
    #[inline]
    pub const fn new(flops: u64, bytes: u64) -> Work {
        Work { bytes: Some(bytes), ..Work::of_flops(flops) }
    }

    /// A matrix product `C[m, n] = A[m, k] B[k, n]`: `2 m n k` operations; `m k + k n + m n`
    /// numbers. A product that adds to `C` also reads its `m n` numbers.
    ///
    /// Source: NVIDIA, *Matrix Multiplication Background User's Guide*, section 2.
    #[inline]
    pub const fn gemm(m: u64, n: u64, k: u64, dtype: Dtype) -> Work {
        let flops = product([2, m, n, k]);
        let numbers = product([1, 1, m, k])
            .saturating_add(product([1, 1, k, n]))
            .saturating_add(product([1, 1, m, n]));
        Work::counted(flops, numbers, dtype)
    }

    /// A convolution of `batch` images. `input` and `output` are channels, height, width; `filter`
    /// is height and width. `groups` divide the channels and are 1 for a plain convolution.
    /// `2 batch outputs (input channels / groups) filter` operations; the numbers of input, filters
    /// and output.
    ///
    /// The count applies to the direct method; FFT and Winograd kernels need fewer operations.
    ///
    /// Source: NVIDIA, *Convolutional Layers User's Guide*, section 2, where a convolution is the
    /// matrix product of `N P Q`, `K` and `C R S`.
    #[inline]
    pub const fn convolution(
        batch: u64,
        input: [u64; 3],
        output: [u64; 3],
        filter: [u64; 2],
        groups: u64,
        dtype: Dtype,
    ) -> Work {
        let groups = if groups == 0 { 1 } else { groups };
        let [channels, height, width] = input;
        let [filters, rows, columns] = output;
        let window = product([1, channels / groups, filter[0], filter[1]]);
        let outputs = product([batch, filters, rows, columns]);
        let numbers = product([batch, channels, height, width])
            .saturating_add(filters.saturating_mul(window))
            .saturating_add(outputs);
        Work::counted(product([2, 1, outputs, window]), numbers, dtype)
    }

    /// The forward pass of attention: `4 batch heads queries keys head_dim` operations of the two
    /// matrix products, without the softmax; the numbers of queries, keys, values and output, as a
    /// fused kernel moves them.
    ///
    /// The backward pass has 2.5 times the operations; use [`of_flops`](Work::of_flops).
    ///
    /// Source: T. Dao, *FlashAttention-2*, section 4.1.
    #[inline]
    pub const fn attention(
        batch: u64,
        heads: u64,
        queries: u64,
        keys: u64,
        head_dim: u64,
        dtype: Dtype,
    ) -> Work {
        let all = product([1, batch, heads, head_dim]);
        let flops = product([4, all, queries, keys]);
        let numbers = product([2, 1, all, queries.saturating_add(keys)]);
        Work::counted(flops, numbers, dtype)
    }

    /// Attention with a causal mask: the last query attends to all keys, each earlier query to one
    /// key less, down to none. With a cache of keys there are fewer queries than keys; decoding has
    /// one query. `4 batch heads head_dim pairs` operations with
    /// `queries keys - queries (queries - 1) / 2` pairs of query and key, or `keys (keys + 1) / 2`
    /// with more queries than keys.
    ///
    /// *FlashAttention-2* counts half of all pairs: for `n` queries and keys, `n / 2` pairs of the
    /// diagonal less.
    #[inline]
    pub const fn causal_attention(
        batch: u64,
        heads: u64,
        queries: u64,
        keys: u64,
        head_dim: u64,
        dtype: Dtype,
    ) -> Work {
        // Queries before the first key attend to no key.
        let seeing = if queries < keys { queries } else { keys } as u128;
        let pairs = seeing * keys as u128 - seeing * seeing.saturating_sub(1) / 2;
        // CAST: it fits.
        let pairs = if pairs > u64::MAX as u128 { u64::MAX } else { pairs as u64 };
        let all = product([1, batch, heads, head_dim]);
        let work = Work::attention(batch, heads, queries, keys, head_dim, dtype);
        work.with_flops(product([4, 1, all, pairs]))
    }

    /// An elementwise operation on arrays of `elements` numbers: reads `inputs` arrays, writes
    /// `outputs`, with `flops` operations per element. An axpy `y = a x + y` is
    /// `elementwise(n, 2, 1, 2, ..)`. Runs on vector units.
    ///
    /// Source: by definition; NVIDIA, *Memory-Limited Layers User's Guide*, has the same count.
    #[inline]
    pub const fn elementwise(
        elements: u64,
        inputs: u64,
        outputs: u64,
        flops: u64,
        dtype: Dtype,
    ) -> Work {
        let numbers = elements.saturating_mul(inputs.saturating_add(outputs));
        let work = Work::counted(elements.saturating_mul(flops), numbers, dtype);
        work.with_pipe(Pipe::Vector)
    }

    /// A reduction, such as a sum or maximum: `elements - 1` operations; reads `elements` numbers
    /// and writes one.
    ///
    /// Source: by definition.
    #[inline]
    pub const fn reduction(elements: u64, dtype: Dtype) -> Work {
        let work = Work::counted(elements.saturating_sub(1), elements.saturating_add(1), dtype);
        work.with_pipe(Pipe::Vector)
    }

    #[inline]
    const fn counted(flops: u64, numbers: u64, dtype: Dtype) -> Work {
        let bytes = match dtype.bits() {
            4 => numbers.div_ceil(2),
            bits => numbers.saturating_mul(bits as u64 / 8),
        };
        Work::new(flops, bytes).with_dtype(dtype)
    }

    setters! {
        /// Sets the operations.
        with_flops(flops: u64) flops = Some(flops);
        /// Sets the bytes.
        with_bytes(bytes: u64) bytes = Some(bytes);
        /// Sets the number type.
        with_dtype(dtype: Dtype) dtype = Some(dtype);
        /// Sets the execution units; by default the fastest units of the device for the type.
        with_pipe(pipe: Pipe) pipe = Some(pipe);
    }

    /// Multiplies operations and bytes, for batches, layers, steps.
    #[inline]
    pub const fn times(mut self, times: u64) -> Work {
        if let Some(flops) = self.flops {
            self.flops = Some(flops.saturating_mul(times));
        }
        if let Some(bytes) = self.bytes {
            self.bytes = Some(bytes.saturating_mul(times));
        }
        self
    }

    /// The operations.
    #[inline]
    pub const fn flops(&self) -> Option<u64> {
        self.flops
    }

    /// The bytes.
    #[inline]
    pub const fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The number type.
    #[inline]
    pub const fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    /// The execution units.
    #[inline]
    pub const fn pipe(&self) -> Option<Pipe> {
        self.pipe
    }

    /// The fields of an event.
    #[inline]
    pub(crate) fn fields(self) -> impl Iterator<Item = Field<'static>> {
        let flops = self.flops.map(|flops| Field::new(FLOPS, flops, FLOP));
        let bytes = self.bytes.map(|bytes| Field::new(BYTES, bytes, BYTE));
        let dtype = self.dtype.map(|dtype| Field::new(DTYPE, dtype, ""));
        let pipe = self.pipe.map(|pipe| Field::new(PIPE, pipe, ""));
        [flops, bytes, dtype, pipe].into_iter().flatten()
    }
}

/// Adds operations and bytes. Retains type and units if both have the same.
impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.saturating_add(other)),
                (one, other) => one.or(other),
            }
        }
        Work {
            flops: sum(self.flops, other.flops),
            bytes: sum(self.bytes, other.bytes),
            dtype: self.dtype.filter(|dtype| other.dtype == Some(*dtype)),
            pipe: self.pipe.filter(|pipe| other.pipe == Some(*pipe)),
        }
    }
}

/// The name of the schema by which tools receive declared work.
pub const SCHEMA: &str = "work";
/// The field of operations, of the unit [`FLOP`].
pub const FLOPS: &str = "flops";
/// The field of moved bytes, of the unit [`BYTE`].
pub const BYTES: &str = "bytes";
pub(crate) const DTYPE: &str = "dtype";
pub(crate) const PIPE: &str = "pipe";
/// The unit of operations.
pub const FLOP: &str = "flop";
/// The unit of bytes.
pub const BYTE: &str = "B";

/// The product, or `u64::MAX`.
#[inline]
const fn product([a, b, c, d]: [u64; 4]) -> u64 {
    a.saturating_mul(b).saturating_mul(c).saturating_mul(d)
}

/// The schema of declared work for tools; see [`tool_payload`].
pub(crate) const ENTRIES: &[Entry] = {
    &[
        Entry::new(FLOPS, EntryType::F64).described("operations, 0 if not declared"),
        Entry::new(BYTES, EntryType::F64).described("bytes moved, 0 if not declared"),
        Entry::new(DTYPE, EntryType::Text(8)),
    ]
};

/// The bytes of a payload with [`ENTRIES`]; `None` if the fields declare no work.
pub(crate) fn tool_payload(fields: &[Field<'_>]) -> Option<[u8; 24]> {
    let mut payload = [0; 24];
    let mut is_work = false;
    for field in fields {
        let (place, bytes) = match (field.name, field.value) {
            (FLOPS, value) => (0, number(value)?.to_ne_bytes()),
            (BYTES, value) => (8, number(value)?.to_ne_bytes()),
            (DTYPE, FieldValue::Str(name)) => {
                let mut text = [0; 8];
                text.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
                (16, text)
            }
            _ => continue,
        };
        is_work |= place != 16;
        payload[place..place + 8].copy_from_slice(&bytes);
    }
    is_work.then_some(payload)
}

fn number(value: FieldValue<'_>) -> Option<f64> {
    match value {
        // CAST: the nearest; exact below 2^53.
        FieldValue::U64(value) => Some(value as f64),
        FieldValue::I64(value) => Some(value as f64),
        FieldValue::F64(value) => Some(value),
        FieldValue::Bool(_) | FieldValue::Str(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_match_counting_loops() {
        let (m, n, k) = (3, 4, 5);
        let mut flops = 0;
        for _ in 0..m * n {
            for _ in 0..k {
                flops += 2;
            }
        }
        let gemm = Work::gemm(m, n, k, Dtype::F16);
        assert_eq!((gemm.flops(), gemm.bytes()), (Some(flops), Some(2 * (15 + 20 + 12))));
        // 2 images of 4 channels, 6x6; 8 filters of 3x3 in 2 groups; 4x4 out.
        let mut flops = 0;
        for _ in 0..2 * 8 * 4 * 4 {
            for _ in 0..2 * 3 * 3 {
                flops += 2;
            }
        }
        let conv = Work::convolution(2, [4, 6, 6], [8, 4, 4], [3, 3], 2, Dtype::F32);
        let numbers = 2 * 4 * 36 + 8 * 2 * 9 + 2 * 8 * 16;
        assert_eq!((conv.flops(), conv.bytes()), (Some(flops), Some(4 * numbers)));
        // A convolution of 1x1 is the matrix product of all pixels.
        let one = Work::convolution(2, [4, 6, 6], [8, 6, 6], [1, 1], 1, Dtype::F32);
        assert_eq!(one, Work::gemm(2 * 36, 8, 4, Dtype::F32));
        let attention = Work::attention(2, 3, 16, 32, 8, Dtype::Bf16);
        let two = Work::gemm(16, 32, 8, Dtype::Bf16)
            .flops()
            .zip(Work::gemm(16, 8, 32, Dtype::Bf16).flops());
        assert_eq!(attention.flops(), two.map(|(one, other)| 6 * (one + other)));
        assert_eq!(attention.bytes(), Some(2 * 2 * 3 * 8 * (16 + 32 + 32 + 16)));
        let causal = Work::causal_attention(2, 3, 16, 32, 8, Dtype::Bf16);
        let counted = |queries: u64, keys: u64| {
            let sees = |query: u64, key: u64| key + queries <= query + keys;
            let pairs = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
            pairs.filter(|(query, key)| sees(*query, *key)).count() as u64
        };
        assert_eq!(causal.flops(), Some(4 * 2 * 3 * 8 * counted(16, 32)));
        assert_eq!(causal.bytes(), attention.bytes());
        let pairs = |queries, keys| {
            let work = Work::causal_attention(1, 1, queries, keys, 1, Dtype::Bf16);
            work.flops().unwrap() / 4
        };
        for (queries, keys) in [(0, 0), (0, 5), (5, 0), (1, 1), (7, 7), (3, 9), (9, 3), (512, 4096)]
        {
            assert_eq!(pairs(queries, keys), counted(queries, keys), "{queries}x{keys}");
        }
        assert_eq!(pairs(1, 4096), 4096, "a step of decoding");
        assert_eq!(pairs(512, 4096), 512 * 4096 - 512 * 511 / 2);
        assert_eq!(pairs(u64::MAX, u64::MAX), u64::MAX / 4);
        let axpy = Work::elementwise(1000, 2, 1, 2, Dtype::F32);
        assert_eq!((axpy.flops(), axpy.bytes()), (Some(2000), Some(12_000)));
        let sum = Work::reduction(1000, Dtype::F32);
        assert_eq!((sum.flops(), sum.bytes()), (Some(999), Some(4004)));
        // Half a byte each.
        assert_eq!(Work::reduction(2, Dtype::F4).bytes(), Some(2));
    }

    #[test]
    fn overflow_saturates() {
        let most = Work::gemm(u64::MAX, u64::MAX, u64::MAX, Dtype::F64);
        assert_eq!((most.flops(), most.bytes()), (Some(u64::MAX), Some(u64::MAX)));
        assert_eq!(most.times(3).flops(), Some(u64::MAX));
        assert_eq!((most + Work::new(1, 1)).bytes(), Some(u64::MAX));
        let none = Work::convolution(1, [1; 3], [1; 3], [1; 2], 0, Dtype::F64);
        assert_eq!(none.flops(), Some(2));
    }

    #[test]
    fn sums_add_declared_quantities() {
        let one = Work::gemm(2, 2, 2, Dtype::F16);
        let sum = one + Work::elementwise(4, 1, 1, 1, Dtype::F16);
        assert_eq!((sum.flops(), sum.dtype(), sum.pipe()), (Some(20), Some(Dtype::F16), None));
        assert_eq!((one + Work::of_flops(4)).bytes(), one.bytes());
    }

    #[test]
    fn names_round_trip() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::named(dtype.name()), Some(dtype));
            assert!(dtype.name().len() <= 8);
        }
        assert_eq!(Dtype::named("FP8"), Some(Dtype::F8));
        assert_eq!(Pipe::named("Tensor"), Some(Pipe::Tensor));
    }

    #[cfg(feature = "enable")]
    #[test]
    fn a_tool_gets_operations_bytes_and_type() {
        let fields: Vec<_> = Work::gemm(2, 2, 2, Dtype::Bf16).fields().collect();
        let payload = tool_payload(&fields).unwrap();
        assert_eq!(payload[..8], 16f64.to_ne_bytes());
        assert_eq!(payload[8..16], 24f64.to_ne_bytes());
        assert_eq!(&payload[16..], b"bf16\0\0\0\0");
        assert_eq!(tool_payload(&fields[2..]), None);
        assert_eq!(tool_payload(&[]), None);
        assert_eq!(tool_payload(&[Field::new("flops", "many", "")]), None);
    }
}

//! The macros: events whose names and values are computed only if a tool or observer is active.

/// Starts a range of this thread, and computes its name and options only if a tool or observer is
/// active.
///
/// A name without arguments is registered with the tool once per call site, and not copied again.
///
/// ```
/// # use nvtx::{Color, Domain};
/// static GPU: Domain = Domain::new("my-lib");
///
/// for i in 0..3 {
///     let _batch = nvtx::range!("batch {i}");
///     let _load = nvtx::range!("load");
///     let _gemm = nvtx::range!(
///         domain: GPU,
///         color: Color::GREEN,
///         category: GPU.category("math"),
///         payload: i,
///         fields: { "flops" = 2e9, "flop"; "dtype" = "bf16" },
///         "gemm {i}",
///     );
/// }
/// ```
///
/// Options precede the name, each at most once and in any order. The name has the syntax of
/// [`format!`].
///
/// - `domain: GPU`: the domain, which is a `static`;
/// - `color: Color::RED`: a [`Color`](crate::Color);
/// - `category: c`: a [`Category`](crate::Category) of the domain;
/// - `payload: x`: a value that converts to a [`Payload`](crate::Payload);
/// - `fields: { "name" = value, "unit"; "name" = value }`: [`Field`](crate::Field)s;
/// - `record: &record`: a [`Record`](crate::schema::Record);
/// - `flops: 2 * m * n * k`, `bytes: b`, `dtype: Dtype::F32`, `pipe: Pipe::Tensor`, or
///   `work: Work::gemm(m, n, k, Dtype::F32)`: the amount of [`Work`](crate::Work).
#[macro_export]
macro_rules! range {
    ($($all:tt)+) => {
        $crate::__nvtx_event!(range, [$crate::__private::CallSite::unnamed()], [], $($all)+)
    };
}

/// Starts a range of the process, which may end on any thread. Syntax as [`range!`](crate::range!).
///
/// ```
/// # let id = 3;
/// let request = nvtx::process_range!("request {id}");
/// std::thread::spawn(move || drop(request));
/// ```
#[macro_export]
macro_rules! process_range {
    ($($all:tt)+) => {
        $crate::__nvtx_event!(process_range, [$crate::__private::CallSite::unnamed()], [], $($all)+)
    };
}

/// Records a mark. Syntax as [`range!`](crate::range!).
///
/// ```
/// # let bytes = 4096u64;
/// nvtx::mark!(payload: bytes, "evicted");
/// ```
#[macro_export]
macro_rules! mark {
    ($($all:tt)+) => {
        $crate::__nvtx_event!(mark, [$crate::__private::CallSite::unnamed()], [], $($all)+)
    };
}

/// Parses the options one by one: the method, the call site, the parsed options, and the remaining
/// tokens.
#[doc(hidden)]
#[macro_export]
macro_rules! __nvtx_event {
    ($what:ident, [$($site:tt)*], [$($read:tt)*], domain: $domain:path, $($rest:tt)+) => {
        $crate::__nvtx_event!(
            $what,
            [$crate::__private::CallSite::unnamed_in_domain(&$domain)],
            [$($read)*],
            $($rest)+
        )
    };
    (
        $what:ident, [$($site:tt)*], [$($read:tt)*],
        fields: { $($name:literal = $value:expr $(, $unit:literal)?);+ $(;)? }, $($rest:tt)+
    ) => {
        $crate::__nvtx_event!(
            $what,
            [$($site)*],
            // First, since it replaces earlier fields.
            [.fields(&[
                $($crate::Field::new($name, $value, $crate::__nvtx_unit!($($unit)?))),+
            ]) $($read)*],
            $($rest)+
        )
    };
    // Any other option is the method of `Event` with its name.
    ($what:ident, [$($site:tt)*], [$($read:tt)*], $option:ident: $value:expr, $($rest:tt)+) => {
        $crate::__nvtx_event!($what, [$($site)*], [$($read)* .$option($value)], $($rest)+)
    };
    (range, [$($site:tt)*], [], $($name:tt)+) => {
        if $crate::__private::is_active() {
            static __NVTX_SITE: $crate::__private::CallSite = $($site)*;
            __NVTX_SITE.range_of(&$crate::__private::Name::new(
                $crate::__private::format_args!($($name)+),
            ))
        } else {
            $crate::__private::idle::range()
        }
    };
    ($what:ident, [$($site:tt)*], [$($read:tt)*], $($name:tt)+) => {
        if $crate::__private::is_active() {
            static __NVTX_SITE: $crate::__private::CallSite = $($site)*;
            match $crate::__private::Name::new($crate::__private::format_args!($($name)+)) {
                name => __NVTX_SITE.event_of(&name) $($read)* .$what(),
            }
        } else {
            $crate::__private::idle::$what()
        }
    };
}

/// The unit of a field, or none.
#[doc(hidden)]
#[macro_export]
macro_rules! __nvtx_unit {
    () => {
        ""
    };
    ($unit:literal) => {
        $unit
    };
}

//! Annotated functions do what they did before, and each call is a range with the right name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are not inside a #[test]")]

use std::cell::RefCell;
use std::fmt::{Debug, Display};
use std::panic;

use nvtx::observer::{self, Observer, RangeStart, Token};

thread_local! {
    static NAMES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Writes down the ranges of each thread: `+name` at a start, `-` at an end.
struct Recorder {
    _address: u8,
}

static RECORDER: Recorder = Recorder { _address: 0 };

impl Observer for Recorder {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        NAMES.with_borrow_mut(|names| names.push(format!("+{}", range.name)));
        Token::new(0)
    }

    fn range_end(&self, _token: Token) {
        NAMES.with_borrow_mut(|names| names.push("-".to_owned()));
    }
}

/// What `f` returns, and the ranges that it went through, in one line.
fn observed<R>(f: impl FnOnce() -> R) -> (R, String) {
    observer::install(&RECORDER).unwrap().on();
    NAMES.take();
    let result = f();
    (result, NAMES.take().join(" "))
}

#[nvtx::annotate]
fn plain(x: i32) -> i32 {
    x + 1
}

#[nvtx::annotate(name = "größe ∑")]
fn named() {}

#[nvtx::annotate(crate = ::nvtx, name = "both options",)]
fn both() {}

#[nvtx::annotate()]
fn r#match() {}

#[test]
fn the_name_is_the_functions_or_the_given_one() {
    assert_eq!(observed(|| plain(1)), (2, "+plain -".to_owned()));
    assert_eq!(observed(named).1, "+größe ∑ -");
    assert_eq!(observed(both).1, "+both options -");
    assert_eq!(observed(r#match).1, "+match -");
}

#[nvtx::annotate]
fn parse(text: &str) -> Result<u32, std::num::ParseIntError> {
    if text.is_empty() {
        return Ok(0);
    }
    let value: u32 = text.parse()?;
    Ok(value * 2)
}

#[test]
fn every_way_out_ends_the_range() {
    for (text, value) in [("", Some(0)), ("x", None), ("4", Some(8))] {
        let (result, ranges) = observed(|| parse(text));
        assert_eq!(result.ok(), value);
        assert_eq!(ranges, "+parse -");
    }
}

#[nvtx::annotate]
fn fails() {
    panic!("meant");
}

#[test]
fn a_panic_ends_the_range() {
    let (result, ranges) = observed(|| panic::catch_unwind(fails));
    assert!(result.is_err());
    assert_eq!(ranges, "+fails -");
}

#[nvtx::annotate]
fn factorial(n: u64) -> u64 {
    if n == 0 { 1 } else { n * factorial(n - 1) }
}

#[test]
fn recursion_nests() {
    let (value, ranges) = observed(|| factorial(2));
    assert_eq!(value, 2);
    assert_eq!(ranges, "+factorial +factorial +factorial - - -");
}

#[nvtx::annotate]
fn generic<'a, T, const N: usize>(items: &'a [T; N], all: impl Iterator<Item = u8>) -> String
where
    T: Debug,
{
    let first: &'a T = &items[0];
    format!("{first:?} {N} {}", all.count())
}

#[nvtx::annotate]
fn returns_impl(words: &[&str]) -> impl Iterator<Item = usize> {
    words.iter().map(|word| word.len())
}

#[nvtx::annotate]
fn returns_dyn(x: i32) -> Box<dyn Display> {
    Box::new(x)
}

#[test]
fn generics_and_impl_trait_are_kept() {
    let (value, ranges) = observed(|| generic(&[7, 8], [1, 2, 3].into_iter()));
    assert_eq!((value.as_str(), ranges.as_str()), ("7 2 3", "+generic -"));
    let (value, ranges) = observed(|| returns_impl(&["a", "bc"]).sum::<usize>());
    assert_eq!((value, ranges.as_str()), (3, "+returns_impl -"));
    assert_eq!(observed(|| returns_dyn(5).to_string()).0, "5");
}

trait Layer {
    fn forward(&mut self, x: f32) -> f32;

    #[nvtx::annotate]
    fn provided(&self) -> u8 {
        3
    }
}

struct Linear {
    weight: f32,
    calls: u32,
}

impl Linear {
    #[nvtx::annotate]
    pub(crate) fn new(weight: f32) -> Self {
        Linear { weight, calls: 0 }
    }

    #[nvtx::annotate(name = "into")]
    fn into_calls(self) -> u32 {
        self.calls
    }
}

impl Layer for Linear {
    /// Attributes stay, and others may stand around ours.
    #[inline]
    #[nvtx::annotate]
    #[allow(clippy::float_arithmetic)]
    fn forward(&mut self, x: f32) -> f32 {
        self.calls += 1;
        self.weight * x
    }
}

#[test]
fn methods_work_in_impls_and_traits() {
    let (calls, ranges) = observed(|| {
        let mut linear = Linear::new(2.0);
        assert_eq!(linear.forward(3.0), 6.0);
        assert_eq!(linear.provided(), 3);
        linear.into_calls()
    });
    assert_eq!(calls, 1);
    assert_eq!(ranges, "+new - +forward - +provided - +into -");
}

/// # Safety
///
/// `x` may be read.
#[nvtx::annotate]
unsafe fn read(x: *const u8) -> u8 {
    // SAFETY: as the caller promises.
    unsafe { *x }
}

#[nvtx::annotate]
extern "C" fn called_from_c(x: u8) -> u8 {
    x
}

#[test]
fn unsafe_and_extern_functions_work() {
    // SAFETY: a reference may be read.
    let (value, ranges) = observed(|| unsafe { read(&9) });
    assert_eq!((value, ranges.as_str()), (9, "+read -"));
    assert_eq!(observed(|| called_from_c(1)).1, "+called_from_c -");
}

#[nvtx::annotate]
fn inner_attribute() -> u8 {
    #![allow(unused_variables)]
    #![allow(dead_code)]
    let unused = 1;
    fn item() {}
    2
}

#[nvtx::annotate]
#[allow(clippy::used_underscore_binding)]
fn same_variable(__nvtx_range: u8) -> u8 {
    let twice = __nvtx_range * 2;
    let __nvtx_range = twice;
    __nvtx_range + 1
}

#[test]
fn the_body_is_untouched() {
    assert_eq!(observed(inner_attribute), (2, "+inner_attribute -".to_owned()));
    assert_eq!(observed(|| same_variable(2)), (5, "+same_variable -".to_owned()));
}

macro_rules! wrapped {
    ($(#[$meta:meta])* $vis:vis $name:ident, $ty:ty, $label:literal, $body:block) => {
        $(#[$meta])*
        #[nvtx::annotate(name = $label)]
        $vis fn $name() -> $ty $body
    };
}

macro_rules! whole {
    ($($item:item)*) => { $(#[nvtx::annotate] $item)* };
}

wrapped!(/** From a macro. */ pub(crate) from_parts, u8, "label", { 4 });
wrapped!(private_from_parts, u8, "label", { 5 });
whole! {
    fn from_item() -> u8 { 6 }
    pub(crate) unsafe fn second_item() -> u8 { 7 }
}

#[test]
fn functions_made_by_macros_work() {
    assert_eq!(observed(from_parts), (4, "+label -".to_owned()));
    assert_eq!(observed(private_from_parts), (5, "+label -".to_owned()));
    assert_eq!(observed(from_item), (6, "+from_item -".to_owned()));
    // SAFETY: it asks for nothing.
    let (value, ranges) = observed(|| unsafe { second_item() });
    assert_eq!((value, ranges.as_str()), (7, "+second_item -"));
}

mod renamed {
    pub(crate) use nvtx as gpu;
}

#[renamed::gpu::annotate(crate = crate::renamed::gpu)]
fn through_a_path() {}

#[test]
fn the_crate_may_be_found_elsewhere() {
    assert_eq!(observed(through_a_path).1, "+through_a_path -");
}

#[test]
fn nested_functions_and_statements_can_be_annotated() {
    #[nvtx::annotate]
    fn outer() -> u8 {
        #[nvtx::annotate]
        fn inner() -> u8 {
            1
        }
        inner()
    }
    assert_eq!(observed(outer), (1, "+outer +inner - -".to_owned()));
}

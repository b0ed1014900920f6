//! Futures, iterators and closures in ranges, annotated or by hand, as an observer sees them.
#![forbid(unsafe_code)]

#[path = "support/watch.rs"]
mod watch;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use nvtx::{Color, Domain, InRange, Instrument};
use watch::watch;

/// Pending once, so that whoever awaits it is polled twice.
#[derive(Default)]
struct Pause(bool);

impl Future for Pause {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Polls until it is done, and counts.
fn run<F: Future>(future: F) -> (F::Output, u32) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for polls in 1.. {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, polls);
        }
    }
    unreachable!()
}

static GPU: Domain = Domain::new("gpu");

#[nvtx::annotate]
async fn plain(x: u32) -> u32 {
    Pause::default().await;
    x + 1
}

#[test]
fn an_async_fn_has_a_life_and_polls() {
    let watching = watch();
    let future = plain(1);
    assert!(watching.take_lines().is_empty(), "nothing happens before the first poll");
    assert_eq!(run(future), (2, 2));
    assert_eq!(watching.take_lines(), [">plain", "+plain", "-plain", "+plain", "-plain", "<plain"]);
}

#[nvtx::annotate(polls = false)]
async fn only_life() {
    Pause::default().await;
}
#[nvtx::annotate(lifetime = false, domain = GPU)]
async fn only_polls() {
    Pause::default().await;
}
#[nvtx::annotate(lifetime = false, polls = false)]
async fn neither() {
    Pause::default().await;
}

#[test]
fn life_and_polls_are_both_optional() {
    let watching = watch();
    run(only_life());
    assert_eq!(watching.take_lines(), [">only_life", "<only_life"]);
    run(only_polls());
    assert_eq!(
        watching.take_lines(),
        ["+only_polls domain=gpu", "-only_polls", "+only_polls domain=gpu", "-only_polls"]
    );
    run(neither());
    assert!(watching.take_lines().is_empty());
}

#[nvtx::annotate(
    name = "gemm", domain = GPU, color = Color::RED, category = GPU.category("math"), payload = (m * n) as u64,
    fields(m, flops = 2.0 * (m * n * k) as f64 => "flop", label, square = m == n)
)]
fn gemm(m: usize, n: usize, k: usize, label: &str) -> usize {
    m * n * k
}

#[nvtx::annotate(color = Color::RED, payload = x)]
async fn detailed(x: i64) -> Result<i64, std::num::ParseIntError> {
    let y: i64 = "4".parse()?;
    Pause::default().await;
    if x < 0 {
        return "none".parse();
    }
    Ok(x + y)
}

#[test]
fn details_go_to_the_range_and_to_the_life() {
    let watching = watch();
    assert_eq!(gemm(4, 4, 2, "a"), 32);
    let red = format!("color={:08x}", Color::RED.to_argb());
    let fields = "m=U64(4) flops=F64(64.0)flop label=Str(\"a\") square=Bool(true)";
    assert_eq!(
        watching.take_lines(),
        [format!("+gemm domain=gpu {red} category=math payload=U64(16) {fields}"), "-gemm".into()]
    );
    assert_eq!(run(detailed(3)).0, Ok(7));
    assert_eq!(
        watching.take_lines()[..2],
        [format!(">detailed {red} payload=I64(3)"), "+detailed".into()]
    );
    assert!(run(detailed(-1)).0.is_err());
    assert_eq!(watching.take_lines().last().unwrap(), "<detailed");
}

mod deep {
    pub(crate) mod deeper {
        #[nvtx::annotate(qualified)]
        pub(crate) fn named() {}
    }
}

#[test]
fn qualified_name_contains_the_module_path() {
    let watching = watch();
    deep::deeper::named();
    assert_eq!(watching.take_lines()[0], "+instrument::deep::deeper::named");
}

struct Layer(u32);
trait Forward {
    async fn forward(&self, x: &u32) -> u32;
}
impl Forward for Layer {
    #[nvtx::annotate(lifetime = false)]
    async fn forward(&self, x: &u32) -> u32 {
        self.0 + *x
    }
}
impl Layer {
    #[nvtx::annotate(lifetime = false)]
    fn lent<'a, T: Copy + Into<u32> + 'a>(
        &'a self,
        x: &'a T,
    ) -> impl Future<Output = u32> + use<'a, T> {
        if self.0 == 0 {
            return Either::Zero;
        }
        Either::Sum(self.0 + (*x).into())
    }
}
enum Either {
    Zero,
    Sum(u32),
}
impl Future for Either {
    type Output = u32;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        Poll::Ready(match *self {
            Either::Zero => 0,
            Either::Sum(sum) => sum,
        })
    }
}

#[test]
fn methods_traits_borrows_and_impl_future_work() {
    let watching = watch();
    assert_eq!(run(Layer(3).forward(&4)).0, 7);
    assert_eq!(watching.take_lines(), ["+forward", "-forward"]);
    assert_eq!((run(Layer(0).lent(&1u8)).0, run(Layer(2).lent(&1u16)).0), (0, 3));
    assert_eq!(
        watching.take_lines(),
        ["+lent", "-lent", "+lent", "-lent"],
        "also after an early return"
    );
}

struct Model(Vec<u32>);
/// The type that `async_trait` gives a method.
trait Boxed {
    fn step<'life0, 'async_trait>(
        &'life0 mut self,
        x: u32,
    ) -> ::core::pin::Pin<
        Box<dyn ::core::future::Future<Output = u32> + ::core::marker::Send + 'async_trait>,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait;
}
impl Boxed for Model {
    #[nvtx::annotate(fields(x))]
    #[allow(clippy::type_complexity)]
    fn step<'life0, 'async_trait>(
        &'life0 mut self,
        x: u32,
    ) -> ::core::pin::Pin<
        Box<dyn ::core::future::Future<Output = u32> + ::core::marker::Send + 'async_trait>,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        if x == 0 {
            return Box::pin(std::future::ready(0));
        }
        Box::pin(async move {
            Pause::default().await;
            self.0.push(x);
            x + 1
        })
    }
}

#[test]
fn a_boxed_future_is_followed_as_another() {
    let watching = watch();
    let mut model = Model(Vec::new());
    assert_eq!(run(model.step(2)), (3, 2));
    let seen = [">step x=U64(2)", "+step", "-step", "+step", "-step", "<step"];
    assert_eq!(watching.take_lines(), seen);
    assert_eq!(run(model.step(0)), (0, 1), "another box, from an early return");
    assert_eq!(watching.take_lines(), [">step x=U64(0)", "+step", "-step", "<step"]);
    assert_eq!(model.0, [2]);
}

#[nvtx::annotate(polls = false)]
async fn countdown(depth: u32) -> u32 {
    if depth == 0 { 0 } else { Box::pin(countdown(depth - 1)).await + 1 }
}

#[test]
fn an_async_fn_may_call_itself() {
    let watching = watch();
    assert_eq!(run(countdown(2)).0, 2);
    assert_eq!(
        watching.take_lines(),
        [">countdown", ">countdown", ">countdown", "<countdown", "<countdown", "<countdown"]
    );
}

#[test]
fn a_dropped_future_ends_its_life() {
    let watching = watch();
    let mut future = Box::pin(plain(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    drop(future);
    assert_eq!(watching.take_lines(), [">plain", "+plain", "-plain", "<plain"]);
}

#[test]
fn drops_of_a_cancelled_future_are_in_its_lifetime() {
    struct DropMark;
    impl Drop for DropMark {
        fn drop(&mut self) {
            nvtx::mark("dropped");
        }
    }
    let watching = watch();
    let mut future = Box::pin(
        async {
            let _mark = DropMark;
            Pause::default().await;
        }
        .in_range("cancelled"),
    );
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    drop(future);
    assert_eq!(
        watching.take_lines(),
        [">cancelled", "+cancelled", "-cancelled", "!dropped", "<cancelled"]
    );
}

#[test]
fn a_panic_in_a_poll_ends_both() {
    let watching = watch();
    let panics = async { std::panic::resume_unwind(Box::new(())) };
    let caught =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(panics.in_range("panics")).0));
    assert!(caught.is_err());
    assert_eq!(watching.take_lines(), [">panics", "+panics", "-panics", "<panics"]);
}

#[test]
fn polls_are_ranges_of_the_thread_that_polls() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let watching = watch();
    let mut future = Box::pin(is_send(async { Pause::default().await }.in_range("wanders")));
    for worker in 0..2 {
        let poll = move || {
            let mut context = Context::from_waker(Waker::noop());
            let _ = future.as_mut().poll(&mut context);
            future
        };
        let thread = std::thread::Builder::new().name(format!("worker {worker}"));
        future = thread.spawn(poll).unwrap().join().unwrap();
    }
    drop(future);
    assert_eq!(
        watching.take_lines(),
        [
            ">wanders",
            "worker 0: +wanders",
            "worker 0: -wanders",
            "worker 1: +wanders",
            "worker 1: -wanders",
            "worker 1: <wanders"
        ]
    );
}

#[test]
fn iterators_and_closures_run_in_ranges() {
    let watching = watch();
    let sum: u32 = [1, 2].into_iter().in_range("sum").sum();
    assert_eq!(sum, 3);
    assert_eq!(
        watching.take_lines(),
        [">sum", "+sum", "-sum", "+sum", "-sum", "+sum", "-sum", "<sum"]
    );
    let halves: Vec<u32> =
        [4u32, 6].into_iter().map(InRange::new("half").domain(&GPU).wrap_each(|x| x / 2)).collect();
    assert_eq!(halves, [2, 3]);
    assert_eq!(watching.take_lines(), ["+half domain=gpu", "-half", "+half domain=gpu", "-half"]);
    assert_eq!(InRange::from(format!("job {}", 1)).wrap(|| 5)(), 5);
    assert_eq!(watching.take_lines(), ["+job 1", "-job 1"]);
    let quiet = [1].into_iter().in_range(InRange::new("quiet").lifetime(false).polls(false));
    assert_eq!(quiet.size_hint(), (1, Some(1)));
    assert_eq!((quiet.count(), watching.take_lines().len()), (1, 0));
}

#![forbid(unsafe_code)]
#![deny(warnings)]

use std::future::Future;
use std::pin::Pin;

static GPU: nvtx::Domain = nvtx::Domain::new("gpu");

#[nvtx::annotate(domain = GPU, color = nvtx::Color::RED, payload = N as u64, fields(n = N, label))]
async fn generic<T: Clone + Send, const N: usize>(items: &[T; N], label: &str) -> Result<Vec<T>, std::fmt::Error> {
    if label.is_empty() {
        return Err(std::fmt::Error);
    }
    let copy = async { items.to_vec() }.await;
    Err(std::fmt::Error)?;
    Ok(copy)
}

#[nvtx::annotate]
fn returns_future(x: u32) -> impl Future<Output = u32> + Send {
    if x == 0 {
        return std::future::ready(1);
    }
    std::future::ready(x)
}

struct Jobs(Vec<u32>);

impl Jobs {
    // The future holds what the function borrowed mutably.
    #[nvtx::annotate(fields(left = self.0.len()))]
    fn next(&mut self) -> impl Future<Output = Option<u32>> + '_ {
        let all = &mut self.0;
        async move { all.pop() }
    }

    #[nvtx::annotate(payload = name.len() as u64)]
    fn named(&mut self, name: String) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        if self.0.is_empty() {
            return Box::pin(std::future::ready(name));
        }
        Box::pin(async move { format!("{name} {:?}", self.next().await) })
    }

    #[nvtx::annotate]
    fn hidden(self) -> Pin<Box<dyn Future<Output = (impl Iterator<Item = u32> + use<>, u8)> + Send>> {
        Box::pin(async move { (self.0.into_iter(), 1) })
    }

    #[nvtx::annotate]
    async fn hidden_async(self) -> (impl Iterator<Item = u32> + use<>, u8) {
        (self.0.into_iter(), 1)
    }

    #[nvtx::annotate]
    fn aliased<'a, T: Copy + Send + 'a>(&'a mut self, x: T) -> BoxFuture<'a, T> {
        Box::pin(async move {
            self.0.clear();
            x
        })
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[nvtx::annotate(qualified)]
async fn never() -> ! {
    loop {
        std::future::pending::<()>().await;
    }
}

#[nvtx::annotate]
async fn unit() {}

fn is_send<T: Send>(_: T) {}

fn main() {
    is_send(generic(&[1u8, 2], "x"));
    is_send(returns_future(0));
    is_send(never());
    is_send(unit());
    let mut jobs = Jobs(vec![1]);
    is_send(jobs.next());
    is_send(jobs.named(String::new()));
    is_send(jobs.aliased(1u8));
    is_send(Jobs(Vec::new()).hidden());
    is_send(jobs.hidden_async());
}

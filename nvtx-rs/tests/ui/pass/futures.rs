#![forbid(unsafe_code)]
#![deny(warnings)]

use std::future::Future;

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
}

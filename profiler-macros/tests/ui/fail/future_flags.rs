#[nvtx::annotate(polls = false)]
fn value() {}

#[nvtx::annotate(lifetime = true)]
fn value_too() -> Vec<std::future::Ready<u32>> {
    Vec::new()
}

#[nvtx::annotate(lifetime = 1)]
async fn number() {}

#[nvtx::annotate(polls)]
async fn no_value() {}

#[nvtx::annotate(lifetime = false, fields(x), color = nvtx::Color::RED, flops = x)]
async fn details_without_a_place(x: u64) {}

#[nvtx::annotate(payload = 1u32, lifetime = false)]
fn boxed_without_a_place() -> std::pin::Pin<Box<dyn std::future::Future<Output = ()>>> {
    Box::pin(async {})
}

#[nvtx::annotate(payload = 1u32, polls = false, lifetime = true)]
async fn with_a_place() {}

fn main() {}

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

fn main() {}

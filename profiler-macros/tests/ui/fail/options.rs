#[nvtx::annotate(colour = "red")]
fn unknown() {}

#[nvtx::annotate(name = "a", name = "b")]
fn twice() {}

#[nvtx::annotate(crate = nvtx, name = "a", crate = nvtx)]
fn crate_twice() {}

#[nvtx::annotate("a")]
fn bare_literal() {}

#[nvtx::annotate(name)]
fn no_value() {}

#[nvtx::annotate(name = )]
fn empty_value() {}

#[nvtx::annotate(name("a"))]
fn call() {}

#[nvtx::annotate(name = 7)]
fn wrong_type() {}

#[nvtx::annotate(name = concat!("a", "b"))]
fn computed() {}

#[nvtx::annotate(name = "a"u8)]
fn suffix() {}

#[nvtx::annotate(name = b"a")]
fn bytes() {}

#[nvtx::annotate(name = "a" crate = nvtx)]
fn no_comma() {}

#[nvtx::annotate(crate = "nvtx")]
fn path_in_quotes() {}

#[nvtx::annotate(crate = nvtx::)]
fn half_a_path() {}

#[nvtx::annotate(, name = "a")]
fn leading_comma() {}

fn main() {
    unknown();
}

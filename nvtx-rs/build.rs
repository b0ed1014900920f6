//! Nothing is built: cargo asks for a build script where `links` is set, which makes it refuse two
//! versions of this crate in one program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

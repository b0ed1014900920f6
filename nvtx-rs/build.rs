//! Builds nothing. Cargo requires a build script where `links` is set, and `links` makes it refuse
//! two versions of this crate in one program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

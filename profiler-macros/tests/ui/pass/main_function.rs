#[nvtx::annotate(name = "program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _seven: u8 = "7".parse()?;
    Ok(())
}

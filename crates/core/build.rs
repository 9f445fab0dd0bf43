//! Compiles `proto/levada.proto` in pure Rust, so that no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../../proto/levada.proto");
    let descriptors = protox::compile(["levada.proto"], ["../../proto"])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}

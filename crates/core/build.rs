//! Compiles `proto/levada.proto` in pure Rust, so that no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../../proto/levada.proto");
    let descriptors = protox::compile(["levada.proto"], ["../../proto"])?;
    // Messages with secrets must not be printable by accident; `wire` says what stands in their place.
    prost_build::Config::new().skip_debug(["Granted", "Join"]).compile_fds(descriptors)?;
    Ok(())
}

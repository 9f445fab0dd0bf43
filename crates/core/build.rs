//! Compiles the files of `proto/` in pure Rust, so that no protoc is needed.

const FILES: [&str; 3] = ["levada.proto", "capability.proto", "catalogue.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        println!("cargo:rerun-if-changed=../../proto/{file}");
    }
    let descriptors = protox::compile(FILES, ["../../proto"])?;
    // Messages with secrets must not be printable by accident; `wire` says what stands in their place.
    let secret = ["Granted", "Join", "Reply"];
    prost_build::Config::new().skip_debug(secret).compile_fds(descriptors)?;
    Ok(())
}

//! Compiles the files of `proto/` with protox, so that no `protoc` is needed.

const FILES: [&str; 4] = ["levada.proto", "capability.proto", "catalogue.proto", "cluster.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        println!("cargo:rerun-if-changed=../../proto/{file}");
    }
    let descriptors = protox::compile(FILES, ["../../proto"])?;
    // Messages with secrets get no derived `Debug`; `wire` implements one without the secrets.
    let secret = ["Admitted", "Exchange", "Granted", "Join", "Reply"];
    prost_build::Config::new().skip_debug(secret).compile_fds(descriptors)?;
    Ok(())
}

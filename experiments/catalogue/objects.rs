//! The content of the measured catalogue: the folder to import, and the expected answers.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde_json::json;

use super::fetch::{self, HOST};
use crate::testbed::Testbed;

/// The name of the object that the paper fetches.
const NAME: &str = "Runtime";
/// The length of its source code in characters, so that an answer has 153 kB as in the paper.
const SOURCE: usize = 153_000;
/// The placeholder of a digest that is not computed.
const NO_DIGEST: &str = "00000000000000000000000000000000";
/// The characters of the source code: base64, as in reTHINK's catalogue.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// The constants of the linear congruential generator of Knuth's MMIX.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;
/// Words in the descriptors of a large catalogue.
const WORDS: [&str; 16] = [
    "camera",
    "chat",
    "door",
    "echo",
    "garden",
    "heating",
    "identity",
    "lamp",
    "meter",
    "music",
    "presence",
    "printer",
    "screen",
    "storage",
    "telephone",
    "weather",
];

/// The fetched objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Object {
    /// The descriptor of a runtime.
    Descriptor,
    /// Its package of 153 kB.
    Package,
}

impl Object {
    /// Both objects.
    pub const ALL: [Self; 2] = [Self::Descriptor, Self::Package];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::Package => "package",
        }
    }

    /// The path of its URL.
    pub fn path(self) -> String {
        match self {
            Self::Descriptor => format!("/.well-known/runtime/{NAME}"),
            Self::Package => format!("/.well-known/sourcepackage/{NAME}"),
        }
    }
}

/// The bodies that every subject answers.
pub struct Bodies {
    descriptor: Vec<u8>,
    package: Vec<u8>,
}

impl Bodies {
    /// Fetches the bodies from a catalogue.
    ///
    /// # Errors
    /// If a request fails, or a body differs in length from the imported object.
    pub fn fetch(testbed: &Testbed, address: std::net::SocketAddr) -> anyhow::Result<Self> {
        let own = Self::without_digests();
        let body = |object: Object| {
            let answer = fetch::get(testbed, address, &object.path(), None)?;
            let got = answer.body.len();
            let wanted = own.body(object).len();
            ensure!(answer.status == 200, "{} was answered {}", object.path(), answer.status);
            ensure!(got == wanted, "{} has {got} bytes instead of {wanted}", object.path());
            Ok(answer.body)
        };
        Ok(Self { descriptor: body(Object::Descriptor)?, package: body(Object::Package)? })
    }

    /// The expected bodies with zeros as digests, for measurements without a catalogue.
    pub fn without_digests() -> Self {
        let url = format!("hyperty-catalogue://{HOST}/.well-known/sourcepackage/{NAME}");
        let descriptor = format!(
            r#"{{
  "cguid": "{NO_DIGEST}",
  "runtimeType": "browser",
  "version": 18.699999999999996,
  "objectName": "{NAME}",
  "description": "Description of Runtime",
  "sourcePackageURL": "{url}",
  "language": "javascript",
  "hypertyCapabilities": {{
    "mic": true,
    "camera": true,
    "sensor": false,
    "webrtc": true,
    "ortc": true
  }},
  "protocolCapabilities": {{
    "http": true,
    "https": true,
    "ws": true,
    "wss": true,
    "coap": false,
    "datachannel": false
  }}
}}"#
        );
        let package = format!(
            r#"{{
  "encoding": "base64",
  "sourceCodeClassname": "{NAME}",
  "sourceCode": "{}",
  "md5": "{NO_DIGEST}"
}}"#,
            source()
        );
        Self { descriptor: descriptor.into_bytes(), package: package.into_bytes() }
    }

    /// The answer to a request for `object`.
    pub fn body(&self, object: Object) -> &[u8] {
        match object {
            Object::Descriptor => &self.descriptor,
            Object::Package => &self.package,
        }
    }

    /// Writes the bodies as files below `root`, at the paths of their URLs.
    pub fn write(&self, root: &Path) -> anyhow::Result<()> {
        for object in Object::ALL {
            let path = root.join(object.path().trim_start_matches('/'));
            write(&path, self.body(object))?;
        }
        Ok(())
    }

    /// Checks that `address` answers exactly these bodies.
    pub fn check(&self, testbed: &Testbed, address: std::net::SocketAddr) -> anyhow::Result<()> {
        for object in Object::ALL {
            let answer = fetch::get(testbed, address, &object.path(), None)?;
            ensure!(answer.body == self.body(object), "{} has other bytes", object.path());
        }
        Ok(())
    }
}

/// Writes the folder to import, with the paper's runtime.
pub fn write_folder(folder: &Path) -> anyhow::Result<()> {
    // As text, because the catalogue keeps the digits of the number.
    let description = format!(
        r#"{{
"cguid": "", "runtimeType": "browser", "version": 18.699999999999996, "objectName": "{NAME}",
"description": "Description of Runtime", "language": "javascript",
"hypertyCapabilities": {{
  "mic": true, "camera": true, "sensor": false, "webrtc": true, "ortc": true
}},
"protocolCapabilities": {{
  "http": true, "https": true, "ws": true, "wss": true, "coap": false, "datachannel": false
}}
}}"#
    );
    let package = json!({
        "encoding": "base64", "sourceCodeClassname": NAME, "sourceCode": source(),
    });
    let folder = folder.join("runtime").join(NAME);
    write(&folder.join("description.json"), description.as_bytes())?;
    write(&folder.join("sourcePackage.json"), package.to_string().as_bytes())
}

/// Writes a folder to import with `count` data schemas, and returns the mean length of their
/// descriptors in bytes.
pub fn write_many(folder: &Path, count: usize) -> anyhow::Result<f64> {
    let mut bytes = 0;
    for number in 0..count {
        let description = description(number);
        bytes += description.len();
        let package = json!({
            "encoding": "base64",
            "sourceCodeClassname": format!("Schema{number}"),
            "sourceCode": format!("{number:08}"),
        });
        let folder = folder.join("dataschema").join(format!("Schema{number}"));
        write(&folder.join("description.json"), description.as_bytes())?;
        write(&folder.join("sourcePackage.json"), package.to_string().as_bytes())?;
    }
    Ok(bytes as f64 / count.max(1) as f64)
}

/// A word of the first data schema.
pub const KNOWN: &str = WORDS[0];

/// The searches of a large catalogue: frequent words, rare words, two words, and a word without a
/// hit.
pub fn queries() -> Vec<String> {
    let pairs = WORDS.windows(2).map(|pair| pair.join("+"));
    let rare = (0..16).map(|number| format!("room{}", 37 * number + 1));
    let words = WORDS.iter().map(ToString::to_string);
    words.chain(pairs).chain(rare).chain(["nowhere".to_owned()]).collect()
}

/// The descriptor of a data schema: as long as the paper's, with varying words.
pub fn description(number: usize) -> String {
    let word = |step: usize| WORDS[(number / step) % WORDS.len()];
    let text = format!("A {} with {} and {} in room{}", word(1), word(16), word(256), number / 100);
    json!({
        "cguid": "",
        "type": "JSON",
        "version": "1",
        "objectName": format!("Schema{number}"),
        "description": text,
        "language": "javascript",
        "accessControlPolicy": "somePolicy",
        "scheme": "A".repeat(240),
    })
    .to_string()
}

/// Pseudorandom letters, the same each time.
fn source() -> String {
    let mut state = 1u64;
    let letter = |_| {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        char::from(LETTERS[(state >> 58) as usize])
    };
    (0..SOURCE).map(letter).collect()
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = made.and_then(|()| fs::write(path, bytes));
    written.with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_lengths_of_the_paper() {
        let bodies = Bodies::without_digests();
        assert!((550..650).contains(&bodies.body(Object::Descriptor).len()));
        assert!((153_000..154_000).contains(&bodies.body(Object::Package).len()));
        assert_eq!(source(), source());
    }

    #[test]
    fn a_folder_has_the_files_of_the_rethink_catalogue() {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path()).unwrap();
        assert!(write_many(folder.path(), 3).unwrap() > 300.0);
        for path in ["runtime/Runtime", "dataschema/Schema2"] {
            for file in ["description.json", "sourcePackage.json"] {
                let text = fs::read_to_string(folder.path().join(path).join(file)).unwrap();
                serde_json::from_str::<serde_json::Value>(&text).unwrap();
            }
        }
    }
}

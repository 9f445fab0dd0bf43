//! Paths in JSON: text, or their bytes if they are not UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Paths that are written and read in this form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(pub Vec<PathBuf>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Form {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<Form> for PathBuf {
    fn from(form: Form) -> Self {
        match form {
            Form::Text(text) => text.into(),
            Form::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

impl Serialize for Paths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|path| Form::from(path.as_path())))
    }
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let forms = Vec::<Form>::deserialize(deserializer)?;
        Ok(Self(forms.into_iter().map(PathBuf::from).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn paths_survive_json() {
        let bytes = OsStr::from_bytes(b"/caf\xe9");
        let paths = Paths(vec!["/srv/film ü".into(), bytes.into()]);
        let text = serde_json::to_string(&paths).unwrap();
        assert_eq!(text, r#"["/srv/film ü",[47,99,97,102,233]]"#);
        assert_eq!(serde_json::from_str::<Paths>(&text).unwrap(), paths);
    }
}

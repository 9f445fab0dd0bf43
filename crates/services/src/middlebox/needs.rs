//! What a session must grant so that a plug-in can do its work.

use levada_contexts::{Path, Purpose, Right};

use super::Granted;

const HEADS_AND_BODIES: [(Purpose, &str); 4] = [
    (Purpose::RequestHead, "request-head"),
    (Purpose::RequestBody, "request-body"),
    (Purpose::ResponseHead, "response-head"),
    (Purpose::ResponseBody, "response-body"),
];

/// The rights that a plug-in needs.
#[derive(Clone, Debug)]
pub struct Need {
    plugin: &'static str,
    /// In the contexts of [`HEADS_AND_BODIES`].
    rights: [Right; 4],
    /// No fields are in contexts of their own, where the plug-in does not look.
    whole_heads: bool,
    /// It must see trailers, if there are any.
    trailers: bool,
}

impl Need {
    /// The need of the filter, which searches the whole head of each request.
    pub(super) const BLOCK: Self =
        Self::new("block", [Right::Read, Right::None, Right::None, Right::None]);

    /// The need of the plug-in that adds a field. Other fields may be in contexts of their own.
    pub(super) const ADD_RESPONSE: Self = Self {
        whole_heads: false,
        ..Self::new("add_response", [Right::None, Right::None, Right::Write, Right::None])
    };

    /// The need of the compressor.
    pub(super) const COMPRESS: Self =
        Self::new("compress", [Right::Read, Right::None, Right::Write, Right::Write]);

    /// The need of the cache. It reads every context, so that no field that matters is hidden from
    /// it, and writes everything that an exchange consists of (`docs/contexts.md`).
    pub(super) const CACHE: Self = Self { trailers: true, ..Self::new("cache", [Right::Write; 4]) };

    const fn new(plugin: &'static str, rights: [Right; 4]) -> Self {
        Self { plugin, rights, whole_heads: true, trailers: false }
    }

    /// Checks what a path grants to middlebox `hop`.
    ///
    /// # Errors
    /// A text that names the plug-in and what it lacks.
    pub(super) fn check(&self, path: &Path, hop: u8) -> Result<(), String> {
        let lacks = |error| format!("`{}` cannot do its work: {error}", self.plugin);
        self.check_granted(&Granted::new(path, hop)).map_err(lacks)
    }

    /// Checks what a session grants.
    ///
    /// # Errors
    /// A text that names what is missing.
    pub(super) fn check_granted(&self, granted: &Granted) -> Result<(), String> {
        for (number, (purpose, _)) in (1u8..).zip(&granted.0) {
            let is_mixed = matches!(purpose, Purpose::Other);
            if is_mixed || self.whole_heads && matches!(purpose, Purpose::Fields) {
                return Err(format!(
                    "context {number} is no whole head or body, which takes `--strategy four`"
                ));
            }
        }
        let needed = HEADS_AND_BODIES.iter().zip(self.rights);
        let missing = needed.filter(|((purpose, _), right)| granted.right(*purpose) < *right);
        let mut missing: Vec<String> =
            missing.map(|((_, name), right)| format!("{name}={}", text(right))).collect();
        let has_trailers = granted.0.contains(&(Purpose::Trailers, Right::None));
        if self.trailers && has_trailers {
            missing.push("trailers=r".to_owned());
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("the session does not grant {}", missing.join(",")))
    }
}

fn text(right: Right) -> &'static str {
    crate::http::right_text(right).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_needs_its_rights_in_whole_heads_and_bodies() {
        let four = [Right::Read, Right::None, Right::Write, Right::Write];
        let four = || HEADS_AND_BODIES.iter().map(|(purpose, _)| *purpose).zip(four);
        let granted =
            |more: &[(Purpose, Right)]| Granted(four().chain(more.iter().copied()).collect());
        let block = Need::BLOCK;
        assert_eq!(block.check_granted(&granted(&[])), Ok(()));
        let cache = "the session does not grant request-head=rw,request-body=rw";
        assert_eq!(Need::CACHE.check_granted(&granted(&[])), Err(cache.to_owned()));
        let hidden = granted(&[(Purpose::Trailers, Right::None)]);
        assert_eq!(block.check_granted(&hidden), Ok(()));
        assert_eq!(Need::CACHE.check_granted(&hidden), Err(format!("{cache},trailers=r")));
        // Fields in contexts of their own, and everything in one context.
        let per_header = granted(&[(Purpose::Fields, Right::Read)]);
        assert!(block.check_granted(&per_header).is_err());
        let one = Granted(vec![(Purpose::Other, Right::Write)]);
        for need in [&block, &Need::ADD_RESPONSE] {
            let error = need.check_granted(&one).unwrap_err();
            assert_eq!(error, "context 1 is no whole head or body, which takes `--strategy four`");
        }
    }
}

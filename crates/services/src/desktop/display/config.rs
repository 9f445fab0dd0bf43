//! The options of the type `display`.

use std::path::PathBuf;

use levada_service::definition_options;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::desktop::screen::{self, Choice};
use crate::desktop::xpra::Look;

/// How pictures may be compressed. Those of `png` and `rgb` arrive exactly as they were drawn.
const ENCODINGS: [&str; 5] = ["png", "rgb", "auto", "jpeg", "webp"];
/// The widest border, in pixels.
const MAX_BORDER: u8 = 20;

definition_options! {
    /// The options of a definition of type `display`.
    pub(crate) struct Options {
        #[serde(default, deserialize_with = "screen::display")]
        display: Option<String>,
        #[serde(default, deserialize_with = "screen::authority")]
        xauthority: Option<PathBuf>,
        #[serde(default)]
        clipboard: bool,
        #[serde(default, deserialize_with = "border")]
        border: Option<String>,
        #[serde(default = "png", deserialize_with = "encoding")]
        encoding: String,
    }
}

impl Options {
    /// The screen, and how windows look and what they may do there.
    pub(super) fn split(self) -> (Choice, Look) {
        let Self { display, xauthority: authority, clipboard, border, encoding, .. } = self;
        (Choice { display, authority }, Look { title: String::new(), border, clipboard, encoding })
    }
}

/// A color by its name or as `#rrggbb`, a comma, and a width: nothing that could be another option.
fn border<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let fits = text.split_once(',').is_some_and(|(color, width)| {
        let width = width.parse().is_ok_and(|width: u8| (1..=MAX_BORDER).contains(&width));
        width && is_color(color)
    });
    if !fits {
        return Err(D::Error::custom(format_args!(
            "a border is a color and a width of 1 to {MAX_BORDER} pixels, such as \"red,4\""
        )));
    }
    Ok(Some(text))
}

fn is_color(text: &str) -> bool {
    match text.strip_prefix('#') {
        Some(digits) => digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic()),
    }
}

fn encoding<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if !ENCODINGS.contains(&text.as_str()) {
        let all = ENCODINGS.join(", ");
        return Err(D::Error::custom(format_args!("the encodings are {all}")));
    }
    Ok(text)
}

fn png() -> String {
    "png".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        toml::from_str::<Options>(text).err().unwrap().message().to_owned()
    }

    #[test]
    fn nothing_is_allowed_unless_it_is_written_down() {
        let (choice, look) = toml::from_str::<Options>("").unwrap().split();
        assert!(choice.display.is_none() && choice.authority.is_none());
        assert!(!look.clipboard && look.border.is_none());
        assert_eq!(look.encoding, "png");
        let text = "display = ':3'\nxauthority = '/run/x'\nclipboard = true\n\
                    border = '#ff0000,4'\nencoding = 'auto'";
        let (choice, look) = toml::from_str::<Options>(text).unwrap().split();
        assert_eq!(choice.display.as_deref(), Some(":3"));
        assert!(look.clipboard && look.border.as_deref() == Some("#ff0000,4"));
    }

    #[test]
    fn wrong_options_are_refused() {
        assert!(wrong("display = '--help'").contains("X server"));
        assert!(wrong("xauthority = 'a'").contains("absolute"));
        assert!(wrong("encoding = 'gif'").contains("png"));
        for border in ["red", "red,0", "red,21", "red,4,5", "#12,4", ",4", "re d,4"] {
            assert!(wrong(&format!("border = '{border}'")).contains("color"), "{border}");
        }
        assert!(wrong("sound = true").contains("sound"));
    }
}

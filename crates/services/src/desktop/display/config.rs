//! The options of the type `display`.

use std::path::PathBuf;

use levada_service::definition_options;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::desktop::screen::{self, ScreenOptions};
use crate::desktop::xpra::WindowOptions;

/// Encodings of pictures. `png` and `rgb` are lossless.
const ENCODINGS: [&str; 5] = ["png", "rgb", "auto", "jpeg", "webp"];
/// Maximum width of a border, in pixels.
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
    /// The options of the screen, and those of windows.
    pub(super) fn split(self) -> (ScreenOptions, WindowOptions) {
        let Self { display, xauthority: authority, clipboard, border, encoding, .. } = self;
        let windows = WindowOptions { title: String::new(), border, clipboard, encoding };
        (ScreenOptions { display, authority }, windows)
    }
}

/// A color by its name or as `#rrggbb`, a comma, and a width. Other characters are refused, because
/// the text becomes an argument of xpra.
fn border<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let valid = text.split_once(',').is_some_and(|(color, width)| {
        let width = width.parse().is_ok_and(|width: u8| (1..=MAX_BORDER).contains(&width));
        width && is_color(color)
    });
    if !valid {
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
        return Err(D::Error::custom(format_args!("the encoding must be one of {all}")));
    }
    Ok(text)
}

fn png() -> String {
    "png".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        toml::from_str::<Options>(text).err().unwrap().message().to_owned()
    }

    #[test]
    fn optional_rights_are_off_by_default() {
        let (screen, windows) = toml::from_str::<Options>("").unwrap().split();
        assert!(screen.display.is_none() && screen.authority.is_none());
        assert!(!windows.clipboard && windows.border.is_none());
        assert_eq!(windows.encoding, "png");
        let text = "display = ':3'\nxauthority = '/run/x'\nclipboard = true\n\
                    border = '#ff0000,4'\nencoding = 'auto'";
        let (screen, windows) = toml::from_str::<Options>(text).unwrap().split();
        assert_eq!(screen.display.as_deref(), Some(":3"));
        assert!(windows.clipboard && windows.border.as_deref() == Some("#ff0000,4"));
    }

    #[test]
    fn rejects_invalid_options() {
        assert!(error("display = '--help'").contains("X server"));
        assert!(error("xauthority = 'a'").contains("absolute"));
        assert!(error("encoding = 'gif'").contains("png"));
        for border in ["red", "red,0", "red,21", "red,4,5", "#12,4", ",4", "re d,4"] {
            assert!(error(&format!("border = '{border}'")).contains("color"), "{border}");
        }
        assert!(error("sound = true").contains("sound"));
    }
}

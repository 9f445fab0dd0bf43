//! Builds HTML. Only markup that is a literal in this program is inserted unescaped.

use levada_core::printable::is_printable;

/// A piece of HTML.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends escaped text, for an element or a quoted attribute.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c if is_shown(c) => self.0.push(c),
                _ => self.0.push('\u{fffd}'),
            }
        }
        self
    }
}

/// Excludes control characters, and those that change the text direction, with which one text can
/// imitate another.
fn is_shown(c: char) -> bool {
    matches!(c, '\n' | '\t') || is_printable(c)
}

/// A complete HTML document.
pub(super) fn document(title: &str, content: &Html) -> String {
    let mut page = Html::default();
    page.raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>")
        .text(title);
    page.raw(concat!(
        " – Levada</title><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
        "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"/icon.svg\">",
        "<link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/page.js\" defer></script></head><body>",
        "<header><a href=\"/\">Levada</a></header><main>"
    ));
    page.0.push_str(&content.0);
    page.raw("</main><footer><a href=\"/v1/openapi.json\">The API</a></footer></body></html>\n");
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_any_text() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let mut html = Html::default();
            html.text(text);
            assert!(!html.0.contains(['<', '>', '"', '\'', '\0', '\u{202e}']), "{}", html.0);
            let rest = html.0.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "");
            assert!(!rest.replace("&quot;", "").replace("&#39;", "").contains('&'));
        });
    }

    #[test]
    fn a_page_has_its_title_and_content() {
        let mut content = Html::default();
        content.raw("<p>").text("a < b").raw("</p>");
        let page = document("<x>", &content);
        assert!(
            page.contains("<title>&lt;x&gt; – Levada</title>") && page.contains("<p>a &lt; b</p>")
        );
    }
}

//! A bounds-checked reader for untrusted bytes, and the encoding of the hints (service name,
//! addresses) at the end of text forms.

use levada_core::printable::is_printable;

/// Longest service name and longest address, in bytes; an empty one is refused.
pub(crate) const MAX_NAME: usize = 255;
/// Most addresses in one text.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// The unread rest of a byte string. Methods return `None` instead of reading past the end.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    /// Reads one of `labels`, none of which is a prefix of another, and returns its index.
    pub(crate) fn one_of<const N: usize>(&mut self, labels: [&[u8]; N]) -> Option<usize> {
        let found = labels.iter().position(|label| self.0.starts_with(label))?;
        self.0 = &self.0[labels[found].len()..];
        Some(found)
    }

    /// Length 1 ‖ UTF-8.
    pub(crate) fn name(&mut self) -> Option<String> {
        let length = self.byte()?;
        let text = std::str::from_utf8(self.slice(usize::from(length))?).ok()?;
        is_name(text).then(|| text.to_owned())
    }

    /// Count 1 ‖ that many names.
    pub(crate) fn addresses(&mut self) -> Option<Vec<String>> {
        let count = usize::from(self.byte()?);
        if count > MAX_ADDRESSES {
            return None;
        }
        (0..count).map(|_| self.name()).collect()
    }

    /// `Some` only if nothing is left.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Whether `text` may be a name or address in a text form. Characters that are not printable are
/// refused, because the text is shown on terminals.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_printable)
}

/// Whether `addresses` may be in a text form.
pub(crate) fn are_addresses(addresses: &[String]) -> bool {
    addresses.len() <= MAX_ADDRESSES && addresses.iter().all(|address| is_name(address))
}

/// Encodes for [`Reader::name`]; the caller has checked [`is_name`].
pub(crate) fn append_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(name.as_bytes());
}

/// Encodes for [`Reader::addresses`]; the caller has checked [`are_addresses`].
pub(crate) fn append_addresses(bytes: &mut Vec<u8>, addresses: &[String]) {
    bytes.push(u8::try_from(addresses.len()).unwrap_or(u8::MAX));
    for address in addresses {
        append_name(bytes, address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_never_read_past_the_end() {
        let mut reader = Reader::new(&[0, 0, 1]);
        assert_eq!(reader.u32(), None);
        assert_eq!(reader.slice(4), None);
        assert_eq!(reader.slice(usize::MAX), None);
        assert_eq!(reader.array(), Some([0, 0]));
        assert_eq!(reader.byte(), Some(1));
        assert_eq!(reader.byte(), None);
        assert_eq!(reader.end(), Some(()));
    }

    #[test]
    fn names_have_bounds_and_no_control_characters() {
        assert!(is_name("ädress:1") && is_name(&"a".repeat(255)));
        for wrong in ["", "a\x1b[2J", "a\n", "\u{9b}1m", "a\u{202e}", &"a".repeat(256)] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
    }
}

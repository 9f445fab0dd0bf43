//! A session's parameters: sorted pairs of a name and a value, with a canonical encoding.

use std::collections::BTreeMap;
use thiserror::Error;

/// Why parameters were refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ParamsError {
    /// More bytes than [`Params::MAX_LEN`].
    #[error("the parameters are longer than {} bytes", Params::MAX_LEN)]
    TooLong,
    /// Not the canonical encoding: unsorted, repeated, truncated, or not UTF-8.
    #[error("the parameters are malformed")]
    Malformed,
    /// The parameter already has a value.
    #[error("the parameter `{0}` is already set and cannot be changed")]
    AlreadySet(String),
}

/// Named byte strings, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(BTreeMap<String, Vec<u8>>);

impl Params {
    /// The longest encoding of the pairs of one link, in bytes.
    pub const MAX_LEN: usize = 32 * 1024;
    /// The key of the service's positional arguments; its value is made by [`encode_list`].
    pub const ARGS: &'static str = "args";
    /// The key of the session's framing, a [`crate::Framing`] as text.
    pub const FRAMING: &'static str = "framing";
    /// The key of the BLAKE3 hash of a share's content, 32 bytes.
    pub const ROOT: &'static str = "root";
    /// The key of a share's number at its node, 8 bytes, big-endian.
    pub const SHARE: &'static str = "share";
    /// The key of random bytes that make otherwise equal links differ. It is not passed to
    /// services.
    pub const NONCE: &'static str = "nonce";

    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value under `key`.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// [`ParamsError::AlreadySet`] if `key` has a value, even the same one.
    pub fn add(&mut self, key: &str, value: Vec<u8>) -> Result<(), ParamsError> {
        if self.0.contains_key(key) {
            return Err(ParamsError::AlreadySet(key.to_owned()));
        }
        self.0.insert(key.to_owned(), value);
        Ok(())
    }

    /// Adds every pair of `other`.
    ///
    /// # Errors
    /// [`ParamsError::AlreadySet`] names the first key that both have; `self` is then unchanged.
    pub fn merge(&mut self, other: &Params) -> Result<(), ParamsError> {
        if let Some(key) = other.0.keys().find(|key| self.0.contains_key(*key)) {
            return Err(ParamsError::AlreadySet(key.clone()));
        }
        self.0.extend(other.0.clone());
        Ok(())
    }

    /// These parameters without `key`.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.0.remove(key);
        self
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_slice()))
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The positional arguments: `None` if the pair is not set.
    ///
    /// # Errors
    /// [`ParamsError::Malformed`] if the value is not a list of UTF-8 strings.
    pub fn args(&self) -> Result<Option<Vec<String>>, ParamsError> {
        self.value(Self::ARGS).map(decode_list).transpose()
    }

    /// Encodes the pairs, sorted by key: key length 4 ‖ key ‖ value length 4 ‖ value each,
    /// big-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in &self.0 {
            append(&mut bytes, key.as_bytes());
            append(&mut bytes, value);
        }
        bytes
    }

    /// Decodes the output of [`Self::encode`]. Keys must be strictly ascending, so the encoding is
    /// canonical.
    ///
    /// # Errors
    /// [`ParamsError::TooLong`] or [`ParamsError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ParamsError> {
        if bytes.len() > Self::MAX_LEN {
            return Err(ParamsError::TooLong);
        }
        let mut pairs = BTreeMap::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let key = take_text(&mut rest)?;
            let value = take(&mut rest)?.to_vec();
            if pairs.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(ParamsError::Malformed);
            }
            pairs.insert(key, value);
        }
        Ok(Self(pairs))
    }
}

/// Encodes strings in order, each with its length: the value of [`Params::ARGS`].
pub fn encode_list<S: AsRef<str>>(items: &[S]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        append(&mut bytes, item.as_ref().as_bytes());
    }
    bytes
}

/// Decodes the output of [`encode_list`].
///
/// # Errors
/// [`ParamsError::Malformed`] if it is truncated or not UTF-8.
pub fn decode_list(bytes: &[u8]) -> Result<Vec<String>, ParamsError> {
    let mut items = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        items.push(take_text(&mut rest)?);
    }
    Ok(items)
}

fn append(bytes: &mut Vec<u8>, item: &[u8]) {
    let length = u32::try_from(item.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(item);
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ParamsError> {
    let (length, tail) = rest.split_first_chunk::<4>().ok_or(ParamsError::Malformed)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    let (item, tail) = tail.split_at_checked(length).ok_or(ParamsError::Malformed)?;
    *rest = tail;
    Ok(item)
}

fn take_text(rest: &mut &[u8]) -> Result<String, ParamsError> {
    let item = take(rest)?;
    String::from_utf8(item.to_vec()).map_err(|_| ParamsError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_injective() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(params) = Params::decode(bytes) {
                assert_eq!(&params.encode(), bytes);
            }
            if let Ok(list) = decode_list(bytes) {
                assert_eq!(&encode_list(&list), bytes);
            }
        });
    }

    #[test]
    fn pairs_are_sorted_and_set_values_cannot_be_replaced() {
        let mut params = Params::new();
        params.add("b", vec![2]).unwrap();
        params.add("a", vec![1]).unwrap();
        assert_eq!(params.add("a", vec![1]), Err(ParamsError::AlreadySet("a".into())));
        let encoded = params.encode();
        assert_eq!(Params::decode(&encoded).unwrap(), params);
        let swapped = [&encoded[10..], &encoded[..10]].concat();
        assert_eq!(Params::decode(&swapped), Err(ParamsError::Malformed));
        let mut other = Params::new();
        other.add("c", vec![3]).unwrap();
        other.add("b", vec![2]).unwrap();
        assert_eq!(params.merge(&other), Err(ParamsError::AlreadySet("b".into())));
        assert!(params.value("c").is_none());
        assert!(params.clone().without("a").value("a").is_none());
        assert_eq!(params.clone().without("c"), params);
    }
}

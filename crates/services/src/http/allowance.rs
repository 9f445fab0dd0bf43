//! The most that a middlebox may be granted.

use levada_session::contexts::{Purpose, Right};

use super::layout::{FIELDS, FOUR, LayoutError, Strategy, TRAILERS, context_names, parse_grants};

/// The most that a middlebox may be granted, for every strategy.
#[derive(Clone, Debug, Default)]
pub struct Allowance(Vec<(&'static str, Right)>);

impl Allowance {
    /// Reads an allowance such as `request-head=r,cookie=rw`.
    ///
    /// # Errors
    /// [`LayoutError`], with what cannot be read.
    pub fn new(text: &str) -> Result<Self, LayoutError> {
        let mut names: Vec<&'static str> = Vec::new();
        for strategy in [Strategy::PerHeader, Strategy::One] {
            names.extend(context_names(strategy).iter().map(|(name, _)| *name));
        }
        names.push(TRAILERS);
        Ok(Self(parse_grants(text, &names)?))
    }

    /// The most for the context `name`. What is allowed for both heads is allowed for a context of some of their fields; what is
    /// allowed for both heads and bodies, for a context of all of them.
    pub fn most(&self, name: &str) -> Right {
        let given = |name: &str| {
            let found = self.0.iter().rev().find(|(known, _)| *known == name);
            found.map_or(Right::None, |(_, right)| *right)
        };
        let of_all = |names: &[&(&str, Purpose)]| {
            names.iter().map(|(name, _)| given(name)).min().unwrap_or_default()
        };
        let parts = match name {
            "exchange" => of_all(&[&FOUR[0], &FOUR[1], &FOUR[2], &FOUR[3]]),
            _ if FIELDS.iter().any(|(known, _)| *known == name) => of_all(&[&FOUR[0], &FOUR[2]]),
            _ => Right::None,
        };
        given(name).max(parts)
    }

    /// The most for each context of a strategy, as grants: `request-head=r,response-head=rw`.
    pub fn grants(&self, strategy: Strategy) -> String {
        let mut names: Vec<&str> = context_names(strategy).iter().map(|(name, _)| *name).collect();
        names.push(TRAILERS);
        let grants = names
            .iter()
            .filter_map(|name| right_text(self.most(name)).map(|right| format!("{name}={right}")));
        grants.collect::<Vec<_>>().join(",")
    }
}

/// `r` or `rw`; None without a right.
pub fn right_text(right: Right) -> Option<&'static str> {
    match right {
        Right::None => None,
        Right::Read => Some("r"),
        Right::Write => Some("rw"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_for_the_whole_is_allowed_for_a_part() {
        let allowance = Allowance::new("request-head=rw,response-head=r,cookie=rw").unwrap();
        assert_eq!(allowance.most("request-head"), Right::Write);
        assert_eq!(allowance.most("user-agent"), Right::Read);
        assert_eq!(allowance.most("cookie"), Right::Write);
        assert_eq!(allowance.most("exchange"), Right::None);
        assert_eq!(allowance.most("trailers"), Right::None);
        assert_eq!(allowance.grants(Strategy::Four), "request-head=rw,response-head=r");
        let all = "request-head=r,request-body=r,response-head=rw,response-body=r";
        assert_eq!(Allowance::new(all).unwrap().grants(Strategy::One), "exchange=r");
        assert!(Allowance::new("heads=r").is_err());
    }
}

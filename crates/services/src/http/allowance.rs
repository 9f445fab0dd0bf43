//! The most that a middlebox may be granted.

use levada_contexts::{Purpose, Right};

use super::layout::{
    FIELDS, FOUR, LayoutError, ONE, Strategy, TRAILERS, context_names, parse_grants,
};

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

    /// The most for the context `name`. What is allowed for both heads is allowed for a context of
    /// some of their fields; what is allowed for both heads and bodies, for a context of all of
    /// them.
    pub fn most(&self, name: &str) -> Right {
        let given = |name: &str| self.given(name);
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

    /// Returns true if `granted` gives, with a strategy, everything that is allowed here. `granted`
    /// has the right in a context by its name.
    pub(super) fn is_covered(&self, strategy: Strategy, granted: impl Fn(&str) -> Right) -> bool {
        self.0.iter().all(|(name, right)| {
            let mut contexts = carriers(name, strategy).into_iter();
            contexts.all(|context| granted(context) >= (*right).min(self.given(name)))
        })
    }

    /// Returns a strategy with which everything that is allowed here can be granted.
    pub(super) fn full_strategy(&self) -> Option<Strategy> {
        let preferred = [Strategy::Four, Strategy::PerHeader, Strategy::One];
        let covers = |strategy: &Strategy| self.is_covered(*strategy, |name| self.most(name));
        preferred.into_iter().find(covers)
    }

    /// What this text allows for the context `name`. The last mention of it counts.
    fn given(&self, name: &str) -> Right {
        let found = self.0.iter().rev().find(|(known, _)| *known == name);
        found.map_or(Right::None, |(_, right)| *right)
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

/// The contexts of a strategy that carry what the context `name` of any strategy carries, without
/// trailers, which a path may lack.
fn carriers(name: &'static str, strategy: Strategy) -> Vec<&'static str> {
    let fields = || FIELDS.iter().map(|(name, _)| *name);
    let is_field = fields().any(|field| field == name);
    let is_head = name == FOUR[0].0 || name == FOUR[2].0;
    match strategy {
        _ if name == TRAILERS => Vec::new(),
        Strategy::One => context_names(strategy).iter().map(|(name, _)| *name).collect(),
        Strategy::Four if is_field => vec![FOUR[0].0, FOUR[2].0],
        Strategy::PerHeader if is_head => [name].into_iter().chain(fields()).collect(),
        Strategy::Four | Strategy::PerHeader if name == ONE[0].0 => {
            context_names(strategy).iter().map(|(name, _)| *name).collect()
        }
        Strategy::Four | Strategy::PerHeader => vec![name],
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

    #[test]
    fn a_strategy_that_hides_something_does_not_cover_an_allowance() {
        let covers = |allowed: &str, strategy: Strategy| {
            let allowance = Allowance::new(allowed).unwrap();
            allowance.is_covered(strategy, |context| allowance.most(context))
        };
        let heads = "request-head=r,response-head=rw";
        let all = "request-head=r,request-body=r,response-head=r,response-body=r";
        for (allowed, covered) in [
            ("", [true, true, true]),
            // Fields of requests are hidden in contexts for both directions.
            ("request-head=r", [false, true, false]),
            ("request-head=r,request-body=rw", [false, true, false]),
            (heads, [false, true, false]),
            ("request-head=r,response-head=r", [false, true, true]),
            ("cookie=r", [false, false, true]),
            (all, [true, true, true]),
            ("exchange=r", [true, false, false]),
            ("trailers=r", [true, true, true]),
        ] {
            assert_eq!(Strategy::ALL.map(|one| covers(allowed, one)), covered, "{allowed}");
        }
        let full = |text: &str| Allowance::new(text).unwrap().full_strategy();
        assert_eq!(full("cookie=r"), Some(Strategy::PerHeader));
        assert_eq!(full("request-head=r,cookie=rw"), None);
        let allowance = Allowance::new(heads).unwrap();
        let granted = |context: &str| allowance.most(context).min(Right::Read);
        assert!(!allowance.is_covered(Strategy::Four, granted));
    }
}

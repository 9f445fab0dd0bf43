//! Notes about rules that have no effect.

use levada_core::{Identity, closest};

use super::lists::Lists;

impl Lists {
    /// A note for each service of a rule that is none of the services `names` of `node`: a rule
    /// that denies a mistyped service denies nothing.
    pub(crate) fn notes(&self, node: &Identity, names: &[&str]) -> Vec<String> {
        let unmatched = self.rules.unmatched(node, names);
        let note = unmatched.map(|(place, services)| {
            if !services.is_at(node) {
                return format!("{place}: the rule names `{services}`, which is another node");
            }
            let name = services.service();
            let meant = closest(name, names.iter().copied());
            let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            format!("{place}: the rule names `{name}`, which is no service of this node{meant}")
        });
        note.collect()
    }
}

//! How an import went: what is printed meanwhile, and at the end.

use std::path::Path;

use levada_catalogue::model::Draft;
use levada_core::wire::catalogue::Cause;
use levada_services::catalogue::{CallerError, Changed};
use serde_json::json;

use crate::failure::{Failure, NO};
use crate::output::{self, plain};

/// Counts what was done, and names what was not.
#[derive(Default)]
pub struct Report {
    /// Nothing is changed: it is said what would be.
    pub dry_run: bool,
    published: u64,
    there: u64,
    /// What cannot be published, and why.
    skipped: Vec<String>,
    /// Published already, with other content.
    changed: Vec<String>,
    /// Published under a version of its own, or given back.
    replaced: Vec<String>,
    yanked: Vec<String>,
    /// Something that was to be published is not.
    is_incomplete: bool,
    /// What the folder has is not known in full, or not published.
    is_unsure: bool,
}

impl Report {
    /// Of an import that has not begun.
    pub fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// Counts one that was to be published: it is, or it alone is to blame.
    pub fn settle(
        &mut self,
        place: &Path,
        draft: &Draft,
        outcome: Result<Changed, CallerError>,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(Changed { is_new: true, .. }) => self.published += 1,
            Ok(Changed { is_new: false, .. }) => self.there(),
            Err(CallerError::Failed { cause: Cause::Conflict, text }) => {
                self.conflict(place, draft, &text);
            }
            Err(CallerError::Failed { cause: Cause::Invalid, text }) => {
                self.fail(&format!("{}: {text}", place.display()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// One that is to be published, in a dry run.
    pub fn would_publish(&mut self) {
        self.published += 1;
    }

    /// One that is published already.
    pub fn there(&mut self) {
        self.there += 1;
    }

    /// One whose number stands for other content.
    pub fn conflict(&mut self, place: &Path, draft: &Draft, text: &str) {
        (self.is_incomplete, self.is_unsure) = (true, true);
        let text = format!("{}@{} ({}): {text}", draft.key, draft.version, place.display());
        output::note(format_args!("changed {}", plain(&text)));
        self.changed.push(text);
    }

    /// What the original left out, too.
    pub fn skip(&mut self, text: &str) {
        output::note(format_args!("skipped {}", plain(text)));
        self.skipped.push(text.to_owned());
    }

    /// What should have been published, and cannot be.
    pub fn lack(&mut self, text: &str) {
        self.is_incomplete = true;
        self.skip(text);
    }

    /// As [`Self::lack`], and it is not known what it was, or that it is published.
    pub fn fail(&mut self, text: &str) {
        self.is_unsure = true;
        self.lack(text);
    }

    /// Whether what the folder has is not known in full, or not published.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// A version that stands in the place of another.
    pub fn replace(&mut self, object: String) {
        self.say("replaced by", "would be replaced by", &object);
        self.replaced.push(object);
    }

    /// A version that is taken back.
    pub fn yank(&mut self, object: String) {
        self.say("took back", "would take back", &object);
        self.yanked.push(object);
    }

    fn say(&self, done: &str, would: &str, object: &str) {
        let what = if self.dry_run { would } else { done };
        output::note(format_args!("{what} {}", plain(object)));
    }

    /// Prints the whole, and gives the exit code.
    pub fn end(&self, is_json: bool) -> Result<u8, Failure> {
        if is_json {
            output::json(json!({
                "dry_run": self.dry_run,
                "published": self.published,
                "there": self.there,
                "skipped": self.skipped,
                "changed": self.changed,
                "replaced": self.replaced,
                "yanked": self.yanked,
            }))?;
        }
        let Self { published, there, .. } = self;
        let counts = [&self.skipped, &self.changed, &self.replaced, &self.yanked].map(Vec::len);
        let [skipped, changed, replaced, yanked] = counts;
        let mut line = format!("published {published}, there already {there}, skipped {skipped}");
        for (count, what) in [(changed, "changed"), (replaced, "replaced"), (yanked, "taken back")]
        {
            if count > 0 {
                line.push_str(&format!(", {what} {count}"));
            }
        }
        output::note(if self.dry_run { format!("would be: {line}") } else { line });
        if changed > 0 {
            output::note("note: --replace publishes what has changed under a version of its own");
        }
        Ok(if self.is_incomplete { NO } else { 0 })
    }
}

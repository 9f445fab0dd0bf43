//! The report of an import: the lines printed meanwhile, and the summary.

use std::path::Path;

use levada_catalogue::model::Draft;
use levada_core::wire::catalogue::Cause;
use levada_services::catalogue::{CatalogueError, ChangeOutcome};
use serde_json::json;

use crate::failure::{Failure, NO};
use crate::output::{self, plain};

/// Counts of successes, and a line for each other outcome.
#[derive(Default)]
pub struct Report {
    /// Whether nothing is changed, and only printed what would change.
    pub dry_run: bool,
    published: u64,
    unchanged: u64,
    /// Objects that cannot be published, and why.
    skipped: Vec<String>,
    /// Versions that exist with other content.
    changed: Vec<String>,
    /// Versions published as VERSION+N, or whose yank was reverted.
    replaced: Vec<String>,
    yanked: Vec<String>,
    /// Whether a version that should be published is not.
    is_incomplete: bool,
    /// Whether an object of the folder is unknown, or could not be published.
    is_unsure: bool,
}

impl Report {
    /// An empty report.
    pub fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// Counts the outcome of publishing a version.
    ///
    /// # Errors
    /// [`Failure`] if the reason is not this version.
    pub fn settle(
        &mut self,
        source: &Path,
        draft: &Draft,
        outcome: Result<ChangeOutcome, CatalogueError>,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(ChangeOutcome { is_new: true, .. }) => self.published += 1,
            Ok(ChangeOutcome { is_new: false, .. }) => self.unchanged(),
            Err(CatalogueError::Failed { cause: Cause::Conflict, text }) => {
                self.conflict(source, draft, &text);
            }
            Err(CatalogueError::Failed { cause: Cause::Invalid, text }) => {
                self.fail(&format!("{}: {text}", source.display()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Counts a version that would be published, in a dry run.
    pub fn would_publish(&mut self) {
        self.published += 1;
    }

    /// Counts a version that is already published.
    pub fn unchanged(&mut self) {
        self.unchanged += 1;
    }

    /// Reports a version that is published with other content.
    pub fn conflict(&mut self, source: &Path, draft: &Draft, text: &str) {
        (self.is_incomplete, self.is_unsure) = (true, true);
        let text = format!("{}@{} ({}): {text}", draft.key, draft.version, source.display());
        output::note(format_args!("changed {}", plain(&text)));
        self.changed.push(text);
    }

    /// Reports an object that the reTHINK catalogue ignored too.
    pub fn skip(&mut self, text: &str) {
        output::note(format_args!("skipped {}", plain(text)));
        self.skipped.push(text.to_owned());
    }

    /// Reports a version that should have been published, and cannot be.
    pub fn missing(&mut self, text: &str) {
        self.is_incomplete = true;
        self.skip(text);
    }

    /// As [`Self::missing`], for an object that is unknown, or may be published.
    pub fn fail(&mut self, text: &str) {
        self.is_unsure = true;
        self.missing(text);
    }

    /// Whether an object of the folder is unknown, or could not be published. Then nothing must be
    /// yanked.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// Reports a version that replaces another.
    pub fn replace(&mut self, object: String) {
        self.print("replaced by", "would be replaced by", &object);
        self.replaced.push(object);
    }

    /// Reports a version that is yanked.
    pub fn yank(&mut self, object: String) {
        self.print("yanked", "would yank", &object);
        self.yanked.push(object);
    }

    fn print(&self, done: &str, would: &str, object: &str) {
        let what = if self.dry_run { would } else { done };
        output::note(format_args!("{what} {}", plain(object)));
    }

    /// Prints the summary, and returns the exit code.
    pub fn end(&self, is_json: bool) -> Result<u8, Failure> {
        if is_json {
            output::json(json!({
                "dry_run": self.dry_run,
                "published": self.published,
                "there": self.unchanged,
                "skipped": self.skipped,
                "changed": self.changed,
                "replaced": self.replaced,
                "yanked": self.yanked,
            }))?;
        }
        let Self { published, unchanged, .. } = self;
        let counts = [&self.skipped, &self.changed, &self.replaced, &self.yanked].map(Vec::len);
        let [skipped, changed, replaced, yanked] = counts;
        let mut line = format!("published {published}, unchanged {unchanged}, skipped {skipped}");
        for (count, what) in [(changed, "changed"), (replaced, "replaced"), (yanked, "yanked")] {
            if count > 0 {
                line.push_str(&format!(", {what} {count}"));
            }
        }
        output::note(if self.dry_run { format!("would be: {line}") } else { line });
        if changed > 0 {
            output::note("note: --replace publishes changed content as VERSION+N");
        }
        Ok(if self.is_incomplete { NO } else { 0 })
    }
}

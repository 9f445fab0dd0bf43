//! The source of events: a local screen, or lines of text.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use levada_services::desktop::input::{Capture, Captured, Combination, Event, Script, Step};
use levada_services::desktop::screen::Screen;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::failure::Failure;
use crate::output::note;

/// Steps that are read ahead.
const AHEAD: usize = 64;
/// More than the longest valid line of a script: a longer line is cut here, and then rejected for
/// its length.
const MAX_LINE: u64 = 8192;

/// The options that name the source.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The keys that release keyboard and pointer
    #[arg(long, value_name = "KEYS", default_value_t = Combination::default())]
    release: Combination,

    /// Read events from a file, or from standard input (-), instead of this screen
    #[arg(long, value_name = "FILE", conflicts_with = "release")]
    events: Option<PathBuf>,

    /// The local screen whose keyboard and pointer are used, such as :0; DISPLAY if not given
    #[arg(long, value_name = "DISPLAY", conflicts_with = "events")]
    display: Option<String>,
}

impl Options {
    /// Whether the events are lines of standard input.
    pub(super) fn reads_standard_input(&self) -> bool {
        self.events.as_deref().is_some_and(|file| file.as_os_str() == "-")
    }
}

/// A source of events.
pub(super) enum Source {
    /// Keyboard and pointer of a screen; dropping it releases them.
    Screen(Capture),
    /// A file of lines.
    Lines(Lines),
}

/// Events of one run, across connections to the node.
#[derive(Default)]
pub(super) struct Events {
    /// `None` while keyboard and pointer work here.
    pub(super) source: Option<Source>,
    /// The source has been opened, and has not ended.
    pub(super) are_open: bool,
}

/// Lines that a thread reads. It may be blocked in a read when the process exits.
pub(super) struct Lines {
    steps: mpsc::Receiver<Result<Step, Failure>>,
    /// The end of the current pause.
    until: Option<Instant>,
}

impl Source {
    /// Opens the source that `options` name; for a screen, prints the release keys.
    ///
    /// # Errors
    /// [`Failure`] 120 if it cannot be used.
    pub(super) async fn open(options: &Options) -> Result<Self, Failure> {
        if let Some(file) = &options.events {
            return Ok(Self::Lines(Lines::open(file)?));
        }
        let named = options.display.clone().map(|display| Screen::new(display, None));
        let screen = named.or_else(Screen::from_environment).ok_or_else(|| {
            Failure::local(
                "there is no screen here: set DISPLAY, name one with --display, or use --events",
            )
        })?;
        let combination = options.release.clone();
        let started = tokio::task::spawn_blocking(move || Capture::start(&screen, combination));
        let capture = started.await.map_err(Failure::local)?.map_err(Failure::local)?;
        let keys = &options.release;
        note(format_args!(
            "keyboard and pointer now control the other screen; {keys} releases them"
        ));
        Ok(Self::Screen(capture))
    }

    /// The next event; `None` at the end. Cancel-safe: dropping the future loses no event.
    ///
    /// # Errors
    /// [`Failure`] 120 if the screen is gone, or a line is invalid.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        match self {
            Self::Screen(capture) => match capture.next().await.map_err(Failure::local)? {
                Captured::Event(event) => Ok(Some(event)),
                Captured::Released => Ok(None),
            },
            Self::Lines(lines) => lines.next().await,
        }
    }
}

impl Lines {
    fn open(path: &Path) -> Result<Self, Failure> {
        let (name, input): (String, Box<dyn Read + Send>) = if path.as_os_str() == "-" {
            ("standard input".to_owned(), Box::new(io::stdin()))
        } else {
            let file = File::open(path).map_err(Failure::file("read the events from", path))?;
            (path.display().to_string(), Box::new(file))
        };
        let (sender, steps) = mpsc::channel(AHEAD);
        std::thread::spawn(move || read(BufReader::new(input), &name, &sender));
        Ok(Self { steps, until: None })
    }

    async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(end) = self.until {
                sleep_until(end).await;
                self.until = None;
            }
            match self.steps.recv().await.transpose()? {
                Some(Step::Event(event)) => return Ok(Some(event)),
                Some(Step::Wait(time)) => self.until = Some(Instant::now() + time),
                None => return Ok(None),
            }
        }
    }
}

/// Reads lines until their end, an invalid line, or the end of the receiver.
fn read(mut input: impl BufRead, name: &str, steps: &mpsc::Sender<Result<Step, Failure>>) {
    let mut script = Script::default();
    for number in 1_u64.. {
        let mut line = Vec::new();
        let result = match (&mut input).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {
                script.line(&String::from_utf8_lossy(&line)).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let sent = match result {
            Ok(read) => read.into_iter().try_for_each(|step| steps.blocking_send(Ok(step))),
            Err(text) => {
                let failure = Failure::local(format_args!("{name}: line {number}: {text}"));
                let _ = steps.blocking_send(Err(failure));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &'static str) -> (Vec<Event>, Option<String>) {
        let (sender, steps) = mpsc::channel(AHEAD);
        std::thread::spawn(move || read(text.as_bytes(), "script", &sender));
        let mut lines = Lines { steps, until: None };
        let mut events = Vec::new();
        loop {
            match lines.next().await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return (events, None),
                Err(failure) => return (events, Some(format!("{failure:?}"))),
            }
        }
    }

    #[tokio::test]
    async fn lines_become_events_in_order() {
        let (events, failure) = all("# two\nmove 1 2\nwait 1ms\n\nclick 1").await;
        let button = |down| Event::Button { button: 1, down };
        assert_eq!(events, [Event::Motion { dx: 1, dy: 2 }, button(true), button(false)]);
        assert_eq!(failure, None);
    }

    #[tokio::test]
    async fn an_error_names_the_line() {
        let (events, failure) = all("move 1 2\n\njump\nmove 3 4\n").await;
        assert_eq!(events.len(), 1);
        let failure = failure.unwrap();
        assert!(failure.contains("script: line 3") && failure.contains("jump"), "{failure}");
    }
}

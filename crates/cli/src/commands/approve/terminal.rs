//! Questions on the terminal, one at a time.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::failure::{Failure, USAGE};
use crate::output;

/// Questions that wait to be shown.
const QUEUE: usize = 256;
/// Lines that were typed and not looked at.
const LINES: usize = 16;
/// The longest line, in bytes.
const MAX_LINE: u64 = 4096;

/// Somebody who can be asked.
pub struct Terminal(Sender<Prompt>);

struct Prompt {
    text: String,
    until: Instant,
    answer: oneshot::Sender<bool>,
}

impl Terminal {
    /// The terminal of this process.
    ///
    /// # Errors
    /// [`Failure`] 2 if there is none.
    pub fn open() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            let text = "there is no terminal to ask on: decide by --policy FILE, without `ask`";
            return Err(Failure::new(USAGE, text));
        }
        let (typed, lines) = channel(LINES);
        // It may be waiting for a line when the process exits.
        std::thread::spawn(move || read_lines(&typed));
        let (prompts, queue) = channel(QUEUE);
        tokio::spawn(ask_all(queue, lines));
        Ok(Self(prompts))
    }

    /// Shows a question when those before it are done, and waits until `wait` is over. If this is
    /// dropped, the question is withdrawn.
    pub async fn ask(&self, text: String, wait: Duration) -> bool {
        let (answer, said) = oneshot::channel();
        let prompt = Prompt { text, until: Instant::now() + wait, answer };
        self.0.send(prompt).await.is_ok() && said.await.unwrap_or(false)
    }
}

async fn ask_all(mut queue: Receiver<Prompt>, mut lines: Receiver<String>) {
    // Our own numbers: those of the service could be chosen to mislead.
    let mut number = 0;
    while let Some(mut prompt) = queue.recv().await {
        if prompt.answer.is_closed() || Instant::now() >= prompt.until {
            continue;
        }
        number += 1;
        // What was typed before the question was there was not meant for it.
        while lines.try_recv().is_ok() {}
        output::note(format_args!("\nQuestion {number}\n{}", prompt.text.trim_end()));
        let said = hear(&mut prompt, number, &mut lines).await;
        // Whoever asked may have gone in this moment.
        let _ = prompt.answer.send(said);
    }
}

/// Waits for an answer to this very question: somebody who types while one question makes way for
/// the next must not allow what he has not read.
async fn hear(prompt: &mut Prompt, number: u64, lines: &mut Receiver<String>) -> bool {
    loop {
        let _ =
            write!(io::stderr().lock(), "Type `yes {number}` to allow it; anything else refuses: ");
        select! {
            line = lines.recv() => match judge(line.as_deref().unwrap_or_default(), number) {
                Answer::Yes => return true,
                Answer::No => return false,
                Answer::Other => output::note("That was the number of another question."),
            },
            () = prompt.answer.closed() => {
                output::note(format_args!("\nQuestion {number} was withdrawn."));
                return false;
            }
            () = sleep_until(prompt.until) => {
                output::note(format_args!("\nNobody answered question {number} in time."));
                return false;
            }
        }
    }
}

#[derive(Debug, PartialEq)]
enum Answer {
    Yes,
    No,
    /// Yes to another question.
    Other,
}

fn judge(line: &str, number: u64) -> Answer {
    match line.trim().strip_prefix("yes ").map(|rest| rest.trim().parse::<u64>()) {
        Some(Ok(meant)) if meant == number => Answer::Yes,
        Some(Ok(_)) => Answer::Other,
        _ => Answer::No,
    }
}

fn read_lines(typed: &Sender<String>) {
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            // Nobody types any more: every question is refused from now on.
            Ok(0) | Err(_) => return,
        }
        if typed.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_with_its_number_allows() {
        assert_eq!(judge("yes 7\n", 7), Answer::Yes);
        assert_eq!(judge("  yes  7 \r\n", 7), Answer::Yes);
        assert_eq!(judge("yes 6", 7), Answer::Other);
        for no in ["", "\n", "y", "yes", "yes7", "YES 7", "yes seven", "7", "no 7", "yes 7 8"] {
            assert_eq!(judge(no, 7), Answer::No, "{no:?}");
        }
    }

    /// What is heard on the question `number` when these lines are typed and nothing comes after them.
    async fn heard(typed: &[&str], number: u64, wait: Duration) -> bool {
        let (sender, mut lines) = channel(LINES);
        for line in typed {
            sender.send((*line).to_owned()).await.unwrap();
        }
        let (answer, _said) = oneshot::channel();
        let until = Instant::now() + wait;
        hear(&mut Prompt { text: String::new(), until, answer }, number, &mut lines).await
    }

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_yes_to_another_question_is_passed_over() {
        assert!(heard(&["yes 6", "yes 7"], 7, LONG).await);
        assert!(!heard(&["yes 6", "no", "yes 7"], 7, LONG).await);
        assert!(!heard(&[""], 7, LONG).await);
        assert!(!heard(&["yes 6"], 7, SHORT).await);
        assert!(!heard(&[], 7, SHORT).await);
    }

    #[tokio::test]
    async fn a_question_that_is_withdrawn_is_not_waited_for() {
        let (_sender, mut lines) = channel(LINES);
        let (answer, said) = oneshot::channel();
        drop(said);
        let mut prompt = Prompt { text: String::new(), until: Instant::now() + LONG, answer };
        assert!(!hear(&mut prompt, 1, &mut lines).await);
    }

    #[tokio::test]
    async fn what_was_typed_before_a_question_is_no_answer_to_it() {
        let (typed, lines) = channel(LINES);
        let (prompts, queue) = channel(QUEUE);
        let terminal = Terminal(prompts);
        typed.send("yes 1".to_owned()).await.unwrap();
        tokio::spawn(ask_all(queue, lines));
        assert!(!terminal.ask("first".to_owned(), SHORT).await);
        // The next one has the next number. It is typed until the question is there.
        let second = terminal.ask("second".to_owned(), LONG);
        tokio::pin!(second);
        let said = loop {
            typed.send("yes 2".to_owned()).await.unwrap();
            if let Ok(said) = tokio::time::timeout(SHORT, &mut second).await {
                break said;
            }
        };
        assert!(said);
        // Nobody types any more.
        drop(typed);
        assert!(!terminal.ask("third".to_owned(), LONG).await);
    }
}

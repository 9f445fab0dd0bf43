//! Questions on the terminal, one at a time.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::failure::{Failure, USAGE};
use crate::output;

/// Maximum number of questions that wait to be shown.
const QUEUE: usize = 256;
/// Maximum number of typed lines that are not read yet.
const LINES: usize = 16;
/// The longest line, in bytes.
const MAX_LINE: u64 = 4096;

/// Asks questions on the terminal.
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
        // The thread may be blocked in a read when the process exits.
        std::thread::spawn(move || read_lines(&typed));
        let (prompts, queue) = channel(QUEUE);
        tokio::spawn(ask_all(queue, lines));
        Ok(Self(prompts))
    }

    /// Shows a question after those before it, and waits for the answer for at most `wait`.
    /// Dropping the future withdraws the question.
    pub async fn ask(&self, text: String, wait: Duration) -> bool {
        let (answer, answered) = oneshot::channel();
        let prompt = Prompt { text, until: Instant::now() + wait, answer };
        self.0.send(prompt).await.is_ok() && answered.await.unwrap_or(false)
    }
}

async fn ask_all(mut queue: Receiver<Prompt>, mut lines: Receiver<String>) {
    // Numbered here: the service could choose misleading numbers.
    let mut number = 0;
    while let Some(mut prompt) = queue.recv().await {
        if prompt.answer.is_closed() || Instant::now() >= prompt.until {
            continue;
        }
        number += 1;
        // Lines that were typed before the question was shown do not answer it.
        while lines.try_recv().is_ok() {}
        output::note(format_args!("\nQuestion {number}\n{}", prompt.text.trim_end()));
        let allowed = read_answer(&mut prompt, number, &mut lines).await;
        // Fails if the question was withdrawn just now.
        let _ = prompt.answer.send(allowed);
    }
}

/// Waits for an answer with the number of this question: a line typed while one question replaces
/// another must not allow a question that was not read.
async fn read_answer(prompt: &mut Prompt, number: u64, lines: &mut Receiver<String>) -> bool {
    loop {
        let _ =
            write!(io::stderr().lock(), "Type `yes {number}` to allow it; anything else refuses: ");
        select! {
            line = lines.recv() => match parse(line.as_deref().unwrap_or_default(), number) {
                Answer::Yes => return true,
                Answer::No => return false,
                Answer::Other => output::note("That was the number of another question."),
            },
            () = prompt.answer.closed() => {
                output::note(format_args!("\nQuestion {number} was withdrawn."));
                return false;
            }
            () = sleep_until(prompt.until) => {
                output::note(format_args!("\nQuestion {number} was not answered in time."));
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

fn parse(line: &str, number: u64) -> Answer {
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
            // The end of the input: every further question is refused.
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
        assert_eq!(parse("yes 7\n", 7), Answer::Yes);
        assert_eq!(parse("  yes  7 \r\n", 7), Answer::Yes);
        assert_eq!(parse("yes 6", 7), Answer::Other);
        for no in ["", "\n", "y", "yes", "yes7", "YES 7", "yes seven", "7", "no 7", "yes 7 8"] {
            assert_eq!(parse(no, 7), Answer::No, "{no:?}");
        }
    }

    /// The answer to question `number` when only these lines are typed.
    async fn answered(typed: &[&str], number: u64, wait: Duration) -> bool {
        let (sender, mut lines) = channel(LINES);
        for line in typed {
            sender.send((*line).to_owned()).await.unwrap();
        }
        let (answer, _answered) = oneshot::channel();
        let until = Instant::now() + wait;
        read_answer(&mut Prompt { text: String::new(), until, answer }, number, &mut lines).await
    }

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn ignores_a_yes_to_another_question() {
        assert!(answered(&["yes 6", "yes 7"], 7, LONG).await);
        assert!(!answered(&["yes 6", "no", "yes 7"], 7, LONG).await);
        assert!(!answered(&[""], 7, LONG).await);
        assert!(!answered(&["yes 6"], 7, SHORT).await);
        assert!(!answered(&[], 7, SHORT).await);
    }

    #[tokio::test]
    async fn does_not_wait_for_a_withdrawn_question() {
        let (_sender, mut lines) = channel(LINES);
        let (answer, answered) = oneshot::channel();
        drop(answered);
        let mut prompt = Prompt { text: String::new(), until: Instant::now() + LONG, answer };
        assert!(!read_answer(&mut prompt, 1, &mut lines).await);
    }

    #[tokio::test]
    async fn ignores_lines_typed_before_the_question() {
        let (typed, lines) = channel(LINES);
        let (prompts, queue) = channel(QUEUE);
        let terminal = Terminal(prompts);
        typed.send("yes 1".to_owned()).await.unwrap();
        tokio::spawn(ask_all(queue, lines));
        assert!(!terminal.ask("first".to_owned(), SHORT).await);
        // The next question has the next number. The line is repeated until the question is shown.
        let second = terminal.ask("second".to_owned(), LONG);
        tokio::pin!(second);
        let allowed = loop {
            typed.send("yes 2".to_owned()).await.unwrap();
            if let Ok(allowed) = tokio::time::timeout(SHORT, &mut second).await {
                break allowed;
            }
        };
        assert!(allowed);
        // The input ends.
        drop(typed);
        assert!(!terminal.ask("third".to_owned(), LONG).await);
    }
}

//! The notation of transcripts. A line `NAME$ COMMAND` is typed at the terminal NAME, and prints
//! the lines below it. There, `…` matches any characters, and a line `…` any lines.
//!
//! In a command, a word that ends with `…` is the last printed word with that beginning. A command
//! with `<<'END'` continues until a line `END`.

/// The end of a command of several lines.
const END: &str = "END";

/// A command of a page, and what it prints.
pub struct Step {
    pub terminal: String,
    pub command: String,
    pub expected: Vec<String>,
}

impl Step {
    /// Returns true if the command runs a node in the foreground of its terminal.
    pub fn is_node(&self) -> bool {
        let mut words = self.command.split(' ');
        words.next() == Some("levada")
            && words.next() == Some("up")
            && !words.any(|one| one == "--check")
    }

    /// Returns true if the command continues after these lines.
    fn is_open(&self) -> bool {
        self.command.contains(&format!("<<'{END}'")) && self.command.lines().last() != Some(END)
    }

    /// Returns true if this output is as shown.
    pub fn is_printed(&self, output: &str) -> bool {
        fits(&self.expected, &output.lines().collect::<Vec<_>>())
    }

    /// The ports in the command.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.command.split(' ').filter_map(|word| word.parse().ok())
    }

    /// The report about an output that is not as shown.
    pub fn difference(&self, output: &str) -> String {
        let Self { terminal, command, expected } = self;
        let expected = expected.join("\n");
        format!("{terminal}$ {command}\nthe page shows:\n{expected}\nit printed:\n{output}\n")
    }
}

/// The steps of all code blocks of this kind.
pub fn steps(page: &str, kind: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line.strip_prefix("```") == Some(kind);
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(step) = steps.last_mut().filter(|step| step.is_open()) {
            step.command += &format!("\n{line}");
            continue;
        }
        match line.split_once("$ ") {
            Some((terminal, command)) if terminal.chars().all(|c| c.is_ascii_lowercase()) => {
                let terminal = terminal.to_owned();
                let command = command.to_owned();
                steps.push(Step { terminal, command, expected: Vec::new() });
            }
            _ => steps.last_mut().unwrap().expected.push(line.to_owned()),
        }
    }
    steps
}

/// A command with the words of which it shows the beginning.
pub fn completed(command: &str, printed: &[String]) -> String {
    let complete = |word: &str| {
        let Some(start) = word.strip_suffix('…').filter(|start| !start.is_empty()) else {
            return word.to_owned();
        };
        let mut last_first = printed.iter().rev();
        let found = last_first.find(|one| one.starts_with(start) && one.len() > start.len());
        found.unwrap_or_else(|| panic!("{command}: no such word was printed")).clone()
    };
    command.split(' ').map(complete).collect::<Vec<_>>().join(" ")
}

/// Whether `line` matches `pattern`, in which `…` matches any characters.
fn line_fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut open_end = false;
    for part in parts {
        open_end = part.is_empty();
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || open_end
}

/// Whether `lines` match `expected`, in which a line `…` matches any lines.
pub fn fits(expected: &[String], lines: &[&str]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, others)), _) if first == "…" => {
            (0..=lines.len()).any(|skip| fits(others, &lines[skip..]))
        }
        (Some((first, others)), Some((line, rest))) => line_fits(first, line) && fits(others, rest),
        _ => false,
    }
}

#[test]
fn a_command_has_several_lines_and_words_that_were_printed() {
    let page = "```console\na$ cat > f <<'END'\nb$ x\nEND\na$ cat f\nb$ …\n```\n";
    let steps = steps(page, "console");
    assert_eq!(steps[0].command, "cat > f <<'END'\nb$ x\nEND");
    assert!(steps[0].expected.is_empty() && steps.len() == 3);
    let printed = ["lvinv1a", "lvinv1b", "x"].map(str::to_owned);
    assert_eq!(completed("join lvinv1… …", &printed), "join lvinv1b …");
}

#[test]
fn only_up_without_a_check_is_a_node() {
    let is_node = |command: &str| {
        let [terminal, command] = ["a", command].map(str::to_owned);
        Step { terminal, command, expected: Vec::new() }.is_node()
    };
    assert!(is_node("levada up --name x") && is_node("levada up"));
    assert!(!is_node("levada up --check") && !is_node("levada update"));
}

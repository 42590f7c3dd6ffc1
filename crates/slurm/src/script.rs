//! Batch scripts: whether a text is one, and the options on its `#SBATCH` lines.

use std::fmt;

/// Why a text is not a batch script. The texts are those of `sbatch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAScript {
    /// The text is empty.
    Empty,
    /// The text has no visible character.
    Blank,
    /// The text has no interpreter line.
    NoInterpreter,
    /// A byte order mark precedes the interpreter line.
    Marked,
    /// The text has a NUL character.
    Nul,
    /// The lines end as on Windows.
    WindowsLines,
}

impl NotAScript {
    /// Returns the lines of the message.
    #[must_use]
    pub const fn lines(&self) -> &'static [&'static str] {
        match self {
            Self::Empty => &["Batch script is empty!"],
            Self::Blank => &["Batch script contains only whitespace!"],
            Self::NoInterpreter => &[
                "This does not look like a batch script.  The first",
                "line must start with #! followed by the path to an interpreter.",
                "For instance: #!/bin/sh",
            ],
            // The last line is not Slurm's.
            Self::Marked => &[
                "This does not look like a batch script.  The first",
                "line must start with #! followed by the path to an interpreter.",
                "For instance: #!/bin/sh",
                "The script has a byte order mark before its #!. Save it without the mark.",
            ],
            Self::Nul => &["The Slurm controller does not allow scripts that", "contain a NULL character '\\0'."],
            Self::WindowsLines => {
                &["Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n)."]
            }
        }
    }
}

/// Checks that a text is a batch script.
///
/// # Errors
/// When it is not.
pub fn check(script: &[u8]) -> Result<(), NotAScript> {
    if script.is_empty() {
        return Err(NotAScript::Empty);
    }
    if script.iter().all(u8::is_ascii_whitespace) {
        return Err(NotAScript::Blank);
    }
    if script.starts_with(b"\xef\xbb\xbf#!") {
        return Err(NotAScript::Marked);
    }
    if !script.starts_with(b"#!") {
        return Err(NotAScript::NoInterpreter);
    }
    if script.contains(&0) {
        return Err(NotAScript::Nul);
    }
    if script.windows(2).any(|pair| pair == b"\r\n") {
        return Err(NotAScript::WindowsLines);
    }
    Ok(())
}

/// A quote in a directive that does not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// The quote: `"` or `'`.
    pub quote: char,
    /// The line's number, from 1.
    pub line: usize,
    /// The line from the word with the quote on.
    pub rest: String,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: Unmatched `{}` in [{}]", self.line, self.quote, self.rest)
    }
}

impl std::error::Error for Unmatched {}

/// Returns the words of each directive: of each line that begins with `mark`, such as `#SBATCH`, until the first line that is
/// neither a comment nor blank.
///
/// # Errors
/// At a quote that does not end.
pub fn directives(script: &str, mark: &str) -> Result<Vec<Vec<String>>, Unmatched> {
    let head = script.lines().take_while(|line| {
        let text = line.trim_start();
        text.is_empty() || text.starts_with('#')
    });
    head.enumerate()
        .filter_map(|(at, line)| Some((at + 1, line.strip_prefix(mark)?)))
        .filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_whitespace()))
        .map(|(line, rest)| {
            words(rest).map_err(|quote| {
                // The message shows the word with the quote, and the blanks before it.
                // All quotes before the unmatched one end.
                let mut quotes = rest.rmatch_indices(quote).map(|(at, _)| at);
                let before = &rest[..quotes.find(|at| words(&rest[..*at]).is_ok()).unwrap_or(0)];
                let word = before.trim_end_matches(|c: char| !c.is_ascii_whitespace()).trim_end().len();
                Unmatched { quote, line, rest: rest[word..].to_owned() }
            })
        })
        .collect()
}

/// Splits a line into words, with quotes and backslashes as in a shell, up to a comment.
///
/// # Errors
/// If a quote does not end; returns the quote.
pub fn words(line: &str) -> Result<Vec<String>, char> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(c)? {
                        end if end == c => break,
                        '\\' if c == '"' => word.extend(chars.next()),
                        other => word.push(other),
                    }
                }
            }
            '#' => break,
            blank if blank.is_ascii_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_scripts_are_refused() {
        let cases: [(&[u8], Option<NotAScript>); 9] = [
            (b"", Some(NotAScript::Empty)),
            (b" \n \n", Some(NotAScript::Blank)),
            (b"echo\n", Some(NotAScript::NoInterpreter)),
            (b"\xef\xbb\xbf#!/bin/sh\n", Some(NotAScript::Marked)),
            (b"\xef\xbb\xbfdate\n", Some(NotAScript::NoInterpreter)),
            (b"#!/bin/sh\nx\0y\n", Some(NotAScript::Nul)),
            (b"#!/bin/sh\r\necho\r\n", Some(NotAScript::WindowsLines)),
            (b"#!/bin/bash -l", None),
            (b"#!/usr/bin/env julia\nprintln(1)\n", None),
        ];
        for (script, wrong) in cases {
            assert_eq!(check(script).err(), wrong, "{}", script.escape_ascii());
        }
    }

    #[test]
    fn directives_are_split_into_words() {
        let script = "#!/bin/sh\n\
            #SBATCH -N1 --job-name=\"two words\"  -o '/a b/%j'\n\
            \n\
            # a comment\n\
            ##SBATCH --comment=out\n\
            # SBATCH --comment=out\n\
            #SBATCH\t--array               3-11   \n\
            #SBATCH --contiguous          \n\
            #SBATCH -o /data/some\\ dir/.log -J a\"b c\"d # why\n\
            #SBATCHX --comment=out\n   \
              # indented\n\
            #SBATCH --comment=\"say \\\"yes\\\"\" ''\n\
            echo\n\
            #SBATCH --comment=late\n";
        let expected: [&[&str]; 5] = [
            &["-N1", "--job-name=two words", "-o", "/a b/%j"],
            &["--array", "3-11"],
            &["--contiguous"],
            &["-o", "/data/some dir/.log", "-J", "ab cd"],
            &["--comment=say \"yes\"", ""],
        ];
        assert_eq!(directives(script, "#SBATCH").expect("all quotes end"), expected);
    }

    #[test]
    fn quotes_that_do_not_end_are_refused() {
        let unmatched =
            directives("#!/bin/sh\n#SBATCH -J \"unterminated\n", "#SBATCH").expect_err("the quote does not end");
        assert_eq!(unmatched.to_string(), "line 2: Unmatched `\"` in [ \"unterminated]");
        let second = directives("#SBATCH -J \"one\" -o \"two\n", "#SBATCH").expect_err("the second quote does not end");
        assert_eq!(second.rest, " \"two");
    }
}

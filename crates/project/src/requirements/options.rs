//! Options in lines of requirements files.

/// Options of pip with a value: the short and the long form.
const VALUED: [(&str, &str); 14] = [
    ("-i", "--index-url"),
    ("", "--pypi-url"),
    ("", "--extra-index-url"),
    ("-c", "--constraint"),
    ("-r", "--requirement"),
    ("-e", "--editable"),
    ("-f", "--find-links"),
    ("", "--no-binary"),
    ("", "--only-binary"),
    ("", "--trusted-host"),
    ("", "--use-feature"),
    ("", "--global-option"),
    ("", "--hash"),
    ("-C", "--config-settings"),
];

/// Splits a line into a requirement and options. A word that starts with a dash begins the options.
pub(super) fn split(line: &str) -> (&str, &str) {
    let mut at = 0;
    for word in line.split(' ') {
        if word.starts_with('-') {
            return (line[..at].trim(), &line[at..]);
        }
        at += word.len() + 1;
    }
    (line.trim(), "")
}

/// The options of a line, in order, under their long names.
pub(super) struct Options(Vec<(String, Option<String>)>);

impl Options {
    /// Parses options; `None` if a quote is not closed. Other words are skipped, as in pip.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut options = Vec::new();
        let mut words = words(text)?.into_iter();
        while let Some(word) = words.next() {
            if word.starts_with("--") {
                let (name, value) = match word.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (word.as_str(), None),
                };
                match long(name) {
                    Some(name) => options.push((name.to_owned(), value.or_else(|| words.next()))),
                    None => options.push((word, None)),
                }
            } else if word.starts_with('-') {
                let known = VALUED.iter().find(|(short, _)| !short.is_empty() && word.starts_with(short));
                match known {
                    Some((short, name)) => {
                        let rest = &word[short.len()..];
                        let value = if rest.is_empty() { words.next() } else { Some(rest.to_owned()) };
                        options.push(((*name).to_owned(), value));
                    }
                    None => options.push((word, None)),
                }
            }
        }
        Some(Self(options))
    }

    /// The first value of an option.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.all().find(|(other, _)| *other == name).and_then(|(_, value)| value)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }
}

/// The long name of an option with a value. pip accepts an unambiguous beginning.
fn long(name: &str) -> Option<&'static str> {
    // Options without a value that an abbreviation could mean.
    const OTHERS: [&str; 4] = ["--no-index", "--prefer-binary", "--require-hashes", "--pre"];
    let all = || VALUED.iter().map(|(_, long)| *long);
    if let Some(exact) = all().find(|long| *long == name) {
        return Some(exact);
    }
    let mut found = all().chain(OTHERS).filter(|long| long.starts_with(name));
    let first = found.next()?;
    (found.next().is_none() && !OTHERS.contains(&first)).then_some(first)
}

/// Splits text into words as a POSIX shell does, without expansions.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some('"'), '\\') => {
                let next = letters.next()?;
                let word = word.get_or_insert_default();
                if !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().push(letters.next()?),
            (None, ' ' | '\t' | '\r' | '\n') => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_and_parsed_as_in_pip() {
        assert_eq!(split("six==1 --hash=sha256:0"), ("six==1", "--hash=sha256:0"));
        assert_eq!(split("-r a.txt"), ("", "-r a.txt"));
        assert_eq!(split("./my-lib"), ("./my-lib", ""));
        for line in
            ["-ra b.txt", "-r 'a b.txt'", "--requirement=\"a b.txt\"", "--requirem a\\ b.txt", "--pre -r 'a b'.txt"]
        {
            let expected = if line.starts_with("-ra") { "a" } else { "a b.txt" };
            let options = Options::parse(line).expect("no open quote");
            assert_eq!(options.first("--requirement"), Some(expected), "{line}");
        }
        assert!(Options::parse("-r 'a").is_none());
    }
}

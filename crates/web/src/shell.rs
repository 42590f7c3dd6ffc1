//! Command lines as a shell writes them.

/// Quotes a word for a shell, if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Splits a command line into words. Knows quotes and backslashes, but no variables or patterns.
///
/// # Errors
/// A quote is not closed, or the text ends with a backslash.
pub(crate) fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is not closed"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => return Err("a double quote is not closed"),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a double quote is not closed"),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next().ok_or("the text ends with a backslash")?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_are_split_into_the_same_words() {
        for words in [
            &["echo", "two words", "", "it's", "a=b,c"][..],
            &["\"", "\\", "$HOME", "`x`", "\n", "ü", "--opt='x'"],
            &[],
        ] {
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            assert_eq!(split(&line).expect("quotes are closed"), words);
        }
    }

    #[test]
    fn double_quotes_and_backslashes_are_understood() {
        assert_eq!(split(r#"a\ b "c \"d\" \x" e'f'"g""#), Ok(["a b", r#"c "d" \x"#, "efg"].map(str::to_owned).into()));
        for foul in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(foul).is_err(), "{foul}");
        }
    }
}

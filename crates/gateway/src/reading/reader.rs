//! The text that is being read, and the mistakes found so far.

use toml::Spanned;

use crate::mistake::Mistake;

/// Parses one text and collects its mistakes.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    pub(super) fn syntax_mistake(&mut self, error: &toml::de::Error) {
        let line = error.span().map(|span| self.line(span.start));
        let advice = "`hostler gateway plan --example` prints a description with every field";
        self.mistakes.push(Mistake {
            line,
            field: String::new(),
            what: error.message().trim().replace('\n', ", "),
            advice: advice.to_owned(),
        });
    }

    /// Notes that a required field or table is missing. `line` is the line of the table that lacks the field.
    pub(super) fn missing(&mut self, line: Option<usize>, field: &str, advice: &str) {
        let (field, what) = (field.to_owned(), "required, but missing".to_owned());
        self.mistakes.push(Mistake { line, field, what, advice: advice.to_owned() });
    }

    pub(super) fn mistake(&mut self, line: usize, field: &str, what: &str, advice: &str) {
        let (what, advice) = (what.to_owned(), advice.to_owned());
        self.mistakes.push(Mistake { line: Some(line), field: field.to_owned(), what, advice });
    }

    pub(super) fn line_of<T>(&self, text: &Spanned<T>) -> usize {
        self.line(text.span().start)
    }

    pub(super) fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }
}

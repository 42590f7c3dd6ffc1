//! Output of jobs as HTML. Understands the colours and styles of terminals (SGR); drops all other control sequences.
//!
//! The only HTML that comes out is `<span class="…">` with class names from this file. All text is escaped.

use std::fmt::Write as _;

use hostler_model::escaped_html;

/// Maximum length of a line in bytes. The rest is cut.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Colours and styles of text. Colours are numbers from 0 to 15.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    text: Option<u8>,
    back: Option<u8>,
    is_bold: bool,
    is_faint: bool,
    is_italic: bool,
    is_underlined: bool,
    is_inverse: bool,
    is_struck: bool,
}

impl Style {
    /// Class names in the style sheet.
    fn classes(self) -> String {
        let mut names = String::new();
        let (text, back) = if self.is_inverse { (self.back, self.text) } else { (self.text, self.back) };
        let mut add = |name: &str| {
            if !names.is_empty() {
                names.push(' ');
            }
            names.push_str(name);
        };
        if let Some(text) = text {
            add(&format!("t{text}"));
        }
        if let Some(back) = back {
            add(&format!("k{back}"));
        }
        let flags = [
            (self.is_inverse && text.is_none() && back.is_none(), "inverse"),
            (self.is_bold, "bold"),
            (self.is_faint, "faint"),
            (self.is_italic, "italic"),
            (self.is_underlined, "under"),
            (self.is_struck, "struck"),
        ];
        for (_, name) in flags.into_iter().filter(|(is_set, _)| *is_set) {
            add(name);
        }
        names
    }

    /// Applies the parameters of an SGR sequence.
    fn apply(&mut self, parameters: &[u16]) {
        let mut rest = parameters.iter().copied();
        while let Some(code) = rest.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.is_bold = true,
                2 => self.is_faint = true,
                3 => self.is_italic = true,
                4 => self.is_underlined = true,
                7 => self.is_inverse = true,
                9 => self.is_struck = true,
                22 => (self.is_bold, self.is_faint) = (false, false),
                23 => self.is_italic = false,
                24 => self.is_underlined = false,
                27 => self.is_inverse = false,
                29 => self.is_struck = false,
                30..=37 => self.text = Some((code - 30) as u8),
                40..=47 => self.back = Some((code - 40) as u8),
                90..=97 => self.text = Some((code - 82) as u8),
                100..=107 => self.back = Some((code - 92) as u8),
                38 => self.text = extended(&mut rest).or(self.text),
                48 => self.back = extended(&mut rest).or(self.back),
                39 => self.text = None,
                49 => self.back = None,
                _ => {}
            }
        }
    }
}

/// Reads a colour of 256 or 16 million, and returns the nearest of the sixteen colours.
fn extended(rest: &mut impl Iterator<Item = u16>) -> Option<u8> {
    match rest.next()? {
        5 => match rest.next()? {
            colour @ 0..=15 => Some(colour as u8),
            colour @ 16..=231 => {
                let level = |step: u16| [0, 95, 135, 175, 215, 255][usize::from(step)];
                let colour = colour - 16;
                Some(nearest([level(colour / 36), level(colour / 6 % 6), level(colour % 6)]))
            }
            colour @ 232..=255 => Some(nearest([8 + 10 * (i32::from(colour) - 232); 3])),
            _ => None,
        },
        2 => {
            let mut part = || rest.next().map(|part| i32::from(part.min(255)));
            Some(nearest([part()?, part()?, part()?]))
        }
        _ => None,
    }
}

fn nearest(colour: [i32; 3]) -> u8 {
    const COLOURS: [[i32; 3]; 16] = [
        [0, 0, 0],
        [205, 0, 0],
        [0, 205, 0],
        [205, 205, 0],
        [0, 0, 238],
        [205, 0, 205],
        [0, 205, 205],
        [229, 229, 229],
        [127, 127, 127],
        [255, 0, 0],
        [0, 255, 0],
        [255, 255, 0],
        [92, 92, 255],
        [255, 0, 255],
        [0, 255, 255],
        [255, 255, 255],
    ];
    let distance = |other: &[i32; 3]| -> i32 { colour.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum() };
    (0..16).min_by_key(|index| distance(&COLOURS[usize::from(*index)])).expect("there are sixteen colours")
}

/// Turns output into HTML, line by line. A style continues on the next line.
#[derive(Debug, Default)]
pub(crate) struct Painter {
    style: Style,
}

/// One line as HTML, and as text without control sequences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) html: String,
    pub(crate) text: String,
}

impl Painter {
    /// Turns a line without its newline into HTML.
    pub(crate) fn line(&mut self, line: &[u8]) -> Line {
        let cut = line.len().saturating_sub(MAX_LINE_BYTES);
        let text = String::from_utf8_lossy(&line[..line.len() - cut]);
        let mut runs: Vec<(Style, String)> = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                // The rest of the line overwrites its start, as progress bars do.
                '\r' if chars.peek().is_some_and(|next| *next != '\r') => runs.clear(),
                '\x1b' => self.escape(&mut chars),
                '\u{9b}' => self.sequence(&mut chars),
                '\u{90}' | '\u{9d}' | '\u{98}' | '\u{9e}' | '\u{9f}' => skip_string(&mut chars),
                c if (c.is_control() && c != '\t') || is_bidi_control(c) => {}
                c => match runs.last_mut() {
                    Some((style, text)) if *style == self.style => text.push(c),
                    _ => runs.push((self.style, c.to_string())),
                },
            }
        }
        let mut out = Line { html: String::with_capacity(text.len() + 16), text: String::new() };
        for (style, text) in &runs {
            let classes = style.classes();
            if classes.is_empty() {
                out.html.push_str(&escaped_html(text));
            } else {
                write!(out.html, "<span class=\"{classes}\">").expect("strings accept all writes");
                out.html.push_str(&escaped_html(text));
                out.html.push_str("</span>");
            }
            out.text.push_str(text);
        }
        if cut > 0 {
            write!(out.html, "<span class=\"cut\"> … {cut} more bytes</span>").expect("strings accept all writes");
        }
        out
    }

    /// Reads what follows an escape character.
    fn escape(&mut self, chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
        match chars.peek() {
            Some('[') => {
                chars.next();
                self.sequence(chars);
            }
            Some(']' | 'P' | 'X' | '^' | '_') => {
                chars.next();
                skip_string(chars);
            }
            Some(' '..='/') => {
                while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
                chars.next_if(|c| ('0'..='~').contains(c));
            }
            Some('0'..='~') => {
                chars.next();
            }
            _ => {}
        }
    }

    /// Reads a control sequence after its introducer. Only SGR has an effect.
    fn sequence(&mut self, chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
        let mut parameters = Vec::new();
        let mut current: u16 = 0;
        let mut is_private = false;
        while let Some(c) = chars.next_if(|c| (' '..='~').contains(c)) {
            match c {
                '0'..='9' => current = current.saturating_mul(10).saturating_add(c as u16 - '0' as u16),
                ';' | ':' => {
                    if parameters.len() < 32 {
                        parameters.push(current);
                    }
                    current = 0;
                }
                '@'..='~' => {
                    parameters.push(current);
                    if c == 'm' && !is_private {
                        self.style.apply(&parameters);
                    }
                    return;
                }
                _ => is_private = true,
            }
        }
    }
}

/// Skips a string such as a window title, up to its terminator.
fn skip_string(chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    while let Some(c) = chars.next() {
        match c {
            '\x07' | '\u{9c}' => return,
            '\x1b' if chars.next_if_eq(&'\\').is_some() => return,
            _ => {}
        }
    }
}

/// Whether the character changes the direction of text, which can make it read as something else.
const fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn html(line: &str) -> String {
        Painter::default().line(line.as_bytes()).html
    }

    #[test]
    fn colours_become_classes_and_continue_on_the_next_line() {
        let mut painter = Painter::default();
        assert_eq!(painter.line(b"\x1b[1;31mred\x1b[0m plain").html, "<span class=\"t1 bold\">red</span> plain");
        assert_eq!(painter.line(b"\x1b[92;44mx").html, "<span class=\"t10 k4\">x</span>");
        assert_eq!(painter.line(b"y\x1b[7mz").html, "<span class=\"t10 k4\">y</span><span class=\"t4 k10\">z</span>");
        assert_eq!(
            html("\x1b[38;5;196mx\x1b[38;2;0;0;250my"),
            "<span class=\"t9\">x</span><span class=\"t4\">y</span>"
        );
    }

    #[test]
    fn other_control_sequences_are_dropped() {
        for text in [
            "a\x1b[2Jb",
            "a\x1b]0;title\x07b",
            "a\x1b]8;;javascript:x\x1b\\b",
            "a\x08b\x00",
            "a\x1b(Bb",
            "a\x1bPq#0\x1b\\b",
            "\x1b[?25lab",
            "a\u{202e}b",
        ] {
            assert_eq!(html(text), "ab", "{text:?}");
        }
    }

    #[test]
    fn carriage_returns_fold_progress_bars() {
        assert_eq!(html("10 %\r20 %\r100 %"), "100 %");
        assert_eq!(html("done\r"), "done");
        assert_eq!(html("done\r\r"), "done");
    }

    #[test]
    fn long_lines_are_cut() {
        let line = html(&"x".repeat(MAX_LINE_BYTES + 5));
        assert!(line.ends_with("x<span class=\"cut\"> … 5 more bytes</span>"));
        assert!(line.len() < MAX_LINE_BYTES + 100);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(html("<b>&\"'"), "&lt;b&gt;&amp;&quot;&#39;");
        assert_eq!(html("<\x1b[1m<script>"), "&lt;<span class=\"bold\">&lt;script&gt;</span>");
    }

    /// Removes the tags that this module writes.
    fn without_tags(html: &str) -> String {
        let mut rest = html;
        let mut text = String::new();
        while let Some(at) = rest.find('<') {
            text.push_str(&rest[..at]);
            let tag = &rest[at..=at + rest[at..].find('>').expect("a tag ends")];
            let classes = tag.strip_prefix("<span class=\"").and_then(|tag| tag.strip_suffix("\">"));
            let is_known = |class: &str| class.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            assert!(tag == "</span>" || classes.is_some_and(|classes| classes.split(' ').all(is_known)), "{tag}");
            rest = &rest[at + tag.len()..];
        }
        text + rest
    }

    proptest! {
        #[test]
        fn only_known_tags_come_out_of_any_bytes(lines in proptest::collection::vec(
            proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(b'<'), Just(b'"'), Just(b'>'), Just(0x1b), Just(b'['), Just(b'm'), Just(b';'), Just(b'\r'), Just(b'3'), Just(0xc2), Just(0x9b)],
                0..200,
            ), 1..5,
        )) {
            let mut painter = Painter::default();
            for line in lines {
                let Line { html, text } = painter.line(&line);
                let left = without_tags(&html);
                prop_assert!(!left.contains(['<', '>', '"', '\'', '\x1b']), "{left:?}");
                let back = left.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&");
                prop_assert_eq!(back, text);
            }
        }
    }
}

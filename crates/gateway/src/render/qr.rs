//! Text as a QR code for a terminal: two rows of modules per line, dark on light in any colour scheme.

use qrcode::{Color, EcLevel, QrCode};

/// Light modules around the code. Scanners need this margin.
const MARGIN: usize = 2;

/// The QR code; `None` if the text is too long.
#[must_use]
pub fn qr_code(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let width = code.width();
    let is_dark = |x: usize, y: usize| {
        let inside = MARGIN..MARGIN + width;
        inside.contains(&x) && inside.contains(&y) && code[(x - MARGIN, y - MARGIN)] == Color::Dark
    };
    let side = width + 2 * MARGIN;
    let mut lines = String::new();
    for y in (0..side).step_by(2) {
        // Black on white, so that it looks right on dark terminals.
        lines.push_str("\x1b[30;107m");
        lines.extend((0..side).map(|x| match (is_dark(x, y), is_dark(x, y + 1)) {
            (true, true) => '█',
            (true, false) => '▀',
            (false, true) => '▄',
            (false, false) => ' ',
        }));
        lines.push_str("\x1b[0m\n");
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_square_and_has_finder_patterns() {
        let code = qr_code("[Interface]\nPrivateKey = x\n").expect("short enough");
        let lines: Vec<Vec<char>> = code
            .lines()
            .map(|line| line.replace("\x1b[30;107m", "").replace("\x1b[0m", "").chars().collect())
            .collect();
        let width = lines[0].len();
        assert!(
            lines.iter().all(|line| line.len() == width) && lines.len() == width.div_ceil(2),
            "{width} by {}",
            lines.len()
        );
        // A finder pattern is seven modules wide, with a light margin.
        let top: String = lines[1].iter().collect();
        assert!(top.starts_with("  █▀▀▀▀▀█ ") && top.ends_with(" █▀▀▀▀▀█  "), "{code}");
        let bottom: String = lines[lines.len() - 2].iter().collect();
        assert!(bottom.starts_with("  ▀▀▀▀▀▀▀ ") || bottom.starts_with("  █▄▄▄▄▄█ "), "{code}");
        assert_eq!(qr_code(&"x".repeat(5000)), None);
    }
}

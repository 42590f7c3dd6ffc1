//! The terminal: enters and leaves its full-screen mode, and reads keys.
//!
//! The terminal is restored however the program ends: at the end of [`Screen`], in a panic, and before the program is
//! suspended.

use std::cell::Cell;
use std::env;
use std::io::{self, BufWriter, Stdout, Write};
use std::panic;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{MoveTo, Show};
use crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use tokio::sync::mpsc;

use super::model::Key;
use super::view::Palette;

/// Size of the buffer for one picture, so that a picture arrives in few packets.
const BUFFER: usize = 64 << 10;

/// Whether the terminal is in full-screen mode. The panic hook needs it too.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// A key, or a change of the window's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Key(Key),
    Resized,
}

pub(super) type Display = Terminal<CrosstermBackend<Counted>>;

/// The terminal in full-screen mode. Dropping the value restores the terminal.
pub(super) struct Screen {
    pub(super) display: Display,
    written: Rc<Cell<u64>>,
}

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        enter()?;
        let written = Rc::new(Cell::new(0));
        let writer = Counted { out: BufWriter::with_capacity(BUFFER, io::stdout()), written: Rc::clone(&written) };
        Ok(Self { display: Terminal::new(CrosstermBackend::new(writer))?, written })
    }

    /// Number of bytes sent to the terminal since the last call.
    pub(super) fn take_written(&self) -> u64 {
        self.written.take()
    }

    /// Clears the terminal, and forgets what it shows. `Terminal::clear` would ask the terminal for its cursor, and the
    /// thread that reads keys would get the answer.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        let size = self.display.size()?;
        self.display.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Enters the full-screen mode again, after the terminal had another use.
    pub(super) fn enter_again(&mut self) -> io::Result<()> {
        enter()?;
        self.redraw()
    }

    /// Suspends the program, as the shell expects at Ctrl-Z. Returns when the shell continues it.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave();
        kill(Pid::this(), Signal::SIGSTOP)?;
        self.enter_again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::Relaxed);
    execute!(io::stdout(), EnterAlternateScreen)
}

fn leave() {
    if IS_ENTERED.swap(false, Ordering::Relaxed) {
        // If the terminal is gone, nothing needs to be restored.
        // Multiplexers that changed their size meanwhile otherwise leave parts of the last picture on the shell's screen.
        let _ = execute!(io::stdout(), MoveTo(0, 0), Clear(ClearType::All), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Standard output that counts bytes.
pub(super) struct Counted {
    out: BufWriter<Stdout>,
    written: Rc<Cell<u64>>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.written.set(self.written.get() + count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Colours, if the environment says that the terminal has them.
pub(super) fn palette() -> Palette {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let term = env::var("TERM").unwrap_or_default();
    let is_plain = term.is_empty() || term == "dumb" || term.starts_with("vt") || term.ends_with("-m");
    if is_set("NO_COLOR") || is_plain { Palette::None } else { Palette::Colours }
}

/// Reads keys on a thread of its own, because reading blocks.
pub(super) fn read_keys() -> io::Result<mpsc::Receiver<Input>> {
    let (sender, inputs) = mpsc::channel(64);
    std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
        // An error means that the terminal is gone; the closed channel then ends the program.
        while let Ok(event) = event::read() {
            let input = match event {
                event::Event::Key(key) if key.kind != KeyEventKind::Release => {
                    key_of(key.code, key.modifiers).map(Input::Key)
                }
                event::Event::Resize(..) => Some(Input::Resized),
                _ => None,
            };
            if input.is_some_and(|input| sender.blocking_send(input).is_err()) {
                return;
            }
        }
    })?;
    Ok(inputs)
}

fn key_of(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    if modifiers.contains(KeyModifiers::CONTROL) {
        return match code {
            KeyCode::Char('c') => Some(Key::Interrupt),
            KeyCode::Char('l') => Some(Key::Redraw),
            KeyCode::Char('z') => Some(Key::Suspend),
            KeyCode::Char('f') => Some(Key::PageDown),
            KeyCode::Char('b') => Some(Key::PageUp),
            KeyCode::Char('h') => Some(Key::Erase),
            _ => None,
        };
    }
    match code {
        KeyCode::Char(c) => Some(Key::Char(c)),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Back),
        KeyCode::Backspace => Some(Key::Erase),
        KeyCode::Tab => Some(Key::Tab),
        _ => None,
    }
}

//! The loop of `hostler top`: keys, answers of the head and signals in; pictures and requests out.

use std::sync::Arc;
use std::time::Duration;

use hostler_client::Client;
use hostler_proto::users::Me;
use nix::libc;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::head;
use super::model::{Effect, Event, State, update};
use super::screen::{Input, Screen, palette, read_keys};
use super::view::draw;
use crate::exit;
use crate::failure::{During, Outcome};
use crate::interrupts::{Interrupts, exit_code};
use crate::output::text::Moment;

/// Answers of the head that wait for the loop.
const QUEUE: usize = 64;

/// Least time between two pictures that no key caused.
const FRAME: Duration = Duration::from_millis(500);

/// Bytes per second to the terminal, for pictures that no key caused. A slow connection then stays usable.
const BYTES_PER_SECOND: u64 = 8_000;

/// Longest time between two pictures: the times of running jobs change by themselves.
const LONGEST: Duration = Duration::from_secs(1);

pub(super) async fn run(client: Client, me: Me, read_only: bool) -> Outcome {
    let client = Arc::new(client);
    let what = || "cannot use the terminal".to_owned();
    let mut signals = Interrupts::take()?;
    let mut stop = signal(SignalKind::from_raw(libc::SIGTSTP)).during(what)?;
    let mut resume = signal(SignalKind::from_raw(libc::SIGCONT)).during(what)?;
    let mut state = State::new(read_only);
    update(&mut state, Event::Who(me));
    let (events, mut answers) = mpsc::channel(QUEUE);
    let (want, wanted) = watch::channel(state.want());
    tokio::spawn(head::refresh(Arc::clone(&client), wanted.clone(), events.clone()));
    tokio::spawn(head::read_output(Arc::clone(&client), wanted, events.clone()));

    let mut screen = Screen::enter().during(what)?;
    let mut keys = read_keys().during(what)?;
    let palette = palette();
    // The time of the next picture; each picture without a key delays the next by the bytes that it needed.
    let (mut next, mut not_before) = (Instant::now(), Instant::now());
    // The head's clock decides how long ago something was.
    let mut ahead_ms = 0;
    loop {
        let mut happened = None;
        tokio::select! {
            biased;
            input = keys.recv() => match input {
                Some(Input::Key(key)) => {
                    happened = Some(Event::Key(key));
                    next = Instant::now();
                }
                Some(Input::Resized) => next = Instant::now(),
                // The terminal is gone.
                None => return Ok(exit_code(Signal::SIGHUP)),
            },
            signal = signals.next() => {
                return Ok(if signal == Signal::SIGINT { exit::OK } else { exit_code(signal) });
            }
            _ = stop.recv() => {
                screen.suspend().during(what)?;
                next = Instant::now();
            }
            _ = resume.recv() => {
                screen.enter_again().during(what)?;
                next = Instant::now();
            }
            Some(answer) = answers.recv() => {
                happened = Some(answer);
                next = next.min(not_before.max(Instant::now()));
            }
            () = sleep_until(next) => {
                let moment = Moment::now().ahead_by(ahead_ms);
                screen.display.draw(|frame| draw(&mut state, &moment, palette, frame)).during(what)?;
                let cost = Duration::from_secs(screen.take_written()) / BYTES_PER_SECOND as u32;
                not_before = Instant::now() + FRAME.max(cost);
                next = Instant::now() + LONGEST.max(cost);
            }
        }
        let Some(event) = happened else { continue };
        if let Event::Picture(_, at) = &event {
            ahead_ms = at.0 - Moment::now().now.0;
        }
        for effect in update(&mut state, event) {
            match effect {
                Effect::Quit => return Ok(exit::OK),
                Effect::Suspend => screen.suspend().during(what)?,
                Effect::Redraw => screen.redraw().during(what)?,
                Effect::Act(action) => {
                    tokio::spawn(head::act(Arc::clone(&client), action, events.clone()));
                }
            }
        }
        let now_wanted = state.want();
        want.send_if_modified(|before| {
            let is_new = *before != now_wanted;
            *before = now_wanted;
            is_new
        });
    }
}

//! What the state calls for without a command: placements and power actions.

use super::event::Event;
use super::ids::Now;
use super::jobs::schedule::schedule;
use super::power::manage;
use super::state::State;

/// Returns the next events that the state calls for: placements, or power actions. The caller applies them and repeats until there are
/// none.
pub fn follow_up(state: &mut State, now: Now) -> Vec<Event> {
    if state.needs_pass()
        && let Some(placed) = schedule(state, now)
    {
        return vec![placed];
    }
    while state.power.needs_manage(now.at) {
        let events = manage(state, now);
        if !events.is_empty() {
            return events;
        }
    }
    Vec::new()
}

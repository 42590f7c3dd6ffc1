//! Connections between agents and the head: packets with latency, and all their failures.
//!
//! A connection delivers packets in order, late, twice, not at all, or after the other end has closed. A transport that
//! loses a packet breaks eventually; this takes up to a few seconds, and one of the two ends may notice the gap
//! earlier.

use hostler_core::head::ConnectionId;

use super::world::network::{Connection, End, Packet};
use super::world::time::{MS, SECOND};
use super::world::{ScheduledEvent, World};

impl World {
    /// Whether a node can reach a running head.
    pub(super) fn is_reachable(&self, node: usize) -> bool {
        self.head.process.is_some() && !self.network.is_cut_off[node]
    }

    /// Dials the head; returns `None` when it does not answer.
    pub(super) fn dial(&mut self, node: usize) -> Option<u64> {
        if !self.is_reachable(node) {
            return None;
        }
        let process = self.process();
        process.connections += 1;
        let accepted = ConnectionId(process.connections);
        self.network.dialled += 1;
        let connection = Connection {
            node,
            head_life: self.head.lives,
            accepted,
            head_is_open: true,
            agent_is_open: true,
            is_severed: false,
            last_at_head_us: 0,
            last_at_agent_us: 0,
        };
        self.network.connections.insert(self.network.dialled, connection);
        Some(self.network.dialled)
    }

    /// Sends a packet to the other end.
    pub(super) fn transmit(&mut self, id: u64, to: End, packet: Packet) {
        let is_frame = matches!(packet, Packet::FromAgent(_) | Packet::FromHead(_));
        let latency = self.rng.skewed(MS) + 20;
        let suffers = is_frame && self.rng.chance(self.network.trouble);
        let kind = if suffers { self.rng.below(4) } else { 4 };
        let now_us = self.now_us;
        // Encodes only some packets, because encoding takes most of the simulation's time.
        let packet = if self.rng.chance(250) { packet.through_bytes() } else { packet };
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        if connection.is_severed {
            return;
        }
        let last = match to {
            End::Head => &mut connection.last_at_head_us,
            End::Agent => &mut connection.last_at_agent_us,
        };
        let arrives = (now_us + latency).max(*last);
        let delay = arrives - now_us;
        match kind {
            0 => {
                self.note(format_args!("connection {id} drops a frame bound for the {to:?}"));
                return self.schedule_break(id);
            }
            1 => {
                self.note(format_args!("connection {id} delays a frame bound for the {to:?}"));
                let late = delay + self.rng.below(500 * MS);
                self.later(late, ScheduledEvent::Arrival { connection: id, at: to, packet });
                return self.schedule_break(id);
            }
            2 | 3 => {
                self.note(format_args!("connection {id} doubles a frame bound for the {to:?}"));
                let again = delay + self.rng.below(500 * MS);
                self.later(again, ScheduledEvent::Arrival { connection: id, at: to, packet: packet.clone() });
            }
            _ => {}
        }
        if let Some(connection) = self.network.connections.get_mut(&id) {
            match to {
                End::Head => connection.last_at_head_us = arrives,
                End::Agent => connection.last_at_agent_us = arrives,
            }
        }
        self.later(delay, ScheduledEvent::Arrival { connection: id, at: to, packet });
    }

    /// Schedules the break of a connection that has lost or delayed a packet.
    fn schedule_break(&mut self, id: u64) {
        for at in [End::Head, End::Agent] {
            let delay = self.rng.below(8 * SECOND);
            self.later(delay, ScheduledEvent::Broken { connection: id, at });
        }
    }

    /// Delivers a packet if the receiver still exists.
    pub(super) fn arrive(&mut self, id: u64, at: End, packet: Packet) {
        let is_lost = self.rng.chance(700);
        let Some(connection) = self.network.connections.get(&id) else { return };
        if connection.is_severed && is_lost {
            return;
        }
        let node = connection.node;
        match at {
            End::Head => {
                if let Some(waiting) = &mut self.frozen_head {
                    waiting.push(ScheduledEvent::Arrival { connection: id, at, packet });
                } else if connection.head_is_open && connection.head_life == self.head.lives {
                    self.head_receives(id, packet);
                }
            }
            End::Agent => {
                if let Some(waiting) = &mut self.frozen_nodes[node] {
                    waiting.push(ScheduledEvent::Arrival { connection: id, at, packet });
                } else if connection.agent_is_open {
                    self.agent_receives(node, id, packet);
                }
            }
        }
    }

    /// Closes one end; the other end learns of it unless the connection is severed.
    pub(super) fn close_end(&mut self, id: u64, at: End) {
        let delay = self.rng.skewed(MS) + 20;
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        let other = match at {
            End::Head => {
                connection.head_is_open = false;
                End::Agent
            }
            End::Agent => {
                connection.agent_is_open = false;
                End::Head
            }
        };
        // The close arrives after the last packet.
        let last = connection.last_at_head_us.max(connection.last_at_agent_us);
        let delay = delay.max(last.saturating_sub(self.now_us));
        if !connection.is_severed {
            self.later(delay, ScheduledEvent::Broken { connection: id, at: other });
        } else if !connection.head_is_open && !connection.agent_is_open {
            self.network.connections.remove(&id);
        }
    }

    /// Breaks a connection at one end.
    pub(super) fn find_broken(&mut self, id: u64, at: End) {
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        let node = connection.node;
        let life = connection.head_life;
        match at {
            End::Head if connection.head_is_open => {
                if let Some(waiting) = &mut self.frozen_head {
                    return waiting.push(ScheduledEvent::Broken { connection: id, at });
                }
                if life == self.head.lives {
                    self.head_finds_broken(id);
                }
                // The head ignores a hello that arrives after this.
                self.close_end(id, End::Head);
            }
            End::Agent if connection.agent_is_open => {
                if let Some(waiting) = &mut self.frozen_nodes[node] {
                    return waiting.push(ScheduledEvent::Broken { connection: id, at });
                }
                self.agent_finds_broken(node, id);
            }
            End::Head | End::Agent => {}
        }
    }

    /// Closes every connection of the head after its process has ended.
    pub(super) fn close_head_connections(&mut self) {
        let open = self.network.connections.iter().filter(|(_, connection)| connection.head_is_open);
        let open: Vec<u64> = open.map(|(id, _)| *id).collect();
        open.into_iter().for_each(|id| self.close_end(id, End::Head));
    }

    /// Closes every connection of a node after its agent has ended.
    pub(super) fn close_agent_connections(&mut self, node: usize) {
        let of_node = |connection: &Connection| connection.node == node && connection.agent_is_open;
        let open = self.network.connections.iter().filter(|(_, connection)| of_node(connection));
        let open: Vec<u64> = open.map(|(id, _)| *id).collect();
        open.into_iter().for_each(|id| self.close_end(id, End::Agent));
    }

    /// Breaks every connection of a node. Both ends notice within `within_us`.
    pub(super) fn sever(&mut self, node: usize, within_us: u64) {
        let mut severed = Vec::new();
        for (&id, connection) in &mut self.network.connections {
            if connection.node == node && !connection.is_severed {
                connection.is_severed = true;
                severed.push(id);
            }
        }
        for id in severed {
            self.note(format_args!("connection {id} of n{node} is cut"));
            for at in [End::Head, End::Agent] {
                let delay = self.rng.below(within_us);
                self.later(delay, ScheduledEvent::Broken { connection: id, at });
            }
        }
    }
}

//! States of nodes, as `sinfo` and `scontrol` write them and as filters name them.

/// What a node does, without its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The node is lost.
    Down,
    /// No job has resources of the node.
    Idle,
    /// Jobs have all CPUs of the node.
    Allocated,
    /// Jobs have some CPUs of the node.
    Mixed,
}

/// The power state of a node that is not simply on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// Switched off.
    Off,
    /// Being switched on.
    Starting,
    /// Being switched off.
    Stopping,
}

/// The state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeState {
    /// What the node does.
    pub base: Base,
    /// Whether the node gets no more jobs because somebody drains it.
    pub drain: bool,
    /// Whether the node does not respond.
    pub silent: bool,
    /// The power state, unless the node is on.
    pub power: Option<Power>,
}

impl Base {
    /// Long name, short name, and Slurm's number, by which `sinfo` sorts.
    const fn texts(self) -> (&'static str, &'static str, u32) {
        match self {
            Self::Down => ("down", "down", 1),
            Self::Idle => ("idle", "idle", 2),
            Self::Allocated => ("allocated", "alloc", 3),
            Self::Mixed => ("mixed", "mix", 5),
        }
    }
}

impl Power {
    /// Suffix in tables, name, and Slurm's bit.
    const fn texts(self) -> (char, &'static str, u32) {
        match self {
            Self::Off => ('~', "POWERED_DOWN", 1 << 12),
            Self::Starting => ('#', "POWERING_UP", 1 << 14),
            Self::Stopping => ('%', "POWERING_DOWN", 1 << 18),
        }
    }
}

impl NodeState {
    /// Returns whether jobs have resources of the node.
    #[must_use]
    pub const fn is_busy(self) -> bool {
        matches!(self.base, Base::Allocated | Base::Mixed)
    }

    /// Returns whether the free resources of the node cannot be used: it is down or drained.
    #[must_use]
    pub const fn is_out(self) -> bool {
        self.drain || matches!(self.base, Base::Down)
    }

    /// Returns the state as the `%t` of `sinfo` writes it, such as `mix`, `drng` or `down*`.
    #[must_use]
    pub fn compact(self) -> String {
        let word = match (self.drain, self.is_busy()) {
            (true, true) => "drng",
            (true, false) => "drain",
            (false, _) => self.base.texts().1,
        };
        self.with_suffix(word)
    }

    /// Returns the state as the `%T` of `sinfo` writes it, such as `mixed`, `draining` or `down*`.
    #[must_use]
    pub fn long(self) -> String {
        let word = match (self.drain, self.is_busy()) {
            (true, true) => "draining",
            (true, false) => "drained",
            (false, _) => self.base.texts().0,
        };
        self.with_suffix(word)
    }

    /// Returns the words of the state with all flags, such as `IDLE` and `DRAIN`.
    #[must_use]
    pub fn words(self) -> Vec<String> {
        let mut words = vec![self.base.texts().0.to_ascii_uppercase()];
        let mut flag = |is_set: bool, name: &str| words.extend(is_set.then(|| name.to_owned()));
        let power = self.power.map_or("", |power| power.texts().1);
        flag(self.drain, "DRAIN");
        flag(self.power == Some(Power::Off), power);
        flag(self.silent, "NOT_RESPONDING");
        flag(matches!(self.power, Some(Power::Starting | Power::Stopping)), power);
        words
    }

    /// Returns the state with all flags as `scontrol show node` writes it, such as `IDLE+DRAIN`.
    #[must_use]
    pub fn complete(self) -> String {
        self.words().join("+")
    }

    /// Returns Slurm's number of the state, by which `sinfo` sorts.
    #[must_use]
    pub fn number(self) -> u32 {
        let flag = |is_set: bool, bit: u32| if is_set { 1 << bit } else { 0 };
        let power = self.power.map_or(0, |power| power.texts().2);
        self.base.texts().2 | flag(self.drain, 9) | flag(self.silent, 11) | power
    }

    fn with_suffix(self, word: &str) -> String {
        let suffix = self.power.map(|power| power.texts().0).or(self.silent.then_some('*'));
        suffix.map_or_else(|| word.to_owned(), |suffix| format!("{word}{suffix}"))
    }
}

/// A state in a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Base(Base),
    Drain,
    Drained,
    Draining,
    Silent,
    Power(Power),
    /// A state that no node of this cluster has.
    Never,
}

/// Each state in a filter, by its names.
const WANTED: &[(Wanted, &[&str])] = &[
    (Wanted::Never, &["unknown", "unk"]),
    (Wanted::Base(Base::Down), &["down"]),
    (Wanted::Base(Base::Idle), &["idle"]),
    (Wanted::Base(Base::Allocated), &["allocated", "alloc"]),
    (Wanted::Base(Base::Mixed), &["mixed", "mix"]),
    (Wanted::Never, &["error", "err"]),
    (Wanted::Never, &["future", "futr"]),
    (Wanted::Drain, &["drain"]),
    (Wanted::Drained, &["drained"]),
    (Wanted::Draining, &["draining", "drng"]),
    (Wanted::Silent, &["no_respond", "not_responding"]),
    (Wanted::Never, &["reserved", "resv"]),
    (Wanted::Never, &["perfctrs", "npc"]),
    (Wanted::Never, &["cloud"]),
    (Wanted::Never, &["completing", "comp"]),
    (Wanted::Power(Power::Stopping), &["powering_down", "pow_dn"]),
    (Wanted::Power(Power::Off), &["powered_down"]),
    (Wanted::Never, &["power_down"]),
    (Wanted::Power(Power::Starting), &["powering_up", "pow_up", "power_up"]),
    (Wanted::Never, &["fail", "failg", "failing"]),
    (Wanted::Never, &["maint"]),
    (Wanted::Never, &["reboot_requested", "boot", "reboot"]),
    (Wanted::Never, &["reboot_issued", "boot^", "reboot^"]),
    (Wanted::Never, &["planned", "plnd"]),
    (Wanted::Never, &["blocked", "block"]),
];

/// Which states a command lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFilter {
    wanted: Vec<Wanted>,
    /// Whether a node must be in all of the states.
    is_all: bool,
}

impl StateFilter {
    /// The nodes of which `sinfo -R` lists the reasons.
    #[must_use]
    pub fn with_reasons() -> Self {
        Self { wanted: vec![Wanted::Base(Base::Down), Wanted::Drain], is_all: false }
    }

    /// Parses names of states or their beginnings, in upper or lower case: after commas for one of them, after `&` for all of
    /// them. `None` stands for any state.
    ///
    /// # Errors
    /// Returns the first word that is not a state.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let is_all = text.contains('&');
        let mut wanted = Vec::new();
        for word in text.split([',', '&']).map(str::trim).filter(|word| !word.is_empty()) {
            if word.eq_ignore_ascii_case("all") {
                return Ok(None);
            }
            let lower = word.to_ascii_lowercase();
            let named = WANTED.iter().find(|(_, names)| names.contains(&lower.as_str()));
            let begun = || WANTED.iter().find(|(_, names)| names[0].starts_with(&lower));
            wanted.push(named.or_else(begun).ok_or_else(|| word.to_owned())?.0);
        }
        Ok(Some(Self { wanted, is_all }))
    }

    /// Returns the names of all states, for the error message of a filter.
    #[must_use]
    pub fn names() -> String {
        WANTED.iter().map(|(_, names)| names[0]).collect::<Vec<_>>().join(",")
    }

    /// Returns whether the filter takes a node in this state.
    #[must_use]
    pub fn takes(&self, state: NodeState) -> bool {
        let is = |wanted: &Wanted| match wanted {
            Wanted::Base(base) => state.base == *base,
            Wanted::Drain => state.drain,
            Wanted::Drained => state.drain && !state.is_busy(),
            Wanted::Draining => state.drain && state.is_busy(),
            Wanted::Silent => state.silent,
            Wanted::Power(power) => state.power == Some(*power),
            Wanted::Never => false,
        };
        if self.is_all { self.wanted.iter().all(is) } else { self.wanted.iter().any(is) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn state(base: Base, drain: bool, silent: bool, power: Option<Power>) -> NodeState {
        NodeState { base, drain, silent, power }
    }

    const IDLE: NodeState = state(Base::Idle, false, false, None);
    const DRAINED: NodeState = state(Base::Idle, true, false, None);
    const DRAINING: NodeState = state(Base::Mixed, true, false, None);
    const LOST: NodeState = state(Base::Down, false, true, None);
    const LOST_AND_DRAINED: NodeState = state(Base::Down, true, true, None);
    const OFF: NodeState = state(Base::Idle, false, false, Some(Power::Off));
    const STARTING: NodeState = state(Base::Allocated, false, true, Some(Power::Starting));

    #[test]
    fn states_are_written() {
        for (state, compact, long, complete) in [
            (IDLE, "idle", "idle", "IDLE"),
            (state(Base::Allocated, false, false, None), "alloc", "allocated", "ALLOCATED"),
            (state(Base::Mixed, false, false, None), "mix", "mixed", "MIXED"),
            (state(Base::Idle, false, true, None), "idle*", "idle*", "IDLE+NOT_RESPONDING"),
            (DRAINED, "drain", "drained", "IDLE+DRAIN"),
            (DRAINING, "drng", "draining", "MIXED+DRAIN"),
            (LOST, "down*", "down*", "DOWN+NOT_RESPONDING"),
            (LOST_AND_DRAINED, "drain*", "drained*", "DOWN+DRAIN+NOT_RESPONDING"),
            (OFF, "idle~", "idle~", "IDLE+POWERED_DOWN"),
            (STARTING, "alloc#", "allocated#", "ALLOCATED+NOT_RESPONDING+POWERING_UP"),
            (state(Base::Idle, false, false, Some(Power::Stopping)), "idle%", "idle%", "IDLE+POWERING_DOWN"),
        ] {
            let texts = (state.compact(), state.long(), state.complete());
            assert_eq!((texts.0.as_str(), texts.1.as_str(), texts.2.as_str()), (compact, long, complete));
        }
    }

    #[test]
    fn filters_take_states() {
        let taken = |text: &str| {
            let filter = StateFilter::parse(text).expect(text);
            let all = [IDLE, DRAINED, DRAINING, LOST, OFF];
            all.map(|state| filter.as_ref().is_none_or(|filter| filter.takes(state)))
        };
        for (text, expected) in [
            ("all", [true, true, true, true, true]),
            ("IDLE", [true, true, false, false, true]),
            ("idle&drain", [false, true, false, false, false]),
            ("drain,down", [false, true, true, true, false]),
            ("drained", [false, true, false, false, false]),
            ("drng", [false, false, true, false, false]),
            ("alloc,mix", [false, false, true, false, false]),
            ("no_respond,powered_down", [false, false, false, true, true]),
            ("maint", [false; 5]),
            ("i", [true, true, false, false, true]),
            ("D", [false, false, false, true, false]),
            ("dr", [false, true, true, false, false]),
            ("al,mi", [false, false, true, false, false]),
        ] {
            assert_eq!(taken(text), expected, "{text}");
        }
        assert_eq!(StateFilter::parse("idle,bogus"), Err("bogus".to_owned()));
        assert_eq!(StateFilter::parse("cg"), Err("cg".to_owned()));
        assert!(StateFilter::names().starts_with("unknown,down,idle,allocated,"));
        assert!(StateFilter::with_reasons().takes(LOST) && !StateFilter::with_reasons().takes(IDLE));
    }

    #[test]
    fn flags_sort_before_states_without_flags() {
        let mut all = [IDLE, DRAINED, LOST, DRAINING, OFF];
        all.sort_by_key(|state| std::cmp::Reverse(state.number()));
        assert_eq!(all, [OFF, LOST, DRAINING, DRAINED, IDLE]);
        assert!(DRAINED.is_out() && LOST.is_out() && !IDLE.is_out() && !OFF.is_out());
    }
}

//! Node weights and the machine list of a cluster file: performance data that operators configure.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use hostler_model::{NodeName, ParseError};

/// A factor relative to a typical node, from 0.01 to 100. [`hostler_gossip::Load`] describes its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    hundredths: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    /// Time that the node needs for a given amount of work, relative to a typical node: 2 means half as fast.
    pub load: Weight,
    /// Weight of the node's memory: 2 counts twice as much as a typical node's memory.
    pub memory: Weight,
}

/// A machine in a cluster file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Host name, with or without a domain.
    pub name: String,
    /// Where the machine gossips, if set in the file. Only daemons without a head use it.
    pub address: Option<SocketAddr>,
    /// [`Weights::load`], if set in the file.
    pub load_weight: Option<Weight>,
    /// [`Weights::memory`], if set in the file.
    pub memory_weight: Option<Weight>,
}

/// The machines of a cluster file, indexed by node name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machines {
    all: Vec<Machine>,
    /// Indices by full name and by first label, in lower case.
    places: HashMap<String, usize>,
}

impl Weight {
    /// Creates a weight, rounded to hundredths; `None` if it is out of range.
    #[must_use]
    pub fn new(weight: f64) -> Option<Self> {
        // NaN is outside every range.
        (0.01..=100.0).contains(&weight).then(|| Self { hundredths: (weight * 100.0).round() as u32 })
    }

    pub(crate) const fn hundredths(self) -> u32 {
        self.hundredths
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self { hundredths: 100 }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.hundredths) / 100.0)
    }
}

impl FromStr for Weight {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let weight = text.parse().ok().and_then(Self::new);
        weight.ok_or_else(|| ParseError::new(text, "a weight from 0.01 to 100, such as 2.0 or 0.5"))
    }
}

impl Machines {
    /// Creates the index. If several machines have the same first label, the label refers to the first of them.
    #[must_use]
    pub fn new(all: Vec<Machine>) -> Self {
        let mut places = HashMap::new();
        for (place, machine) in all.iter().enumerate() {
            places.entry(machine.name.to_lowercase()).or_insert(place);
        }
        for (place, machine) in all.iter().enumerate() {
            let name = machine.name.to_lowercase();
            places.entry(first_label(&name).to_owned()).or_insert(place);
        }
        Self { all, places }
    }

    /// The machines, in the order of the file.
    #[must_use]
    pub fn all(&self) -> &[Machine] {
        &self.all
    }

    /// The machine of a node: its name or first label equals the node's name.
    #[must_use]
    pub fn find(&self, node: &NodeName) -> Option<&Machine> {
        self.places.get(&node.as_str().to_lowercase()).map(|place| &self.all[*place])
    }

    /// Weights of a node; `otherwise` provides the values that the file does not set.
    #[must_use]
    pub fn weights(&self, node: &NodeName, otherwise: Weights) -> Weights {
        let Some(machine) = self.find(node) else { return otherwise };
        Weights {
            load: machine.load_weight.unwrap_or(otherwise.load),
            memory: machine.memory_weight.unwrap_or(otherwise.memory),
        }
    }
}

fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(text: &str) -> Weight {
        text.parse().expect(text)
    }

    #[test]
    fn weights_out_of_range_are_refused() {
        for (text, hundredths) in [("1", 100), ("2.0", 200), ("0.01", 1), ("100", 10_000), ("1e1", 1000), ("0.129", 13)]
        {
            assert_eq!(weight(text).hundredths(), hundredths, "{text}");
        }
        for text in ["", "0", "-1", "0.009", "100.1", "NaN", "inf", "two", "1,5"] {
            assert!(text.parse::<Weight>().is_err(), "{text}");
        }
        assert_eq!(["2.0", "0.5", "1"].map(|text| weight(text).to_string()), ["2", "0.5", "1"]);
    }

    #[test]
    fn machines_are_found_by_full_name_or_first_label() {
        let machine = |name: &str, load: Option<&str>| Machine {
            name: name.to_owned(),
            address: None,
            load_weight: load.map(weight),
            memory_weight: None,
        };
        let machines = Machines::new(vec![
            machine("Newton.foo.bar", Some("2")),
            machine("kepler.foo", None),
            machine("kepler", Some("3")),
        ]);
        let weights = |node: &str| {
            let otherwise = Weights { load: weight("7"), memory: weight("5") };
            machines.weights(&node.parse().expect("a name"), otherwise).load.to_string()
        };
        assert_eq!(weights("newton"), "2");
        assert_eq!(weights("NEWTON.FOO.BAR"), "2");
        assert_eq!(weights("kepler"), "3", "full names have precedence");
        assert_eq!(weights("kepler.foo"), "7", "the file lists the machine without a weight");
        assert_eq!(weights("galileo"), "7");
        for stranger in ["newton.foo", "foo", "galileo"] {
            assert_eq!(machines.find(&stranger.parse().expect("a name")), None, "{stranger}");
        }
    }
}

//! Weights of nodes, and the machines of a cluster file: what operators say that nobody can measure.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use hostler_model::{NodeName, ParseError};

/// How a node compares with a usual one, from 0.01 to 100. What that does is said at [`hostler_gossip::Load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    hundredths: u32,
}

/// A node's weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    /// How long it takes for a given amount of work: 2 is half as fast as a usual node.
    pub load: Weight,
    /// How good its memory is: 2 counts twice as much as that of a usual node.
    pub memory: Weight,
}

/// A machine of a cluster file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name, or its host name with a domain.
    pub name: String,
    /// [`Weights::load`], if the file says it.
    pub load_weight: Option<Weight>,
    /// [`Weights::memory`], if the file says it.
    pub memory_weight: Option<Weight>,
}

/// The machines of a cluster file, to be found by the names of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machines {
    all: Vec<Machine>,
    /// By whole names and by their first labels, in lower case.
    places: HashMap<String, usize>,
}

impl Weight {
    /// A weight, kept in hundredths; `None` beyond the bounds.
    #[must_use]
    pub fn new(weight: f64) -> Option<Self> {
        // What is no number is within no bounds.
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
    /// These machines. Of several with the same first label the first one stands for it.
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

    /// The machine that is this node: its name, or the first label of it, is the node's.
    #[must_use]
    pub fn find(&self, node: &NodeName) -> Option<&Machine> {
        self.places.get(&node.as_str().to_lowercase()).map(|place| &self.all[*place])
    }

    /// The weights of a node: what the file does not say is as in `otherwise`.
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
    fn weights_have_bounds() {
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
    fn nodes_are_found_by_whole_names_and_by_first_labels() {
        let machine = |name: &str, load: Option<&str>| Machine {
            name: name.to_owned(),
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
        assert_eq!(weights("kepler"), "3", "the whole name counts first");
        assert_eq!(weights("kepler.foo"), "7", "it is there, and the file says no weight");
        assert_eq!(weights("galileo"), "7");
        for stranger in ["newton.foo", "foo", "galileo"] {
            assert_eq!(machines.find(&stranger.parse().expect("a name")), None, "{stranger}");
        }
    }
}

//! Parts of Slurm's JSON documents, in the form of its data parser v0.0.41.

use std::cell::RefCell;

use hostler_model::WallTime;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{CLUSTER, VERSION, own_name};

/// A document with a list under a name, on several lines. Writes each item before it takes the next one, since a list may be
/// long.
/// `times`: names of entries that say when the list changed last. It is never older than `now`, the time of the head.
pub(crate) fn document(
    name: &'static str,
    times: &'static [&'static str],
    now: WallTime,
    list: impl IntoIterator<Item = Value>,
) -> String {
    let document = Document { name, times, now, list: RefCell::new(Some(list.into_iter())) };
    serde_json::to_string_pretty(&document).expect("a document is valid JSON") + "\n"
}

struct Document<I> {
    name: &'static str,
    times: &'static [&'static str],
    now: WallTime,
    list: RefCell<Option<I>>,
}

impl<I: Iterator<Item = Value>> Serialize for Document<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.name, &Items(&self.list))?;
        for time in self.times {
            map.serialize_entry(time, &seconds(Some(self.now)))?;
        }
        map.serialize_entry("meta", &meta())?;
        map.serialize_entry("errors", &[(); 0])?;
        map.serialize_entry("warnings", &[(); 0])?;
        map.end()
    }
}

struct Items<'a, I>(&'a RefCell<Option<I>>);

impl<I: Iterator<Item = Value>> Serialize for Items<'_, I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.borrow_mut().take().into_iter().flatten())
    }
}

fn meta() -> Value {
    let release = VERSION.trim_start_matches("slurm ");
    let mut numbers = release.split('.');
    let mut next = || numbers.next().unwrap_or_default();
    let (major, minor, micro) = (next(), next(), next());
    json!({
        "client": { "source": "", "user": own_name().unwrap_or_default(), "group": "" },
        "command": std::env::args().collect::<Vec<_>>(),
        "plugin": { "type": "", "name": "", "data_parser": "data_parser/v0.0.41", "accounting_storage": "" },
        "slurm": {
            "version": { "major": major, "minor": minor, "micro": micro },
            "release": release,
            "cluster": CLUSTER,
        },
    })
}

/// A number that may be absent.
pub(crate) fn number(value: Option<u64>) -> Value {
    json!({ "set": value.is_some(), "infinite": false, "number": value.unwrap_or(0) })
}

/// A limit; infinite if absent.
pub(crate) fn unlimited(value: Option<u64>) -> Value {
    json!({ "set": value.is_some(), "infinite": value.is_none(), "number": value.unwrap_or(0) })
}

/// A time in seconds; zero if absent.
pub(crate) fn seconds(at: Option<WallTime>) -> Value {
    let seconds = at.and_then(|at| u64::try_from(at.0 / 1000).ok());
    json!({ "set": true, "infinite": false, "number": seconds.unwrap_or(0) })
}

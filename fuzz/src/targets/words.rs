//! Text values in one word or line: ids, sets, sizes, durations, join codes, addresses.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use hostler_discovery::GpuPick;
use hostler_model::{
    ArraySpec, Counted, CpuSet, Dependency, Digest, IndexSet, JobId, JobState, NodeName, Role, RunId, TaskId, UserName,
    format_bytes, format_duration, parse_bytes, parse_duration,
};
use hostler_proto::join::{Address, JoinCode, LoginCode};

use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "words", about: "ids, sets, sizes, durations, join codes and addresses", run, seeds };

/// The first byte selects the type of word.
fn run(bytes: &[u8]) {
    let Some((kind, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match kind % 21 {
        0 => reads_back::<JobId>(text),
        1 => reads_back::<TaskId>(text),
        2 => reads_back::<RunId>(text),
        3 => reads_back::<NodeName>(text),
        4 => reads_back::<Digest>(text),
        5 => reads_back::<CpuSet>(text),
        6 => reads_back::<IndexSet>(text),
        7 => reads_back::<ArraySpec>(text),
        8 => reads_back::<Dependency>(text),
        9 => reads_back::<JobState>(text),
        10 => reads_back::<Address>(text),
        11 | 12 => reads_back::<JoinCode>(text),
        13 => reads_back::<GpuPick>(text),
        14 => reads_back::<Counted>(text),
        15 => drop(Dependency::parse_list(text)),
        18 => reads_back::<UserName>(text),
        19 => reads_back::<Role>(text),
        20 => reads_back::<LoginCode>(text),
        16 => drop(parse_bytes(text).map(format_bytes)),
        _ => drop(parse_duration(text).map(format_duration)),
    }
}

/// Parses a value and checks that its text form parses to the same value.
fn reads_back<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let written = value.to_string();
    match written.parse::<T>() {
        Ok(again) => assert_eq!(value, again, "{text:?} was written as {written:?}"),
        Err(_) => panic!("{text:?} was written as {written:?}, which cannot be read"),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let code = JoinCode { address: "head:7760".into(), authority: Digest([9; 32]), secret: "0123456789".into() };
    let login = LoginCode { address: "head:7760".into(), authority: Digest([9; 32]), secret: "0123456789".into() };
    let words = [
        (0, "12".to_owned()),
        (1, "12_3".into()),
        (2, "12_3.1.4".into()),
        (3, "node-1.example".into()),
        (4, Digest([5; 32]).to_string()),
        (5, "0-3,8,64-66".into()),
        (6, "0-99,200-300:7".into()),
        (7, "1-9:2%3".into()),
        (8, "afterok:3".into()),
        (8, "?after:3_1+5".into()),
        (9, "out_of_memory".into()),
        (10, "[2001:db8::1]:7760".into()),
        (11, code.to_string()),
        (13, "0,2".into()),
        (13, "all".into()),
        (14, "gpu=2,licence=5".into()),
        (15, "afterok:3:4,after:5,6".into()),
        (15, "aftercorr:3?after:5_7+1".into()),
        (16, "1.5GiB".into()),
        (16, "600M".into()),
        (17, "1-02:03:04".into()),
        (17, "1h30m".into()),
        (18, "ada-2".into()),
        (19, "operator".into()),
        (20, login.to_string()),
    ];
    words.into_iter().map(|(kind, word)| [vec![kind], word.into_bytes()].concat()).collect()
}
